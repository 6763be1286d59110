"""Checks with a limit call for that many reads. A read that ends nothing passes its call on: none is lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, turns

WAYS = {"check": Purgatory.check_and_complete, "notify": Purgatory.notify}
ways = pytest.mark.parametrize("way", WAYS)


class Jobs:
    """A queue that is read by awaiting. A read that is cancelled puts back what it took."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.claims = 0
        self.put_back = self.waiting.append
        self.gate = asyncio.Event()
        self.gate.set()

    async def claim(self) -> int | None:
        self.claims += 1
        await self._pause()
        job = self.waiting.pop(0) if self.waiting else None
        try:
            await self._pause()
        except BaseException:
            if job is not None:
                self.put_back(job)
            raise
        return job

    async def _pause(self) -> None:
        await self.gate.wait()
        await asyncio.sleep(0)


def workers(purgatory: Purgatory, jobs: Jobs, number: int, **options: Any) -> list[asyncio.Task[Any]]:
    """Each waits for one job: one that waited again would read again, and hide a call that was lost."""
    options = {"timeout": None} | options
    tasks = [asyncio.create_task(purgatory.wait_for(jobs.claim, ["jobs"], **options)) for _ in range(number)]
    for task in tasks:
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return tasks


async def parked(purgatory: Purgatory, jobs: Jobs, number: int, **options: Any) -> list[asyncio.Task[Any]]:
    before = purgatory.num_delayed
    found = workers(purgatory, jobs, number, **options)
    await turns(10)
    assert (purgatory.num_delayed - before, jobs.claims) == (number, number)
    jobs.claims = 0
    return found


@ways
async def test_limit_calls_for_as_many_reads_oldest_first(purgatory: Purgatory, way: str) -> None:
    jobs = Jobs()
    waiting = await parked(purgatory, jobs, 50)
    jobs.waiting += [7, 8]
    WAYS[way](purgatory, "jobs", limit=2)
    await turns(10)
    assert jobs.claims == 2
    assert [task.result() for task in waiting if task.done()] == [7, 8]
    assert [task.done() for task in waiting] == [True] * 2 + [False] * 48
    check_invariants(purgatory)


async def test_read_that_finds_nothing_passes_its_call_on(purgatory: Purgatory) -> None:
    """Each that was parked reads once, one after the other."""
    jobs = Jobs()
    await parked(purgatory, jobs, 5)
    purgatory.check_and_complete("jobs", limit=1)
    await turns(3)
    assert jobs.claims == 1
    await turns(50)
    assert (jobs.claims, purgatory.num_delayed) == (5, 5)


async def test_hand_out_that_finds_nothing_keeps_its_call(purgatory: Purgatory) -> None:
    """Another was faster: the others would find nothing, either."""
    jobs = Jobs()
    await parked(purgatory, jobs, 5, on_undelivered=jobs.put_back)
    purgatory.check_and_complete("jobs", limit=1)
    await turns(50)
    assert (jobs.claims, purgatory.num_delayed) == (1, 5)


@pytest.mark.usefixtures("without_gc")
async def test_call_that_nobody_uses_costs_little_for_each_that_reads(purgatory: Purgatory) -> None:
    """Listing all that wait for each of them took 35 times as long as a check without a limit, with 4,000 waits."""
    number, jobs, took = 10_000, Jobs(), list[float]()
    tasks = await parked(purgatory, jobs, number)
    for limit in (None, 1):
        began, before = time.process_time(), jobs.claims
        purgatory.check_and_complete("jobs", limit=limit)
        while jobs.claims - before < number:  # noqa: ASYNC110 nothing reports it
            await asyncio.sleep(0)
        took.append(time.process_time() - began)
    assert took[1] < 24 * took[0]
    for task in tasks:
        task.cancel()
    await turns(10)


async def test_call_while_all_read_costs_no_look_at_each(purgatory: Purgatory) -> None:
    """With 8,000 of them it took 10 times as long as with 500: all were passed over, to find the newcomer."""
    took = []
    for number in (500, 8_000):
        jobs, spent = Jobs(), 0.0
        jobs.gate.clear()
        tasks = workers(purgatory, jobs, number)
        await turns(2)
        purgatory.check_and_complete("jobs", limit=1)  # meets them all
        for _ in range(300):
            tasks += workers(purgatory, jobs, 1)
            await turns(2)
            began = time.process_time()
            purgatory.check_and_complete("jobs", limit=1)
            spent += time.process_time() - began
        took.append(spent)
        for task in tasks:
            task.cancel()
        await turns(10)
    assert took[1] < 4 * took[0]


async def test_call_is_passed_to_an_operation_that_does_not_read(purgatory: Purgatory) -> None:
    jobs = Jobs()
    await parked(purgatory, jobs, 1)
    op = purgatory.watch(Op(None), ["jobs"])
    op.ready = True
    purgatory.check_and_complete("jobs", limit=1)
    assert not op.done()
    await turns(10)
    assert op.done()


async def test_streams_do_not_count(purgatory: Purgatory) -> None:
    jobs, seen = Jobs(), []

    async def read(since: Any) -> tuple[int, int] | None:
        seen.append(since)
        return None

    following = asyncio.ensure_future(anext(purgatory.follow(["jobs"], read)))
    await turns(3)
    waiting = workers(purgatory, jobs, 1)
    await turns(10)
    jobs.waiting.append(7)
    purgatory.check_and_complete("jobs", limit=1)
    await turns(10)
    assert (waiting[0].result(), len(seen)) == (7, 2)
    following.cancel()


@ways
@pytest.mark.parametrize(("checked", "missed"), [("jobs", 0), ("other", 1)])
@pytest.mark.parametrize("is_early", [True, False])
async def test_last_read_that_overtakes_a_call_is_no_missed_trigger(
    purgatory: Purgatory, clock: ManualClock, way: str, checked: str, missed: int, is_early: bool
) -> None:
    """The check has another worker read, before the deadline or during the last read. The control checks no key."""
    jobs, slow = Jobs(), Jobs()
    slow.waiting = jobs.waiting
    called, *_ = await parked(purgatory, slow, 1, on_undelivered=slow.put_back)
    last, *_ = await parked(purgatory, jobs, 1, timeout=1.0, on_undelivered=jobs.put_back)
    slow.gate.clear()
    if not is_early:
        jobs.gate.clear()
        await clock.advance(1.0)
    jobs.waiting.append(7)
    WAYS[way](purgatory, checked, limit=1)
    await turns(10)
    await clock.advance(1.0)
    jobs.gate.set()
    await turns(10)
    slow.gate.set()
    await turns(10)
    assert (last.result(), called.done(), purgatory.statistics().missed_triggers) == (7, False, missed)
