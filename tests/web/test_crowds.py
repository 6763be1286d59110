"""10,000 polls at once: the server stops, they hang up, their time is up."""

from __future__ import annotations

import asyncio
import signal
import socket
import time

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import LongPolling, Policy

from .helpers import Leave, Served, allow_open_files, read
from .polls import Given

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
        start = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        answers = [read(client) for client in clients]
        answered = time.monotonic() - start
        served.process.wait(timeout=10)
        exited = time.monotonic() - start
        print(f"\n{server}: {number:,} polls answered after {answered:.2f} s, exit after {exited:.2f} s")
        assert {answer.status for answer in answers} == {503}
        assert {answer.headers["retry-after"] for answer in answers} == {"1", "2", "3"}


async def ends_of_a_herd(purgatory: Purgatory, clock: ManualClock, policy: Policy) -> list[float]:
    """Seconds after which each of 10,000 polls with wait=30 ended that came together."""
    polling = LongPolling[str](purgatory, Given("0", AssertionError("there is nothing new")), policy=policy)

    async def poll() -> float:
        answer = await polling.answer("n", {"if-none-match": '"0"', "prefer": "wait=30"})
        assert answer.status == 304
        return clock.time()

    polls = [asyncio.create_task(poll()) for _ in range(CROWD)]
    await clock.advance(40.0)
    return sorted([await poll for poll in polls])


def distance_from_even(ends: list[float], low: float, high: float) -> float:
    """Kolmogorov and Smirnov's: the largest between the distribution of *ends* and an even one."""
    even = [(end - low) / (high - low) for end in ends]
    return max(max((i + 1) / len(even) - share, share - i / len(even)) for i, share in enumerate(even))


TICK = 0.01
#: Of 10,000 draws, a distance above this comes once in a million tests.
KS_LIMIT = 2.7 / CROWD**0.5


@pytest.mark.parametrize(("jitter", "margin"), [(1 / 16, 0.0), (0.1, 0.5)])
async def test_herd_ends_evenly_spread_as_promised(clock: ManualClock, jitter: float, margin: float) -> None:
    async with Purgatory(tick=TICK, clock=clock) as purgatory:
        ends = await ends_of_a_herd(purgatory, clock, Policy(max_wait=30.0, jitter=jitter, margin=margin))
    low, high = 30.0 - margin - jitter * 30.0, 30.0 - margin
    assert low <= ends[0] < ends[-1] <= high + TICK
    assert distance_from_even(ends, low, high) < KS_LIMIT
    assert distance_from_even(ends, low * 0.9, high) > KS_LIMIT


async def test_herd_without_jitter_ends_in_one_instant(purgatory: Purgatory, clock: ManualClock) -> None:
    ends = await ends_of_a_herd(purgatory, clock, Policy(max_wait=30.0, jitter=0.0, margin=0.0))
    assert (ends[0], ends[-1]) == (30.0, 30.0)
