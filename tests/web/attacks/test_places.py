"""Anonymous clients keep no place after they leave, for any request."""

from __future__ import annotations

import pytest

from ..proxies.programs import HAProxy, Nginx, Proxy
from .attackers import attacked, crowd, leave, request, serve_another, trickle, wait_until_free

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
        serve_another(served)
        leave(clients)
        wait_until_free(served)


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
        serve_another(served)
        leave(clients)
        wait_until_free(served)


@each
def test_request_behind_a_stream_keeps_no_place_for_long(server: str) -> None:
    """That is, when the stream has reached its max_age."""
    sent = request("/events/n") + request("/plain/n")
    with attacked(server, "brief") as served, crowd(served, sent) as clients:
        serve_another(served)
        leave(clients)
        wait_until_free(served)
