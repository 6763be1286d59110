"""Awaited conditions in statistics, observers and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Table, begun, turns


class Ends(Observer):
    """The outcome and the lateness of each operation, and how long it waited."""

    def __init__(self) -> None:
        self.all: list[tuple[Outcome, float | None, float]] = []

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.all.append((outcome, lateness, waited))


async def in_last_read(
    purgatory: Purgatory, table: Table, clock: ManualClock, row: str | None = None
) -> asyncio.Task[Any]:
    """A wait whose deadline has come, and whose last read, which finds *row*, is under way."""
    waiting = await begun(purgatory, table.read)
    table.row = row
    table.gate.clear()
    await clock.advance(5.0)
    await turns(10)
    return waiting


def outcomes(purgatory: Purgatory) -> dict[str, int]:
    """The counts above 0."""
    found = purgatory.statistics()
    names = ("completed", "expired", "cancelled", "failed", "missed_triggers")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


def checks(purgatory: Purgatory) -> tuple[int, int]:
    """How many checks are counted, and how many of them were without effect."""
    found = purgatory.statistics()
    return found.checks, found.checks_without_effect


def reads(purgatory: Purgatory) -> tuple[int, int]:
    """How many reads checks have called for, and how many of them found nothing."""
    found = purgatory.statistics()
    return found.reads, found.reads_in_vain


# missed triggers


async def test_news_found_by_the_last_read_is_a_missed_trigger(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    waiting = await begun(purgatory, table.read)
    await clock.advance(4.9)
    table.row = "row"
    await clock.advance(0.1)
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1, "missed_triggers": 1}


async def test_news_of_a_read_that_a_check_began_are_not_missed(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    """The deadline comes during that read."""
    waiting = await begun(purgatory, table.read)
    table.row = "row"
    table.gate.clear()
    purgatory.check_and_complete("key")
    await clock.advance(5.0)
    table.gate.set()
    assert (await waiting, table.reads) == ("row", 2)
    assert outcomes(purgatory) == {"completed": 1}


@pytest.mark.parametrize("check", [Purgatory.check_and_complete, Purgatory.notify])
@pytest.mark.parametrize("is_late", [False, True])
async def test_check_during_a_read_is_no_missed_trigger(
    purgatory: Purgatory, table: Table, clock: ManualClock, check: Callable[[Purgatory, str], object], is_late: bool
) -> None:
    """In the read before the last, or in the last."""
    table.gate.clear()
    waiting = await begun(purgatory, table.read)
    if is_late:
        table.gate.set()
        await turns(10)
        table.gate.clear()
        table.row = "row"
        await clock.advance(5.0)
        await turns(10)
    else:
        table.row = "row"
    check(purgatory, "key")
    await clock.advance(0.0 if is_late else 5.0)
    table.gate.set()
    assert (await waiting, table.reads) == ("row", 2)
    assert outcomes(purgatory) == {"completed": 1}


@pytest.mark.parametrize(("is_completed", "missed"), [(True, {}), (False, {"missed_triggers": 1})])
async def test_complete_for_key_in_the_last_read_is_no_missed_trigger(
    purgatory: Purgatory, table: Table, clock: ManualClock, is_completed: bool, missed: dict[str, int]
) -> None:
    waiting = await in_last_read(purgatory, table, clock, "row")
    if is_completed:
        assert len(purgatory.complete_for_key("key")) == 1
    table.gate.set()
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1} | missed


async def test_expire_all_is_no_missed_trigger(purgatory: Purgatory, table: Table) -> None:
    """No check was due: the time of the operation had not come. Its last read follows, as at the deadline."""
    waiting = await begun(purgatory, table.read)
    table.row = "row"
    assert purgatory.expire_all() == 0
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1}


@pytest.mark.parametrize("more", [1.0, None])
async def test_reschedule_during_the_last_read_goes_on(
    purgatory: Purgatory, table: Table, clock: ManualClock, more: float | None
) -> None:
    waiting = await in_last_read(purgatory, table, clock)
    assert purgatory.reschedule(purgatory.waiting("key")[0], more)
    table.gate.set()
    await turns(10)
    check_invariants(purgatory)
    assert (waiting.done(), purgatory.num_delayed) == (False, 1)
    table.row = "row"
    if more is None:
        purgatory.check_and_complete("key")
    else:
        await clock.advance(more)
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1} | ({} if more is None else {"missed_triggers": 1})


async def test_last_read_counts_as_wait_and_not_as_lateness(clock: ManualClock, table: Table) -> None:
    """The time that a database takes is no lateness of the purgatory's."""
    ends = Ends()
    async with Purgatory(clock=clock, observers=[ends]) as purgatory:
        waiting = await begun(purgatory, table.read)
        table.gate.clear()
        await clock.advance(7.0)
        table.gate.set()
        with pytest.raises(TimeoutError):
            await waiting
    assert ends.all == [(Outcome.EXPIRED, 0.0, 7.0)]


# checks and the reads that they lead to


async def test_check_that_wakes_a_wait_has_an_effect_at_once(purgatory: Purgatory, table: Table) -> None:
    waiting = await begun(purgatory, table.read)
    for count in (1, 2, 3):
        purgatory.check_and_complete("key")
        assert checks(purgatory) == (count, 0)
        await turns(10)
        assert reads(purgatory) == (count, count)
    table.row = "row"
    purgatory.check_and_complete("key")
    await waiting
    assert (checks(purgatory), reads(purgatory)) == ((4, 0), (4, 3))


async def test_read_without_a_check_does_not_count(purgatory: Purgatory, table: Table, clock: ManualClock) -> None:
    """Neither the first, nor the last, at the deadline."""
    waiting = await begun(purgatory, table.read)
    table.row = "row"
    await clock.advance(5.0)
    assert (await waiting, table.reads, reads(purgatory)) == ("row", 2, (0, 0))
