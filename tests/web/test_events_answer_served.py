"""Streams of events from handlers of one's own, by real servers: clients that leave or do not read, refusals, stops."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest
from httpx_sse import connect_sse

from .eventsource import Event
from .helpers import Served, each, read
from .test_events_served import Stream, streaming

SERVERS = [
    ("uvicorn-asyncio-h11", "app_answers:starlette"),
    ("uvicorn-asyncio-httptools", "app_answers:behind_middleware"),
    ("uvicorn-uvloop-httptools", "app_answers:fastapi_depends"),
    ("hypercorn-asyncio-0", "app_answers:starlette"),
]
paths = pytest.mark.parametrize("path", ["events", "deaf"])


@each(SERVERS)
def test_events_arrive_as_they_are_published(served: Served) -> None:
    with streaming(served, "/events/orders") as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store, no-transform", "no")
        assert stream.until(1) == [Event("message", "0", "0")]
        for number in "123":
            served.ask("POST /polls/orders")
            assert stream.until(int(number) + 1)[-1] == Event("message", number, number)
    served.wait_for(pending=0, keys=0, streams=0)


@pytest.mark.parametrize(("query", "count"), [("?identity", 3), ("", 1)])
def test_events_pass_djangos_gzip_only_as_identity(query: str, count: int) -> None:
    pytest.importorskip("django")
    with Served("uvicorn-uvloop-httptools", "app_django:app") as served:
        url = "http://{}:{}/events/orders{}".format(*served.address, query)
        with httpx.stream("GET", url, timeout=2.0) as response:
            stream = Stream(response)
            stream.until(1)
            for _ in range(2):
                served.ask("POST /polls/orders", body="x")
                time.sleep(0.1)
            with suppress(httpx.ReadTimeout):
                stream.until(3)
            assert len(stream.events) == count
        served.wait_for(pending=0)


@each(SERVERS)
def test_stream_goes_on_from_the_last_event_id(served: Served) -> None:
    served.ask("POST /polls/resumed")
    with streaming(served, "/events/resumed", **{"Last-Event-ID": "1"}) as stream:
        served.wait_for(streams=1)
        served.ask("POST /polls/resumed")
        assert stream.until(1) == [Event("message", "2", "2")]
    served.wait_for(streams=0)


@each(SERVERS)
def test_silent_stream_has_heartbeats(served: Served) -> None:
    with streaming(served, "/events/silent") as stream:
        while stream.comments < 2:
            stream.feed(next(stream._chunks))
        assert len(stream.events) == 1
    served.wait_for(streams=0)


@each(SERVERS)
def test_another_client_takes_nothing_else_for_an_event(served: Served) -> None:
    """httpx-sse dispatches at an empty line, whatever came before it: a comment, or ``retry:``."""
    url = "http://{}:{}/events/other".format(*served.address)
    with httpx.Client(timeout=20) as client, connect_sse(client, "GET", url) as source:
        events = source.iter_sse()
        assert next(events).data == "0"
        time.sleep(2.0)  # two heartbeats
        served.ask("POST /polls/other")
        event = next(events)
        assert (event.id, event.data) == ("1", "1")
    served.wait_for(streams=0)


@each(SERVERS)
@paths
def test_client_leaves_and_its_stream_ends_at_once(
    served: Served, path: str, leave: Callable[[socket.socket], None]
) -> None:
    before = served.statistics()["cancelled"]
    clients = [served.send(f"GET /{path}/left") for _ in range(6)]
    served.wait_for(pending=6)
    start = time.monotonic()
    for client in clients:
        leave(client)
    served.wait_for(pending=0, keys=0, streams=0, cancelled=before + 6)
    assert time.monotonic() - start < 10


@each(SERVERS)
def test_client_opens_a_newer_stream_and_its_older_one_ends(served: Served) -> None:
    with streaming(served, "/events/anew?client=ann") as older:
        older.until(1)
        with streaming(served, "/events/anew?client=ann") as newer:
            older.rest()
            assert older.events[1].kind == "replaced"
            served.ask("POST /polls/anew")
            assert newer.until(2)[1].id == "1"
    served.wait_for(pending=0, clients=0, streams=0)


@each(SERVERS)
def test_refusal_has_its_status(served: Served) -> None:
    answer = served.ask("GET /events/unknown")
    assert (answer.status, b"there is no such topic" in answer.body) == (404, True)
    clients = [served.send("GET /events/full") for _ in range(60)]
    served.wait_for(pending=60)
    refused = served.ask("GET /events/full")
    assert (refused.status, refused.headers["refused"]) == (503, "full")
    assert refused.headers["retry-after"] in "123"
    for client in clients:
        client.close()
    served.wait_for(pending=0, streams=0)


@each(SERVERS[:3])
@paths
def test_client_that_never_reads_loses_its_place(served: Served, path: str) -> None:
    before = served.statistics()["expired"]
    clients = [served.send(f"GET /{path}/large") for _ in range(3)]
    served.wait_for(pending=3)
    for _ in range(20):
        served.ask("POST /polls/large")
    served.wait_for(pending=0, streams=0, expired=before + 3)
    for client in clients:
        client.close()


@pytest.mark.parametrize("case", SERVERS, ids="-".join)
def test_stop_signal_ends_every_stream_at_once(case: tuple[str, str]) -> None:
    with Served(*case) as served, streaming(served, "/events/orders") as stream:
        clients = [served.send("GET /events/orders") for _ in range(20)]
        served.wait_for(pending=21)
        served.process.send_signal(signal.SIGTERM)
        stream.rest()
        assert len(stream.retries) == 2
        for client in clients:
            answer = read(client)
            assert (answer.status, answer.body.count(b"retry: ")) == (200, 2)
        served.process.wait(timeout=10)
