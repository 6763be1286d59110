"""Purging: with an interval, an ended operation's entries stay under its other keys until the next sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, turns

INTERVAL = 5


@pytest.fixture
async def lazy(clock: ManualClock) -> AsyncIterator[Purgatory]:
    """A purgatory that purges after more than 5 ended operations may have left entries."""
    async with Purgatory(clock=clock, purge_interval=INTERVAL) as purgatory:
        await turns(10)
        yield purgatory
        check_invariants(purgatory)
    check_invariants(purgatory)


async def test_cancel_leaves_every_key_at_once(lazy: Purgatory) -> None:
    op = lazy.watch(Op(60.0), ["a", "b", "c"])
    lazy.watch(Op(60.0), ["c"])
    op.cancel()
    check_invariants(lazy)
    assert (lazy.watched_entries, lazy.statistics().keys) == (1, 1)


async def test_close_takes_back_a_sweep_that_was_due(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock, purge_interval=INTERVAL)
    async with purgatory:
        for _ in range(INTERVAL + 1):
            purgatory.watch(Op(60.0), ["a", "b"]).force_complete()
    async with purgatory:
        await turns(10)
        assert purgatory.statistics().purges == 0


@pytest.mark.parametrize("keys", [range(100), [0] * 100], ids=["many keys", "one hot key"])
async def test_purge_in_slices_of_the_turn_budget(clock: ManualClock, keys: Sequence[int]) -> None:
    async with Purgatory(clock=clock, purge_interval=99, turn_budget=1e-9) as purgatory:
        await turns(10)
        for key in keys:
            purgatory.watch(Op(60.0), [key]).force_complete()
        left = [purgatory.watched_entries]
        while left[-1]:
            await turns(1)
            check_invariants(purgatory)
            left.append(purgatory.watched_entries)
        assert (left[0], purgatory.statistics().purges) == (100, 1)
        assert len(left) > 50
