"""Exactly once: an operation has one outcome, even if several ends come in one loop iteration (I5, I6)."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Op, fate, turns

ORDERS = [*permutations(ENDINGS, 2), *permutations(ENDINGS, 3)]


@pytest.mark.parametrize("names", ORDERS, ids="-".join)
async def test_endings_in_one_turn_the_first_wins(purgatory: Purgatory, names: tuple[str, ...]) -> None:
    op = purgatory.watch(Op(60.0), ["a", "b"])
    task = asyncio.create_task(fate(op))
    await turns(1)
    returned = []
    for name in names:
        returned.append(ENDINGS[name].end(purgatory, op))
        check_invariants(purgatory)
    first = ENDINGS[names[0]]
    assert returned[0] or names[0] == "close"
    assert not any(returned[1:])
    assert (op.outcome, op.ran) == (first.outcome, first.ran)
    assert await task == first.seen
    assert op.ran == first.ran
    stats = purgatory.statistics()
    assert (stats.pending, stats.watched_entries, stats.keys, stats.buckets) == (0, 0, 0, 0)
    ended = {"completed": stats.completed, "expired": stats.expired}
    ended |= {"cancelled": stats.cancelled, "failed": stats.failed}
    assert ended == {outcome.value: int(outcome is first.outcome) for outcome in Outcome}


@pytest.mark.parametrize("name", ENDINGS)
async def test_end_of_other_due_in_same_bucket_wins(purgatory: Purgatory, clock: ManualClock, name: str) -> None:
    due = Op(1.0, on_complete=lambda _: ENDINGS[name].end(purgatory, other))
    purgatory.watch(due, ["a"])
    other = purgatory.watch(Op(1.0), ["b"])
    task = asyncio.create_task(fate(other))
    await clock.advance(2.0)
    assert (due.outcome, other.outcome) == (Outcome.EXPIRED, ENDINGS[name].outcome)
    assert other.ran == ENDINGS[name].ran
    assert await task == ENDINGS[name].seen


@pytest.mark.parametrize("name", ["complete", "fail", "cancel"])
async def test_end_keeps_the_neighbours(purgatory: Purgatory, reports: list[BaseException], name: str) -> None:
    before, op, after = (purgatory.watch(Op(60.0), ["shared", key]) for key in "abc")
    ENDINGS[name].end(purgatory, op)
    check_invariants(purgatory)
    assert (purgatory.num_delayed, purgatory.watched_entries, purgatory.statistics().keys) == (2, 4, 3)
    await turns(2)
    reports.clear()
    assert purgatory.cancel_for_key("shared") == [before, after]
