"""Purgatories and long polls as targets of a bus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.bus.targets import Target
from aiopurgatory.testing import ManualClock, MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling

from .waits import Recorder, until


class Counter:
    """A Source."""

    value = 0

    def version(self, resource: str) -> str:
        return str(self.value)

    def read(self, resource: str, since: str | None, version: str) -> bytes:
        return version.encode()


async def parked(polling: LongPolling[str], resource: str) -> asyncio.Task[int]:
    async def poll() -> int:
        headers = {"prefer": "wait=60", "if-none-match": '"0"'}
        return (await polling.answer(resource, headers)).status

    task = asyncio.create_task(poll())
    await until(lambda: polling.purgatory.num_delayed > 0)
    await asyncio.sleep(0.01)
    return task


def test_purgatory_and_long_polling_are_targets() -> None:
    purgatory = Purgatory()
    assert isinstance(purgatory, Target)
    assert isinstance(LongPolling(purgatory, Counter()), Target)


async def test_long_polls_are_answered_by_another_process(clock: ManualClock) -> None:
    server, source = MemoryServer(), Counter()
    async with Purgatory() as purgatory, MemoryBus(server, []) as one:
        polling = LongPolling(purgatory, source)
        async with MemoryBus(server, [polling]) as other:
            poll = await parked(polling, "a")
            source.value = 1
            one.publish("a")
            assert await asyncio.wait_for(poll, 5.0) == 200
            source.value = 0
            poll = await parked(polling, "a")
            other.lose()
            source.value = 1
            one.publish("a")
            await other.gap()
            assert await asyncio.wait_for(poll, 5.0) == 200


async def test_notify_all_answers_every_poll(purgatory: Purgatory) -> None:
    source = Counter()
    polling = LongPolling(purgatory, source)
    polls = [await parked(polling, "a"), await parked(polling, "b")]
    source.value = 1
    polling.notify_all()
    assert [await poll for poll in polls] == [200, 200]


class Wait(DelayedOperation[None]):
    ready = False

    def try_complete(self) -> bool:
        return Wait.ready and self.force_complete()


async def iterations_to_end_all(turn_budget: float) -> int:
    """Return the loop iterations in which 100,000 waiters end after a gap."""
    server = MemoryServer()
    async with (
        Purgatory(turn_budget=turn_budget) as purgatory,
        MemoryBus(server, [purgatory], heartbeat=60.0, timeout=60.0) as bus,
    ):
        Wait.ready = False
        for number in range(100_000):
            purgatory.watch(Wait(600.0), [number])
        Wait.ready = True
        gap = asyncio.create_task(bus.gap())
        ended: set[int] = set()
        while purgatory.num_delayed or not gap.done():
            await asyncio.sleep(0)
            ended.add(purgatory.statistics().completed)
        assert purgatory.statistics().completed == 100_000
        return len(ended)


@pytest.mark.slow
async def test_gap_with_many_waiters_is_sliced() -> None:
    """Other tasks run in between. The control has a budget that is never used up."""
    assert await iterations_to_end_all(0.001) > 20
    assert await iterations_to_end_all(1000.0) <= 3


async def test_target_that_raises_costs_no_other_key(reported: list[dict[str, Any]]) -> None:
    """This holds for CancelledError, too: a check may end an operation with one."""

    class Fails(Recorder):
        def notify(self, key: object, limit: int | None = None) -> None:
            super().notify(key)
            if key == "bad":
                raise asyncio.CancelledError

    server, there = MemoryServer(), Fails()
    async with MemoryBus(server, []) as one, MemoryBus(server, [there]) as other:
        for key in ("x", "bad", "y"):
            one.publish(key)
        await until(lambda: "y" in there.keys)
        assert (there.keys, other.statistics().gaps) == (["x", "bad", "y"], 0)
    assert [type(context["exception"]) for context in reported] == [asyncio.CancelledError]
