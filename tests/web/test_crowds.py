"""10,000 polls at once hang up, and the server stops."""

from __future__ import annotations

import signal
import socket

import pytest

from .helpers import Leave, Served, allow_open_files, read

CROWD = 10_000


def park(served: Served, number: int) -> list[socket.socket]:
    clients = [served.poll(f"topic-{i % 100}", 0, wait=150) for i in range(number)]
    served.wait_for(pending=number)
    return clients


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("server", "number"),
    [("uvicorn-uvloop-httptools", CROWD), ("uvicorn-asyncio-h11", CROWD // 4), ("hypercorn-uvloop-0", CROWD // 4)],
)
def test_crowd_that_hangs_up_leaves_nothing_and_stop_answers(server: str, number: int, reset: Leave) -> None:
    allow_open_files()
    with Served(server, "apps:starlette") as served:
        for client in park(served, number):
            reset(client)
        served.wait_for(pending=0, watched_entries=0, keys=0, buckets=0, cancelled=number)
        clients = park(served, number)
        served.process.send_signal(signal.SIGTERM)
        answers = [read(client) for client in clients]
        served.process.wait(timeout=10)
        assert {answer.status for answer in answers} == {503}
        assert {answer.headers["retry-after"] for answer in answers} == {"1", "2", "3"}
