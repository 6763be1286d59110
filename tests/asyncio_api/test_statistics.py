"""statistics(), the gauges, and the repr."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .parts import Op


async def test_statistics_count_every_end(purgatory: Purgatory, clock: ManualClock) -> None:
    ops = [purgatory.watch(Op(10.0), ["a", number]) for number in range(8)]
    ops[0].ready = True
    ops[1].force_complete()
    ops[2].cancel()
    ops[3].fail(ValueError("lost"))
    ops[3].exception()
    purgatory.check_and_complete("a")
    purgatory.watch(Op(9.0), ["a", "b"])
    await clock.advance(9.0)
    found = dataclasses.asdict(purgatory.statistics())
    ended = {"completed": 2, "expired": 1, "cancelled": 1, "failed": 1, "checks": 1}
    left = {"pending": 4, "watched_entries": 8, "keys": 5, "estimated_total": 4, "buckets": 1, "levels": 4}
    others = {"name": "test", "pending_by_level": (0, 0, 4, 0)}
    varying = {"cascaded", "wakeups", "longest_turn"}
    assert {name: value for name, value in found.items() if value and name not in varying} == ended | left | others
    assert (purgatory.num_delayed, purgatory.watched_entries) == (4, 8)


async def test_statistics_count_checks_that_did_something(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(), ["a", "b"])
    purgatory.check_and_complete("nobody")  # which does not count
    purgatory.check_and_complete("a")
    purgatory.check_all()
    op.ready = True
    purgatory.check_and_complete("b")
    purgatory.check_and_complete("b")
    stats = purgatory.statistics()
    assert (stats.checks, stats.checks_without_effect) == (3, 2)


@pytest.mark.parametrize("soon", [Purgatory.notify, Purgatory.notify_threadsafe])
async def test_statistics_count_a_walk_once_however_it_is_asked_for(
    purgatory: Purgatory, clock: ManualClock, soon: Callable[[Purgatory, str], None]
) -> None:
    for _ in range(100):
        purgatory.watch(Op(), ["key"])
    soon(purgatory, "key")
    await clock.advance(0)
    stats = purgatory.statistics()
    assert (stats.checks, stats.checks_without_effect) == (1, 1)
    purgatory.watch(Op(), ["key"]).ready = True
    soon(purgatory, "key")
    await clock.advance(0)
    stats = purgatory.statistics()
    assert (stats.checks, stats.checks_without_effect) == (2, 1)


async def test_statistics_longest_turn_takes_in_the_hooks() -> None:
    class Slow(Op):
        def on_expiration(self) -> None:
            until = time.perf_counter() + 0.01
            while time.perf_counter() < until:
                pass

    async with Purgatory() as purgatory:
        await purgatory.watch(Slow(0.0), ["key"])
        await asyncio.sleep(0)
        assert purgatory.statistics().longest_turn >= 0.01


async def test_repr_shows_name_state_and_counts(clock: ManualClock) -> None:
    purgatory = Purgatory("fetch", clock=clock)
    assert "'fetch' new" in repr(purgatory)
    async with purgatory:
        purgatory.watch(Op(1.0), ["a", "b"])
        assert "'fetch' open pending=1 keys=2" in repr(purgatory)
    assert "'fetch' closed pending=0 keys=0" in repr(purgatory)
