"""Crowds of clients that do allowed things too often, and broken requests."""

from __future__ import annotations

import signal
import socket
import time

import pytest

from ..helpers import read
from .attackers import CROWD, FREE_WITHIN, attacked, crowd, leave, request, reset, serve_another, wait_until_free

UVICORN = "uvicorn-uvloop-httptools"
each = pytest.mark.parametrize("server", [UVICORN, "granian-asyncio"])
KNOWN = 'If-None-Match: "0"'


@pytest.mark.parametrize("stops", [False, True])
def test_polls_in_a_brown_out_keep_no_place_and_are_answered(stops: bool) -> None:
    polls = [request(f"/never/{number}") for number in range(CROWD)]
    with attacked(UVICORN) as served, crowd(served, *polls) as clients:
        serve_another(served)
        if not stops:
            leave(clients)
            wait_until_free(served)
            return
        start = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert {client.recv(65_536).split()[1] for client in clients} == {b"503"}
        served.process.wait(timeout=20)
        assert time.monotonic() - start < FREE_WITHIN


def test_flood_of_notifications_costs_the_loop_little() -> None:
    with attacked(UVICORN) as served:
        poll = served.send("GET /polls/n", {"If-None-Match": '"0"'})
        served.wait_for(pending=1)
        spent = float(served.ask("POST /flood/n?times=200000").body)
        assert read(poll).status == 200
        assert spent < 0.2
        wait_until_free(served)


@each
def test_connections_reset_at_any_point_keep_no_place(server: str) -> None:
    whole = request("/events/n", KNOWN) + request("/polls/n", KNOWN)
    with attacked(server, "brief") as served:
        for end in range(1, len(whole), 3):
            client = socket.create_connection(served.address)
            client.sendall(whole[:end])
            if end % 2:
                time.sleep(0.003)
            reset(client)
        serve_another(served)
        wait_until_free(served)


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
        wait_until_free(served)
