"""Handlers that await a purgatory of their own do not keep a server from stopping."""

from __future__ import annotations

import signal
import subprocess

import pytest

from .helpers import Served, read


@pytest.mark.parametrize(
    ("server", "app"),
    [
        ("uvicorn-asyncio-h11", "one_line"),
        ("uvicorn-uvloop-httptools", "one_line_behind"),
        ("hypercorn-asyncio-0", "one_line"),
        ("aiohttp-uvloop", "aiohttp"),
    ],
)
def test_middleware_lets_the_server_stop_at_once(server: str, app: str) -> None:
    with Served(server, f"app_jobs:{app}") as served:
        waiting = [served.send("GET /next?client=ann") for _ in range(3)]
        served.wait_for(pending=3)
        served.process.send_signal(signal.SIGTERM)
        for answer in map(read, waiting):
            assert (answer.status, answer.headers["refused"]) == (503, "closed")
        served.process.wait(timeout=10)


def test_server_without_close_on_stop_waits_for_the_handlers() -> None:
    """The control."""
    with Served("uvicorn-asyncio-h11", "app_jobs:starlette", quiet=False) as served:
        waiting = served.send("GET /next?client=ann")
        served.wait_for(pending=1)
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(timeout=1)
        waiting.close()
        served.process.kill()
