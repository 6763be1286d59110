"""Streams of events from real servers, by routes and handlers: clients that leave or do not read, servers that stop."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from httpx_sse import connect_sse

from .apps import SIZE
from .eventsource import Event, Parser
from .helpers import Leave, Served, check_leaving, check_news_for_the_left, each, read

ROUTES = [
    ("uvicorn-asyncio-h11", "apps:starlette"),
    ("uvicorn-asyncio-httptools", "apps:behind_middleware"),
    ("uvicorn-uvloop-httptools", "apps:starlette"),
    ("hypercorn-asyncio-0", "apps:starlette"),
    ("hypercorn-uvloop-0", "apps:behind_middleware"),
]
HANDLERS = [
    ("uvicorn-asyncio-h11", "apps:answering"),
    ("uvicorn-asyncio-httptools", "apps:answering_behind_middleware"),
    ("uvicorn-uvloop-httptools", "app_fastapi:app"),
    ("hypercorn-asyncio-0", "apps:answering"),
]
SERVERS = [*ROUTES, *HANDLERS]
PATHS = [(case, "events") for case in SERVERS] + [(case, "deaf") for case in HANDLERS]
#: For events of 1 MB.
LARGE = [("uvicorn-asyncio-h11", "apps:starlette"), ("hypercorn-uvloop-0", "apps:starlette")]


class Stream(Parser):
    """A stream as httpx has it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.response = response
        self.chunks = response.iter_bytes()

    def until(self, count: int) -> list[Event]:
        """Read on until there have been *count* events."""
        while len(self.events) < count:
            self.feed(next(self.chunks))
        return self.events

    def rest(self) -> None:
        """Read until the server ends the stream."""
        for chunk in self.chunks:
            self.feed(chunk)


@contextmanager
def streaming(served: Served, path: str, **headers: str) -> Iterator[Stream]:
    url = "http://{}:{}{}".format(*served.address, path)
    with httpx.stream("GET", url, headers=headers, timeout=20) as response:
        yield Stream(response)


@each(SERVERS)
def test_events_arrive_as_they_are_published(served: Served) -> None:
    with streaming(served, "/events/orders") as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store, no-transform", "no")
        assert stream.until(1) == [Event("message", "0", '["orders", null, "0"]')]
        for number in range(1, 4):
            served.ask("POST /polls/orders", body="x")
            version, before = str(number), str(number - 1)
            assert stream.until(number + 1)[-1] == Event("message", version, f'["orders", "{before}", "{version}"]')
    served.wait_for(pending=0, keys=0)


@each(SERVERS)
def test_another_client_takes_nothing_else_for_an_event(served: Served) -> None:
    """httpx-sse dispatches at an empty line, whatever came before it: a heartbeat's comment, or ``retry:``."""
    url = "http://{}:{}/hasty/other".format(*served.address)
    with httpx.Client(timeout=20) as client, connect_sse(client, "GET", url) as source:
        events = source.iter_sse()
        assert next(events).id == "0"
        time.sleep(2.0)  # two heartbeats
        served.ask("POST /polls/other", body="x")
        assert next(events).id == "1"


@each(HANDLERS)
def test_refusal_of_a_handler_has_its_status(served: Served) -> None:
    answer = served.ask("GET /events/unknown")
    assert (answer.status, b"there is no such topic" in answer.body) == (404, True)


@pytest.mark.parametrize(("query", "count"), [("?identity", 3), ("", 1)])
def test_events_pass_djangos_gzip_only_as_identity(query: str, count: int) -> None:
    pytest.importorskip("django")
    with Served("uvicorn-uvloop-httptools", "app_django:app") as served:
        url = "http://{}:{}/events/orders{}".format(*served.address, query)
        with httpx.stream("GET", url, timeout=5.0) as response:
            stream = Stream(response)
            stream.until(1)
            with suppress(httpx.ReadTimeout):
                for number in (2, 3):
                    served.ask("POST /polls/orders", body="x")
                    stream.until(number)
            assert len(stream.events) == count
        served.wait_for(pending=0)


@pytest.mark.parametrize(("served", "path"), PATHS, ids=str, indirect=["served"], scope="module")
def test_client_leaves_and_its_stream_ends_at_once(served: Served, path: str, leave: Leave) -> None:
    check_leaving(served, f"GET /{path}/left", leave)


@each(SERVERS)
def test_client_that_leaves_during_an_event_leaves_nothing(served: Served) -> None:
    check_news_for_the_left(served, "events")


@pytest.mark.parametrize("case", SERVERS, ids="-".join)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_ends_every_stream_at_once(case: tuple[str, str], number: int) -> None:
    with Served(*case) as served, streaming(served, "/events/orders") as stream:
        clients = [served.send("GET /events/orders") for _ in range(50)]
        served.wait_for(pending=51)
        start = time.monotonic()
        served.process.send_signal(number)
        stream.rest()
        assert len(stream.retries) == 2
        for client in clients:
            answer = read(client)
            assert (answer.status, answer.body.count(b"retry: ")) == (200, 2)
            assert answer.body.endswith(b"0\r\n\r\n")
        served.process.wait(timeout=10)
        assert time.monotonic() - start < 10


# clients that do not read


def memory_of(served: Served) -> int:
    """Bytes of the server that are in memory."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{served.process.pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids="-".join)
def test_client_that_does_not_read_skips_to_the_newest_event(case: tuple[str, str]) -> None:
    with Served(*case) as served, streaming(served, "/events/large") as stream:
        stream.until(1)
        for _ in range(20):
            served.ask("POST /polls/large", body="x")
        before = memory_of(served)
        for _ in range(1_000):
            served.ask("POST /polls/large", body="x")
        assert memory_of(served) - before < 20 * SIZE
        assert served.statistics()["pending"] == 1
        while stream.events[-1].id != "1020":
            stream.until(len(stream.events) + 1)
        assert len(stream.events) < 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "path"),
    [(case, "hasty") for case in LARGE] + [(case, path) for case in HANDLERS[:3] for path in ("hasty", "deaf")],
)
def test_client_that_never_reads_loses_its_place(case: tuple[str, str], path: str) -> None:
    with Served(*case, quiet=False) as served:
        clients = [served.send(f"GET /{path}/large") for _ in range(3)]
        with streaming(served, f"/{path}/large") as reader:
            reader.until(1)
            for number in range(20):
                served.ask("POST /polls/large", body="x")
                reader.until(number + 2)
            served.wait_for(pending=1, expired=3)
            assert reader.events[-1].id == "20"
        for client in clients:
            client.close()


@pytest.mark.slow
def test_hypercorn_keeps_what_an_http_2_client_does_not_take() -> None:
    # docs/long-polls.md says so. When hypercorn bounds it, this fails, and the page can name that version.
    h2 = pytest.importorskip("h2.connection")
    with Served("hypercorn-uvloop-0", "apps:starlette", quiet=False) as served:
        client, connection = socket.create_connection(served.address, timeout=20), h2.H2Connection()
        connection.initiate_connection()
        fields = {":method": "GET", ":path": "/hasty/large", ":scheme": "http", ":authority": "x"}
        connection.send_headers(1, list(fields.items()), end_stream=True)
        client.sendall(connection.data_to_send())  # and never a window update
        served.wait_for(pending=1)
        before = memory_of(served)
        for _ in range(60):
            served.ask("POST /polls/large", body="x")
            time.sleep(0.05)
        assert memory_of(served) - before > 30 * SIZE
        assert served.statistics()["pending"] == 1  # though stall is 2.5 s
        client.close()
        served.wait_for(pending=0)
