"""Crowds of clients that do allowed things too often."""

from __future__ import annotations

import signal
import socket
import time

import pytest

from ..helpers import read
from .attackers import CROWD, FREE_WITHIN, attacked, crowd, leave, request, reset, seconds_until_free, serve_another
from .conftest import Figure

APP = "attacks.app:starlette"
UVICORN = "uvicorn-uvloop-httptools"
each = pytest.mark.parametrize("server", [UVICORN, "granian-asyncio"])
each_source = pytest.mark.parametrize("source", ["slow", "never"])
KNOWN = 'If-None-Match: "0"'


def topics(path: str, *fields: str, query: str = "") -> list[bytes]:
    """A request for each of the crowd."""
    return [request(f"{path}/{number}{query}", *fields) for number in range(CROWD)]


# a database in a brown-out


def test_polls_of_a_brown_out_are_answered_in_time(figure: Figure) -> None:
    with attacked(UVICORN) as served:
        start = time.monotonic()
        clients = [served.send(f"GET /slow/{number}?wait=2") for number in range(CROWD)]
        serve_another(served)
        assert {read(client).status for client in clients} <= {304, 503}
        figure(f"{CROWD} polls with wait=2 answered after {time.monotonic() - start:.1f} s at most")
        assert time.monotonic() - start < FREE_WITHIN
        seconds_until_free(served)


@each_source
def test_clients_leave_in_a_brown_out_and_keep_no_place(source: str, figure: Figure) -> None:
    with attacked(UVICORN) as served, crowd(served, *topics(f"/{source}")) as clients:
        serve_another(served)
        leave(clients)
        figure(f"{CROWD} places free after {seconds_until_free(served):.2f} s")


@each_source
def test_server_stops_in_a_brown_out_and_answers_all(source: str, figure: Figure) -> None:
    with attacked(UVICORN) as served, crowd(served, *topics(f"/{source}")) as clients:
        start = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert {client.recv(65_536).split()[1] for client in clients} == {b"503"}
        served.process.wait(timeout=20)
        figure(f"{CROWD} polls answered and server gone after {time.monotonic() - start:.2f} s")
        assert time.monotonic() - start < FREE_WITHIN


# names, versions and floods


@each
def test_polls_under_one_name_keep_one_place(server: str) -> None:
    with attacked(server) as served:
        victim = served.send("GET /named/n?client=victim", {"If-None-Match": '"0"'})
        served.wait_for(pending=1)
        clients = [served.send("GET /named/n?client=tab", {"If-None-Match": '"0"'}) for _ in range(CROWD)]
        served.wait_for(pending=2, failed=CROWD - 1)
        served.ask("POST /polls/n")
        assert read(victim).status == 200
        assert sorted(read(client).status for client in clients) == [200] + [409] * (CROWD - 1)
        seconds_until_free(served)


def test_flood_of_notifications_costs_the_loop_little(figure: Figure) -> None:
    times = 200_000
    with attacked(UVICORN) as served:
        poll = served.send("GET /polls/n", {"If-None-Match": '"0"'})
        served.wait_for(pending=1)
        spent = float(served.ask(f"POST /flood/n?times={times}").body)
        assert read(poll).status == 200
        figure(f"{times:,} notifications: {spent * 1000:.0f} ms of the loop")
        assert spent < 0.2
        seconds_until_free(served)


@each
def test_polls_that_do_not_wait_keep_no_place(server: str, figure: Figure) -> None:
    def spent(path: str) -> float:
        before = served.statistics()["cpu"]
        for _ in range(500):
            assert served.ask(f"GET {path}").status == 200
        return float(served.statistics()["cpu"] - before)

    with attacked(server) as served:
        plain, polls = spent("/plain/n"), spent("/polls/n?wait=0")
        figure(f"a poll with wait=0 takes {polls / plain:.2f} times as much of the loop as an answer without it")
        assert polls < 3 * plain
        seconds_until_free(served)


# broken and odd requests


@each
def test_connections_reset_at_any_point_keep_no_place(server: str, figure: Figure) -> None:
    whole = request("/events/n", KNOWN) + request("/polls/n", KNOWN)
    with attacked(server, "brief") as served:
        for end in range(1, len(whole), 3):
            client = socket.create_connection(served.address)
            client.sendall(whole[:end])
            if end % 2:
                time.sleep(0.003)
            reset(client)
        serve_another(served)
        figure(f"places free after {seconds_until_free(served):.2f} s")


@each
def test_requests_that_never_end_keep_no_place(server: str) -> None:
    with attacked(server) as served:
        clients = [socket.create_connection(served.address) for _ in range(4 * CROWD)]
        for part in (b"GET /events/n HT", b"TP/1.1\r\nHo", b"st: x\r\nX-", b"Y: z\r\n"):
            for client in clients:
                client.sendall(part)
        serve_another(served)
        assert served.statistics()["pending"] == 0
        for client in clients:
            client.close()


@each
def test_other_methods_of_a_stream_keep_no_place(server: str) -> None:
    with attacked(server) as served:
        for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            with socket.create_connection(served.address, timeout=20) as client:
                client.sendall(request("/events/n", "Connection: close", "Content-Length: 0", method=method))
                assert client.recv(65_536).split()[1] == (b"200" if method == "HEAD" else b"405")
        seconds_until_free(served)


@each
def test_odd_paths_are_answered(server: str) -> None:
    odd = ["", "%00", "%ff%fe", "..%2f..%2f", "%F0%9F%92%A9", "a" * 30_000, "?" * 100, "%", "%zz", ";a=b", "//"]
    with attacked(server) as served:
        for path in odd:
            for route in ("polls", "events"):
                with socket.create_connection(served.address, timeout=20) as client:
                    client.sendall(request(f"/{route}/{path}", "Connection: close"))
                    assert client.recv(65_536).split()[1] in (b"200", b"400", b"404"), path[:50]
        serve_another(served)
        seconds_until_free(served)
