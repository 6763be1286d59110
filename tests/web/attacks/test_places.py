"""Anonymous clients keep no place after they leave, for any request, even broken ones and crowds of them."""

from __future__ import annotations

import signal
import socket
import time

import pytest

from ..helpers import read
from ..proxies.programs import HAProxy, Nginx, Proxy
from .attackers import CROWD, FREE_WITHIN, attacked, check_free, crowd, request, reset, trickle

SERVERS = [
    "uvicorn-asyncio-h11",
    "uvicorn-asyncio-httptools",
    "uvicorn-uvloop-httptools",
    "hypercorn-asyncio-0",
    "granian-asyncio",
    "gunicorn",
]
each = pytest.mark.parametrize("server", SERVERS)
each_path = pytest.mark.parametrize("path", ["/events/n", "/polls/n?wait=100", "/waits/n"])
#: Bodies in pieces: one that goes on, one that ends with them, one of unknown length. The server may merge pieces.
BODIES = {
    "Content-Length: 1000": [b"x"] * 100,
    "Content-Length: 100": [b"x"] * 100,
    "Transfer-Encoding: chunked": [b"1\r\nx\r\n"] * 99 + [b"0\r\n\r\n"],
}
KNOWN = 'If-None-Match: "0"'


@each_path
@each
def test_bodies_that_trickle_keep_no_place(server: str, path: str) -> None:
    requests = [request(path, KNOWN, field) for field in BODIES]
    with attacked(server) as served, crowd(served, *requests) as clients:
        trickle(clients, BODIES.values())
        check_free(served, clients)


@each_path
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (HAProxy, {}),
        (Nginx, {"location /polls/ {": "location / {\nproxy_buffering off; proxy_request_buffering off;"}),
    ],
)
def test_bodies_through_a_proxy_keep_no_place(kind: type[Proxy], changes: dict[str, str], path: str) -> None:
    requests = [request(path, KNOWN, field) for field in BODIES]
    with (
        attacked("uvicorn-uvloop-httptools") as served,
        kind(served.address, changes) as proxy,
        crowd(served, *requests, address=proxy.address) as clients,
    ):
        trickle(clients, BODIES.values())
        check_free(served, clients)


@each
def test_request_behind_a_stream_keeps_no_place_for_long(server: str) -> None:
    """That is, when the stream has reached its max_age."""
    sent = request("/events/n") + request("/plain/n")
    with attacked(server, "brief") as served, crowd(served, sent) as clients:
        check_free(served, clients)


# crowds of clients that do allowed things too often, and broken requests

UVICORN = "uvicorn-uvloop-httptools"
each_server = pytest.mark.parametrize("server", [UVICORN, "granian-asyncio"])


@pytest.mark.parametrize("stops", [False, True])
def test_polls_in_a_brown_out_keep_no_place_and_are_answered(stops: bool) -> None:
    polls = [request(f"/never/{number}") for number in range(CROWD)]
    with attacked(UVICORN) as served, crowd(served, *polls) as clients:
        if not stops:
            check_free(served, clients)
            return
        served.process.send_signal(signal.SIGTERM)
        assert {client.recv(65_536).split()[1] for client in clients} == {b"503"}
        served.process.wait(timeout=FREE_WITHIN)


def test_flood_of_notifications_costs_the_loop_little() -> None:
    with attacked(UVICORN) as served:
        poll = served.send("GET /polls/n", {"If-None-Match": '"0"'})
        served.wait_for(pending=1)
        spent = float(served.ask("POST /flood/n?times=200000").body)
        assert read(poll).status == 200
        assert spent < 0.2
        check_free(served)


@each_server
def test_connections_reset_at_any_point_keep_no_place(server: str) -> None:
    whole = request("/events/n", KNOWN) + request("/polls/n", KNOWN)
    with attacked(server, "brief") as served:
        for end in range(1, len(whole), 3):
            client = socket.create_connection(served.address)
            client.sendall(whole[:end])
            if end % 2:
                time.sleep(0.003)
            reset(client)
        check_free(served)


@each_server
def test_odd_paths_are_answered(server: str) -> None:
    odd = ["", "%00", "%ff%fe", "..%2f..%2f", "%F0%9F%92%A9", "a" * 30_000, "?" * 100, "%", "%zz", ";a=b", "//"]
    with attacked(server) as served:
        for path in odd:
            for route in ("polls", "events"):
                with served.send(f"GET /{route}/{path}") as client:
                    assert client.recv(65_536).split()[1] in (b"200", b"400", b"404"), path[:50]
        check_free(served)
