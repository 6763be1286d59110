"""Purging: with an interval, an ended operation's entries stay under its other keys until the next sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Op, turns

INTERVAL = 5


@pytest.fixture
async def lazy(clock: ManualClock) -> AsyncIterator[Purgatory]:
    """A purgatory that purges after more than 5 ended operations may have left entries."""
    async with Purgatory(clock=clock, purge_interval=INTERVAL) as purgatory:
        await turns(10)
        yield purgatory
        check_invariants(purgatory)
    check_invariants(purgatory)


@pytest.mark.parametrize("name", ["complete", "cancel", "expire"])
async def test_purge_interval_0_leaves_nothing_stale(purgatory: Purgatory, name: str) -> None:
    for _ in range(10):
        op = purgatory.watch(Op(60.0), ["a", "b"])
        ENDINGS[name].end(purgatory, op)
        check_invariants(purgatory)
        stats = purgatory.statistics()
        assert (stats.watched_entries, stats.keys, stats.estimated_total, stats.purges) == (0, 0, 0, 0)
    assert purgatory.purge() == 0


async def test_end_leaves_entries_for_the_purge(lazy: Purgatory) -> None:
    ops = [lazy.watch(Op(60.0), ["a", "b"]) for _ in range(4)]
    ops[0].force_complete()
    ops[1].ready = True
    assert lazy.check_and_complete("a") == 1  # it unlinks ended operations: two there
    check_invariants(lazy)
    stats = lazy.statistics()
    assert (stats.pending, stats.watched_entries, stats.estimated_total, stats.buckets) == (2, 6, 4, 1)
    assert lazy.purge() == 2
    check_invariants(lazy)
    stats = lazy.statistics()
    assert (stats.pending, stats.watched_entries, stats.estimated_total, stats.purges) == (2, 4, 2, 1)
    assert lazy.purge() == 0


async def test_end_in_first_try_is_not_counted(lazy: Purgatory) -> None:
    for _ in range(20):
        lazy.watch(Op(60.0, ready=True), ["a"])
    await turns(10)
    assert (lazy.statistics().estimated_total, lazy.statistics().purges, lazy.watched_entries) == (0, 0, 0)


async def test_end_in_second_try_is_purged_later(lazy: Purgatory) -> None:
    lazy.watch(Op(60.0, try_complete=lambda op: setattr(op, "ready", op.tries == 2)), ["a", "b"])
    check_invariants(lazy)
    assert (lazy.num_delayed, lazy.watched_entries, lazy.statistics().estimated_total) == (0, 2, 1)
    assert lazy.purge() == 2


@pytest.mark.parametrize("name", ["complete", "cancel", "fail"])
async def test_purge_comes_when_estimate_passes_interval(
    lazy: Purgatory, reports: list[BaseException], name: str
) -> None:
    ops = [lazy.watch(Op(60.0), ["shared", number]) for number in range(10)]
    for op in ops[:INTERVAL]:
        ENDINGS[name].end(lazy, op)
    await turns(10)
    assert (lazy.statistics().purges, lazy.statistics().estimated_total) == (0, 10)
    assert lazy.watched_entries == (10 if name == "cancel" else 20)
    ENDINGS[name].end(lazy, ops[INTERVAL])
    await turns(10)
    check_invariants(lazy)
    stats = lazy.statistics()
    assert (stats.purges, stats.estimated_total, stats.pending, stats.watched_entries, stats.keys) == (1, 4, 4, 8, 5)
    reports.clear()


async def test_cancel_leaves_every_key_at_once(lazy: Purgatory) -> None:
    op = lazy.watch(Op(60.0), ["a", "b", "c"])
    lazy.watch(Op(60.0), ["c"])
    op.cancel()
    check_invariants(lazy)
    assert (lazy.watched_entries, lazy.statistics().keys) == (1, 1)


async def test_stale_entries_are_neither_tried_nor_listed(lazy: Purgatory) -> None:
    stale, op = (lazy.watch(Op(60.0), ["a", "b"]) for _ in range(2))
    stale.force_complete()
    assert (lazy.check_all(), lazy.check_and_complete("a")) == (0, 0)
    assert (stale.tries, op.tries) == (2, 4)
    assert (lazy.expire_all(), stale.ran) == (1, ["on_complete"])
    assert lazy.cancel_for_key("b") == []


async def test_close_drops_stale_entries(lazy: Purgatory) -> None:
    op = lazy.watch(Op(60.0), ["a", "b"])
    op.force_complete()
    lazy.close()
    check_invariants(lazy)
    assert (op.result(), op.ran) == ("result", ["on_complete"])
    assert (lazy.watched_entries, lazy.statistics().keys, lazy.statistics().failed) == (0, 0, 0)


async def test_close_takes_back_a_sweep_that_was_due(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock, purge_interval=INTERVAL)
    async with purgatory:
        for _ in range(INTERVAL + 1):
            purgatory.watch(Op(60.0), ["a", "b"]).force_complete()
    async with purgatory:
        await turns(10)
        assert purgatory.statistics().purges == 0


async def swept_by_turn(purgatory: Purgatory, keys: Sequence[int]) -> list[int]:
    """Watch and end one operation under each of *keys*, and see how many entries are left after each turn."""
    for key in keys:
        purgatory.watch(Op(60.0), [key]).force_complete()
    left = [purgatory.watched_entries]
    while left[-1]:
        await turns(1)
        check_invariants(purgatory)
        left.append(purgatory.watched_entries)
    return left


@pytest.mark.parametrize("keys", [range(100), [0] * 100], ids=["many keys", "one hot key"])
async def test_purge_in_slices_of_the_turn_budget(clock: ManualClock, keys: Sequence[int]) -> None:
    async with Purgatory(clock=clock, purge_interval=99, turn_budget=1e-9) as purgatory:
        await turns(10)
        left = await swept_by_turn(purgatory, keys)
        assert (left[0], purgatory.statistics().purges) == (100, 1)
        assert len(left) > 50
