"""Checks with a limit call for that many reads. A read that ends nothing passes its call on: none is lost."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from aiopurgatory import COMPILED, Purgatory
from aiopurgatory.core.calls import Calls
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, turns

WAYS = {"check": Purgatory.check_and_complete, "notify": Purgatory.notify}
ways = pytest.mark.parametrize("way", WAYS)


class Jobs:
    """A queue that is read by awaiting. A read that is cancelled, or fails, puts back what it took."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.waiting: list[int] = []
        self.claims = 0
        self.chance = chance
        self.put_back = self.waiting.append
        self.gate = asyncio.Event()
        self.gate.set()

    async def claim(self) -> int | None:
        self.claims += 1
        await self._pause()
        job = self.waiting.pop(0) if self.waiting else None
        try:
            await self._pause()
            if self.chance is not None and self.chance.random() < 0.2:
                raise OSError("the database is away")
        except BaseException:
            if job is not None:
                self.put_back(job)
            raise
        return job

    async def _pause(self) -> None:
        await self.gate.wait()
        for _ in range(1 if self.chance is None else self.chance.randrange(4)):
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


async def test_hand_out_whose_read_has_failed_passes_its_call_on(purgatory: Purgatory) -> None:
    jobs = Jobs()

    async def fail() -> None:
        if jobs.waiting:
            raise OSError

    first = asyncio.create_task(
        purgatory.wait_for(fail, ["jobs"], timeout=None, on_undelivered=jobs.put_back, retry_on=OSError)
    )
    await turns(10)
    second = (await parked(purgatory, jobs, 1, on_undelivered=jobs.put_back))[0]
    jobs.waiting.append(7)
    purgatory.check_and_complete("jobs", limit=1)
    await turns(20)
    assert (first.done(), second.result()) == (False, 7)
    first.cancel()
    await turns(10)


async def test_call_that_nobody_uses_costs_little_for_each_that_reads(purgatory: Purgatory) -> None:
    """Listing all that wait for each of them took 35 times as long as a check without a limit, with 4,000 waits."""
    number, jobs, took = 3_000, Jobs(), list[float]()
    tasks = await parked(purgatory, jobs, number)
    for limit in (None, 1):
        began, before = time.process_time(), jobs.claims
        purgatory.check_and_complete("jobs", limit)
        while jobs.claims - before < number:  # noqa: ASYNC110 nothing reports it
            await asyncio.sleep(0)
        took.append(time.process_time() - began)
    assert took[1] < 12 * took[0]
    for task in tasks:
        task.cancel()
    await turns(10)


@pytest.mark.parametrize("how", ["cancelled", "failed", "deadline"])
async def test_read_that_is_given_up_passes_its_call_on(purgatory: Purgatory, clock: ManualClock, how: str) -> None:
    jobs = Jobs()
    first = (await parked(purgatory, jobs, 1, timeout=5.0, default=None))[0]
    jobs.claims = 0
    second = workers(purgatory, jobs, 1)[0]
    await turns(10)
    jobs.gate.clear()
    jobs.waiting.append(7)
    purgatory.check_and_complete("jobs", limit=1)
    await turns(3)
    if how == "cancelled":
        first.cancel()
    elif how == "failed":
        purgatory.waiting("jobs")[0].fail(OSError())
    else:
        jobs.waiting.clear()
        await clock.advance(5.0)
        jobs.gate.set()
        await turns(30)
        jobs.waiting.append(7)
        purgatory.check_and_complete("jobs", limit=1)
    jobs.gate.set()
    await turns(30)
    assert (first.done(), second.result()) == (True, 7)


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


# the model: jobs, each with a check of limit 1; reads fail, and workers are cancelled, at random


async def is_job_left(seed: int, hands_out: bool = False) -> bool:
    """Args: hands_out: what a worker did not get is put back with a check. Returns: whether a job waits while a worker
    sleeps.
    """
    chance = random.Random(seed)
    jobs = Jobs(chance)
    options: dict[str, Any] = {}
    async with Purgatory() as purgatory:
        if hands_out:
            put = jobs.put_back

            def put_back(job: int) -> None:
                put(job)
                purgatory.notify("jobs", limit=1)

            jobs.put_back = options["on_undelivered"] = put_back
        tasks = workers(purgatory, jobs, 12, **options)
        await turns(20)
        for job in range(1, chance.randrange(2, 9)):
            jobs.waiting.append(job)
            WAYS[chance.choice([*WAYS])](purgatory, "jobs", limit=1)
            for _ in range(chance.randrange(3)):
                chance.choice(tasks).cancel()
            if chance.random() < 0.3:
                tasks += workers(purgatory, jobs, 1, **options)
            await turns(chance.randrange(4))
        await turns(400)
        check_invariants(purgatory)
        is_left = bool(jobs.waiting) and purgatory.num_delayed > 0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return is_left


@pytest.mark.parametrize("hands_out", [False, True])
@pytest.mark.parametrize("part", range(10))
async def test_no_call_is_lost(part: int, hands_out: bool) -> None:
    assert [seed for seed in range(part * 40, part * 40 + 40) if await is_job_left(seed, hands_out)] == []


@pytest.mark.skipif(COMPILED, reason="compiled functions cannot be replaced")
async def test_model_finds_calls_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(Calls, "pass_on", lambda calls, reading: setattr(reading, "call", None))
    monkeypatch.setattr(Calls, "again", lambda calls, keys: None)
    assert len([seed for seed in range(40) if await is_job_left(seed)]) > 5
    assert len([seed for seed in range(40) if await is_job_left(seed, True)]) > 0
