"""Checks with a limit: with 1, they wake the oldest operation that can complete."""

from __future__ import annotations

import math
import sys
import tracemalloc
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, ended, turns, watch_ready

# check_and_complete(key, limit=...)


@pytest.mark.parametrize("limit", [1, 3, 5, 6, sys.maxsize - 1, 10**30])
async def test_limit_ends_as_many_oldest_first(purgatory: Purgatory, limit: int) -> None:
    ops = watch_ready(purgatory, 5)
    assert purgatory.check_and_complete("key", limit=limit) == min(limit, 5)
    check_invariants(purgatory)
    assert ended(ops) == list(range(min(limit, 5)))
    assert [op.tries for op in ops] == [3] * min(limit, 5) + [2] * max(5 - limit, 0)
    assert purgatory.num_delayed == max(5 - limit, 0)


async def test_limit_copies_no_more_than_the_oldest(purgatory: Purgatory) -> None:
    watch_ready(purgatory, 10_000)
    tracemalloc.start()
    try:
        assert purgatory.check_and_complete("key", limit=1) == 1
        assert tracemalloc.get_traced_memory()[1] < 20_000  # bytes; a list of all has 80,000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", ["check_and_complete", "notify"])
@pytest.mark.parametrize("limit", [0, -1, True, False, "1", 1.5, 1.0, math.nan, [1]], ids=repr)
async def test_limit_bad_is_refused(purgatory: Purgatory, method: str, limit: Any) -> None:
    ops = watch_ready(purgatory, 2)
    with pytest.raises((TypeError, ValueError), match="limit must"):
        getattr(purgatory, method)("key", limit=limit)
    await turns(3)
    assert [(op.tries, op.outcome) for op in ops] == [(2, None)] * 2
    assert purgatory.statistics().checks == 0


@pytest.mark.parametrize(
    ("limits", "expected"), [([1], 1), ([1, 1], 2), ([2, 1, 3], 6), ([1, None], 8), ([None, 1], 8), ([8, 8], 8)]
)
async def test_limit_nested_add_up_and_none_wins(purgatory: Purgatory, limits: list[int | None], expected: int) -> None:
    def check_key(_: Op) -> None:
        answers.extend(purgatory.check_and_complete("key", limit=limit) for limit in limits)
        assert ended(ops) == []

    answers: list[int] = []
    ops = watch_ready(purgatory, 8)
    watch_ready(purgatory, 1, ("outer",), on_complete=check_key)
    assert purgatory.check_and_complete("outer") == 1
    check_invariants(purgatory)
    assert answers == [0] * len(limits)
    assert ended(ops) == list(range(expected))


async def test_limit_with_deferred_purging_skips_the_ended(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, purge_interval=1000) as purgatory:
        ops = watch_ready(purgatory, 3, ("key", "other"))
        ops += watch_ready(purgatory, 3, ("key",))
        for op in ops[:2]:
            op.force_complete()
        assert purgatory.watched_entries > purgatory.num_delayed * 2
        # What an operation with several keys takes may be another's, so the call goes on.
        assert purgatory.check_and_complete("key", limit=1) == 2
        check_invariants(purgatory)
        assert ended(ops) == [0, 1, 2, 3]
        assert purgatory.check_and_complete("other", limit=1) == 0
        assert purgatory.check_and_complete("key", limit=5) == 2
        check_invariants(purgatory)


# notify(key, limit=...)


@pytest.mark.parametrize(("limits", "expected"), [([1] * 5, 5), ([2, 3], 5), ([1, None, 1], 8), ([None, 2], 8)])
async def test_marks_add_up_their_limits_and_none_wins(
    purgatory: Purgatory, limits: list[int | None], expected: int
) -> None:
    ops = watch_ready(purgatory, 8)
    for limit in limits:
        purgatory.notify("key", limit=limit)
    assert ended(ops) == []
    await turns(10)
    check_invariants(purgatory)
    assert ended(ops) == list(range(expected))
    assert purgatory.statistics().checks == 1
    purgatory.notify("key", limit=1)
    await turns(10)
    assert len(ended(ops)) == min(expected + 1, 8)


async def test_notify_limit_in_slices_ends_no_more(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = watch_ready(purgatory, 10)
        for op in ops[:4]:
            op.ready = False
        purgatory.notify("key", limit=3)
        await turns(3)
        assert len(ended(ops)) < 3
        purgatory.notify("other", limit=1)
        await turns(30)
        check_invariants(purgatory)
        assert ended(ops) == [4, 5, 6]
        assert [op.tries for op in ops] == [3] * 7 + [2] * 3
