"""Real servers and frameworks: polls, clients that leave, servers that stop."""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from .helpers import Leave, Served, allow_open_files, check_leaving, check_news_for_the_left, each, read

# The two event loops, parsers and ways to start hypercorn; behind BaseHTTPMiddleware or not.
SERVERS = [
    ("uvicorn-asyncio-h11", "apps:starlette"),
    ("uvicorn-asyncio-httptools", "apps:behind_middleware"),
    ("uvicorn-uvloop-h11", "apps:behind_middleware"),
    ("uvicorn-uvloop-httptools", "apps:starlette"),
    ("hypercorn-asyncio-0", "apps:starlette"),
    ("hypercorn-uvloop-0", "apps:behind_middleware"),
    ("uvicorn-uvloop-httptools", "app_fastapi:app"),
    ("aiohttp-asyncio", "app_aiohttp:app"),
    ("aiohttp-uvloop", "app_aiohttp:app"),
]
COMPATIBLE = [
    ("uvicorn-uvloop-httptools", "app_litestar:app"),
    ("uvicorn-asyncio-h11", "app_quart:app"),
    ("hypercorn-asyncio-0", "app_quart:app"),
    ("uvicorn-uvloop-httptools", "app_django:app"),
    ("gunicorn", "apps:starlette"),
    ("granian-asyncio", "apps:starlette"),
    ("granian-uvloop", "app_fastapi:app"),
]
#: With the endpoints that only the Starlette app has.
ON_STARLETTE = [case for case in SERVERS if case[1].startswith("apps")]


@each(SERVERS)
def test_poll_with_news_is_answered_at_once(served: Served) -> None:
    before = served.statistics()["completed"]
    answer = served.ask("GET /polls/news", {"Prefer": "wait=20"})
    assert (answer.status, answer.body) == (200, b'["news", null, "0"]')
    expected = {"etag": '"0"', "cache-control": "no-store", "vary": "Prefer", "content-type": "application/json"}
    assert expected | {"preference-applied": "wait=20"} | answer.headers == answer.headers
    assert served.statistics()["completed"] == before


@each(SERVERS)
def test_poll_parked_is_answered_by_publishing(served: Served) -> None:
    clients = [served.poll("orders", 0) for _ in range(3)]
    served.wait_for(pending=3, keys=1)
    assert served.ask("POST /polls/payments", body="x").body == b"0"
    assert served.ask("POST /polls/orders", body="x").body == b"3"
    for answer in map(read, clients):
        assert (answer.status, answer.body) == (200, b'["orders", "0", "1"]')
        assert answer.headers["etag"] == '"1"'


@each(SERVERS)
def test_poll_without_news_ends_in_time(served: Served) -> None:
    start = time.monotonic()
    headers = {"If-None-Match": '"0"', "Prefer": "wait=99"}  # the query goes before
    answer = served.ask("GET /polls/silence?wait=0.2", headers)
    assert time.monotonic() - start >= 0.08  # margin and jitter taken off
    assert (answer.status, answer.body) == (304, b"")
    assert (answer.headers["etag"], "preference-applied" in answer.headers) == ('"0"', False)
    served.wait_for(pending=0, keys=0)


@each(SERVERS)
def test_client_leaves_and_its_poll_is_cancelled_at_once(served: Served, leave: Leave) -> None:
    check_leaving(served, "GET /polls/left", leave)


@each(SERVERS)
def test_client_leaves_before_parking_and_nothing_stays(served: Served, leave: Leave) -> None:
    before = served.statistics()["expired"]
    for _ in range(10):
        leave(served.poll("left", 0))
    served.wait_for(pending=0, keys=0, expired=before)


@each(SERVERS)
def test_client_that_leaves_during_the_answer_leaves_nothing(served: Served) -> None:
    check_news_for_the_left(served, "polls")


@each(ON_STARLETTE)
@pytest.mark.parametrize(("method", "body"), [("GET", ""), ("POST", "x" * 100_000)])
def test_client_leaves_a_handler_that_polls_and_the_poll_ends(served: Served, method: str, body: str) -> None:
    before = served.statistics()["cancelled"]
    client = served.send(f"{method} /own/posted?wait=20&since=0", body=body)
    served.wait_for(pending=1)
    client.close()
    served.wait_for(pending=0, cancelled=before + 1)


@each(ON_STARLETTE)
def test_handler_that_polls_after_its_body_is_answered(served: Served) -> None:
    client = served.send("POST /own/read?wait=20&since=0", body="x" * 100_000)
    served.wait_for(pending=1)
    served.ask("POST /polls/read", body="x")
    answer = read(client)
    assert (answer.status, answer.headers["x-body"]) == (200, "100000")


@each([case for case in SERVERS if case[1] == "app_fastapi:app"])
def test_poll_is_answered_by_publishing_in_a_thread(served: Served) -> None:
    clients = served.park(3, "threads")
    refusal = served.ask("POST /threads/threads", body="x")
    assert b"from here, use notify_threadsafe(key)" in refusal.body
    assert {read(client).body for client in clients} == {b'["threads", "0", "1"]'}


def test_clients_that_leave_unseen_take_only_their_share() -> None:
    """httptools reads no further while a second request waits behind the poll, so it sees no end of the connection."""
    head = 'GET /polls/n HTTP/1.1\r\nHost: x\r\nIf-None-Match: "0"\r\n\r\n'
    with Served("uvicorn-uvloop-httptools", "apps:in_groups", quiet=False) as served:
        for _ in range(200):
            with socket.create_connection(served.address) as client:
                client.sendall(head.encode() * 2)
        served.wait_for(pending=50, refused=150)
        other = socket.create_connection(served.address, source_address=("127.0.0.2", 0), timeout=20)
        other.sendall(head.encode())
        served.wait_for(pending=51)
        other.close()


def test_granian_full_of_polls_answers_nothing_else() -> None:
    with Served("granian-asyncio-full", "apps:starlette") as served:
        clients = served.park(10)
        clients.append(served.poll("orders", 0))
        publishing = served.send("POST /polls/orders", body="x")
        publishing.settimeout(0.5)
        with pytest.raises(TimeoutError):
            publishing.recv(1)
        clients.pop().close()
        assert {read(client).status for client in clients} == {200}


def test_uvicorn_full_of_polls_refuses_the_rest() -> None:
    with Served("uvicorn-uvloop-httptools-limited", "apps:starlette") as served:
        clients = [served.poll("orders", 0) for _ in range(10)]
        while (answer := served.ask("POST /polls/others", body="x")).status == 200:
            pass
        assert (answer.status, "refused" in answer.headers) == (503, False)
        for client in clients:
            client.close()


# the server stops


STOPS = [(case, signal.SIGTERM) for case in SERVERS] + [(SERVERS[i], signal.SIGINT) for i in (0, 3, 4, 7)]


@pytest.mark.parametrize(("case", "number"), STOPS, ids=lambda part: "-".join(part) if isinstance(part, tuple) else "")
def test_stop_signal_answers_every_poll_at_once(case: tuple[str, str], number: int) -> None:
    with Served(*case) as served:
        clients = served.park(50, "topic-{}")
        start = time.monotonic()
        served.process.send_signal(number)
        for answer in map(read, clients):
            assert answer.status == 503
            assert 1 <= int(answer.headers["retry-after"]) <= 3
        served.process.wait(timeout=10)
        assert time.monotonic() - start < 10  # of 25 s that the polls would have waited


@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_client_that_connects_as_the_server_stops_does_not_keep_it(http: str) -> None:
    """uvicorn closes the connections that it knows of when it stops. One that it accepts in that turn stays open."""
    with Served(f"uvicorn-asyncio-{http}", "apps:starlette") as served:
        assert served.ask("GET /polls/news").status == 200
        served.send("GET /pause")
        os.waitid(os.P_PID, served.process.pid, os.WSTOPPED)
        with socket.create_connection(served.address, timeout=20) as late:
            served.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)  # then it accepts this client in the turn in which it looks for the signal, as every 0.1 s
            served.process.send_signal(signal.SIGCONT)
            late.sendall(b'GET /polls/orders HTTP/1.1\r\nHost: x\r\nIf-None-Match: "0"\r\n\r\n' * 2)
            answer = read(late)
        assert (answer.status, answer.headers["refused"], answer.body) == (503, "closed", b"")  # and no second answer
        served.process.wait(timeout=10)


def test_stop_signal_answers_a_poll_on_http_2() -> None:
    """Where the header Connection, which closes the others, is forbidden."""
    http = httpx.Client(http1=False, http2=True, timeout=20)
    with Served("hypercorn-asyncio-0", "apps:starlette") as served, http as client, ThreadPoolExecutor(1) as pool:
        url = "http://{}:{}/polls/orders".format(*served.address)
        polling = pool.submit(client.get, url, headers={"If-None-Match": '"0"'})
        served.wait_for(pending=1)
        served.process.send_signal(signal.SIGTERM)
        answer = polling.result()
        served.process.wait(timeout=10)
    assert (answer.http_version, answer.status_code, answer.headers["refused"]) == ("HTTP/2", 503, "closed")


def test_stop_of_hypercorn_workers_answers_every_poll() -> None:
    # Its workers get no signal; and when it cancels them, it says so at length. On asyncio, from Python 3.12 on, it
    # waits for the polls to end instead (hypercorn #308).
    with Served("hypercorn-uvloop-1", "apps:starlette", quiet=False) as served:
        clients = served.park(20)
        served.process.send_signal(signal.SIGTERM)
        for answer in map(read, clients):
            assert answer.status == 503
            assert 1 <= int(answer.headers["retry-after"]) <= 3


@pytest.mark.parametrize("server", ["hypercorn-asyncio-1", "thread-uvloop-httptools"])
def test_client_of_a_worker_or_a_thread_leaves_at_once(server: str) -> None:
    with Served(server, "apps:starlette", quiet=False) as served:
        clients = served.park(20)
        for client in clients:
            client.close()
        served.wait_for(pending=0, keys=0, cancelled=20)


def test_quick_stop_of_gunicorn_leaves_polls_waiting() -> None:
    with Served("gunicorn", "apps:starlette") as served:
        clients = served.park(20)
        (worker,) = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGQUIT)  # as gunicorn does on SIGINT; the worker itself goes on (gunicorn #2604)
        assert served.ask("POST /polls/orders", body="x").body == b"20"
        assert {read(client).status for client in clients} == {200}


@pytest.mark.parametrize("path", ["polls", "own"])
def test_recycled_worker_answers_polls_after_its_timeout(path: str) -> None:
    # Nothing tells the app before: uvicorn waits for the polls, and at last cancels them.
    with Served("uvicorn-uvloop-httptools-recycled", "apps:starlette", quiet=False) as served:
        headers = {"If-None-Match": '"0"'}
        clients = [served.send(f"GET /{path}/orders", headers) for _ in range(20)]
        served.wait_for(pending=20)
        with suppress(OSError):  # it may stop before the last
            for _ in range(20):
                served.ask("GET /polls/others")
        assert {read(client).status for client in clients} == {503}
        assert served.process.stdout is not None
        assert "Traceback" not in served.process.stdout.read()


# frameworks that are promised less


@pytest.mark.parametrize("case", COMPATIBLE, ids="-".join)
def test_compatible_framework_answers_and_cancels_and_stops(case: tuple[str, str]) -> None:
    with Served(*case) as served:
        assert served.ask("GET /polls/orders", {"Prefer": "wait=0"}).body == b'["orders", null, "0"]'
        clients = served.park(10)
        for client in clients[:4]:
            client.close()
        served.wait_for(pending=6, keys=1, cancelled=4)
        assert served.ask("POST /polls/orders", body="x").body == b"6"
        assert {read(client).body for client in clients[4:]} == {b'["orders", "0", "1"]'}
        assert served.ask("GET /polls/orders?wait=0.1", {"If-None-Match": '"1"'}).status == 304
        clients = [served.poll("orders", 1) for _ in range(10)]
        served.wait_for(pending=10)
        served.process.send_signal(signal.SIGTERM)
        assert {read(client).status for client in clients} == {503}


# a crowd

CROWD = 10_000


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("server", "number"),
    [("uvicorn-uvloop-httptools", CROWD), ("uvicorn-asyncio-h11", CROWD // 4), ("hypercorn-uvloop-0", CROWD // 4)],
)
def test_crowd_that_hangs_up_leaves_nothing_and_stop_answers(server: str, number: int, reset: Leave) -> None:
    allow_open_files()
    with Served(server, "apps:starlette") as served:
        for client in served.park(number, "topic-{}", wait=150):
            reset(client)
        served.wait_for(pending=0, watched_entries=0, keys=0, buckets=0, cancelled=number)
        clients = served.park(number, "topic-{}", wait=150)
        served.process.send_signal(signal.SIGTERM)
        answers = [read(client) for client in clients]
        served.process.wait(timeout=10)
        assert {answer.status for answer in answers} == {503}
        assert {answer.headers["retry-after"] for answer in answers} == {"1", "2", "3"}
