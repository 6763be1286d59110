"""Headers and queries cost the loop little: what the server and the framework do with them is taken off.

h11 lets no more than 64 KB through, and takes ten times as long for them as the routes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from ..helpers import Served
from . import http2
from .attackers import request
from .conftest import Figure

#: Milliseconds of the loop's thread that a MB may cost.
LIMIT = 50.0
MB = 1_000_000
NAMES = ["Prefer", "If-None-Match", "Last-Event-ID"]
#: Of a header: lines without a value, short ones, long ones, a single one.
SHAPES: dict[str, Callable[[str, int], list[str]]] = {
    "empty lines": lambda name, size: [f"{name}:"] * (size // (len(name) + 3)),
    "short lines": lambda name, size: [f'{name}: "a"'] * (size // (len(name) + 7)),
    "long lines": lambda name, size: [f"{name}: " + '"a",' * 2_000] * (size // 8_000),
    "one line": lambda name, size: [f"{name}: " + '"a",' * (size // 4)],
}
#: Of queries, which no server here lets be longer than 64 KB.
QUERIES = ["a&", "wait=&", "wait=%31&", "%61=1;"]
QUERY_SIZE = 48_000


def cost(served: Served, send: Callable[[str], int], paths: tuple[str, str], times: int) -> float:
    """Seconds of the loop's thread that *times* requests take more on the first of *paths* than on the second."""
    spent = []
    for path in paths:
        before = served.statistics()["cpu"]
        for _ in range(times):
            send(path)
        spent.append(served.statistics()["cpu"] - before)
    return float(spent[0] - spent[1])


def ms_per_mb(served: Served, send: Callable[[str, bool], int], path: str, size: int) -> float:
    """What a MB costs that *send* sends if its second argument is True. Beyond LIMIT, the cheapest of three tries."""
    times = max(MB // size, 1)
    paths = (path, "/plain/n")

    def measure() -> float:
        full = cost(served, lambda path: send(path, True), paths, times)
        return full - cost(served, lambda path: send(path, False), paths, times)

    mb = times * size / MB
    first = measure() * 1000 / mb
    return max(0.0, first if first <= LIMIT else min(first, measure() * 1000 / mb, measure() * 1000 / mb))


def ask(served: Served, path: str, *fields: str) -> int:
    with socket.create_connection(served.address, timeout=20) as client:
        client.sendall(request(path, "Connection: close", *fields))
        return int(client.recv(65_536).split()[1])


@pytest.mark.parametrize(
    ("server", "size", "shapes"),
    [
        ("uvicorn-uvloop-httptools", MB, list(SHAPES)),
        ("granian-asyncio", 300_000, ["long lines", "one line"]),
    ],
)
def test_header_costs_little_of_the_loop(server: str, size: int, shapes: list[str], figure: Figure) -> None:
    costs = {}
    with Served(server, "attacks.app:starlette", quiet=False) as served:
        served.wait_for(pending=0)
        for name in NAMES:
            path = "/events/n" if name == "Last-Event-ID" else "/polls/n?wait=0"
            for shape in shapes:
                lines = SHAPES[shape](name, size)
                assert ask(served, path, *lines) in (200, 304)
                send = lambda path, full, lines=lines: ask(served, path, *(lines if full else []))  # noqa: E731
                costs[name, shape] = ms_per_mb(served, send, path, size)
    for (name, shape), ms in costs.items():
        figure(f"{name} in {shape}: {ms:.0f} ms of the loop per MB")
    assert max(costs.values()) <= LIMIT, costs


@pytest.mark.parametrize("server", ["uvicorn-uvloop-httptools", "granian-asyncio"])
def test_query_costs_little_of_the_loop(server: str, figure: Figure) -> None:
    costs = {}
    with Served(server, "attacks.app:starlette", quiet=False) as served:
        served.wait_for(pending=0)
        for part in QUERIES:
            query = "?" + part * (QUERY_SIZE // len(part))
            send = lambda path, full, query=query: ask(served, path + (query if full else "?wait=0"))  # noqa: E731
            for path in ("/polls/n", "/events/n"):
                costs[part, path] = ms_per_mb(served, send, path, QUERY_SIZE)
    for (part, path), ms in costs.items():
        figure(f"{path}?{part}{part}...: {ms:.0f} ms of the loop per MB")
    assert max(costs.values()) <= LIMIT, costs


def test_headers_compressed_by_http2_cost_little_of_the_loop(figure: Figure) -> None:
    costs = {}
    with Served("granian-asyncio", "attacks.app:starlette", quiet=False) as served:
        served.wait_for(pending=0)
        for name in ("prefer", "if-none-match", "last-event-id"):
            path = "/events/n" if name == "last-event-id" else "/polls/n?wait=0"
            headers = [(name.encode(), b'"a",' * 900)] * 3_000
            status, wire = http2.ask(served.address, path, headers)
            assert status in (200, 304)
            size = 3_000 * 3_600
            send = lambda path, full, headers=headers: http2.ask(served.address, path, headers if full else [])[0]  # noqa: E731
            costs[name, wire] = ms_per_mb(served, send, path, size)
    for (name, wire), ms in costs.items():
        figure(f"{name}, {wire:,} bytes on the wire, 10.8 MB for the app: {ms:.1f} ms of the loop per MB")
    assert max(costs.values()) <= LIMIT, costs
