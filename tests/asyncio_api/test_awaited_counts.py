"""Awaited conditions in statistics, observers and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Observer, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Table, begun, turns


class Ends(Observer):
    """The outcome and the lateness of each operation, and how long it waited."""

    def __init__(self) -> None:
        self.all: list[tuple[Outcome, float | None, float]] = []

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.all.append((outcome, lateness, waited))


async def in_last_read(purgatory: Purgatory, table: Table, clock: ManualClock) -> asyncio.Task[Any]:
    """A wait whose deadline has come, and whose last read is under way."""
    waiting = await begun(purgatory, table.read)
    table.gate.clear()
    await clock.advance(5.0)
    await turns(10)
    return waiting


def outcomes(purgatory: Purgatory) -> dict[str, int]:
    """Those that are not 0."""
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


async def test_expire_all_is_no_missed_trigger(purgatory: Purgatory, table: Table) -> None:
    """No check was due: the time of the operation had not come. Its last read follows, as at the deadline."""
    waiting = await begun(purgatory, table.read)
    table.row = "row"
    assert purgatory.expire_all() == 0
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1}


async def test_expire_all_during_the_last_read_changes_nothing(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    waiting = await in_last_read(purgatory, table, clock)
    assert purgatory.expire_all() == 0
    check_invariants(purgatory)
    table.gate.set()
    with pytest.raises(TimeoutError):
        await waiting
    assert (outcomes(purgatory), table.reads) == ({"expired": 1}, 2)


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


@pytest.mark.parametrize("found", [True, False])
async def test_new_deadline_in_the_last_read_has_its_own(
    purgatory: Purgatory, table: Table, clock: ManualClock, found: bool
) -> None:
    """I10: one read begins at the new deadline or later."""
    waiting = await in_last_read(purgatory, table, clock)
    purgatory.reschedule(purgatory.waiting("key")[0], 1.0)
    if found:
        table.row = "row"
    await clock.advance(1.0)
    await turns(10)
    assert (waiting.done(), table.reads) == (False, 2)
    table.gate.set()
    await turns(10)
    check_invariants(purgatory)
    assert (waiting.done(), table.reads) == (True, 3)
    assert outcomes(purgatory) == ({"completed": 1, "missed_triggers": 1} if found else {"expired": 1})
    assert (await waiting if found else waiting.exception()) is not None


@pytest.mark.parametrize("end", ["close", "cancel", "fail"])
async def test_end_during_the_last_read_cancels_it(
    purgatory: Purgatory, table: Table, clock: ManualClock, end: str
) -> None:
    waiting = await in_last_read(purgatory, table, clock)
    check_invariants(purgatory)
    assert (table.reading, purgatory.num_delayed) == (1, 1)
    if end == "close":
        purgatory.close()
    elif end == "cancel":
        waiting.cancel()
    else:
        purgatory.fail_for_key("key", ConnectionError("not leader"))
    await turns(10)
    assert (waiting.done(), table.reading, purgatory.num_delayed) == (True, 0, 0)
    assert outcomes(purgatory) == ({"cancelled": 1} if end == "cancel" else {"failed": 1})
    assert waiting.cancelled() or waiting.exception() is not None


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


@pytest.mark.parametrize("found", [0, 1, 10])
@pytest.mark.parametrize("check", [Purgatory.check_and_complete, Purgatory.notify, Purgatory.notify_threadsafe])
async def test_check_of_ten_waits_is_one_check_and_ten_reads(
    purgatory: Purgatory, found: int, check: Callable[[Purgatory, str], object]
) -> None:
    tables = [Table() for _ in range(10)]
    waits = [await begun(purgatory, table.read) for table in tables]
    for table in tables[:found]:
        table.row = "row"
    check(purgatory, "key")
    await turns(10)
    await turns(10)
    assert sum(wait.done() for wait in waits) == found
    assert (checks(purgatory), reads(purgatory)) == ((1, 0), (10, 10 - found))
    for wait in waits:
        wait.cancel()


class Acts(DelayedOperation[None]):
    """Does something at each check."""

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__(timeout)
        self.act: Callable[[], object] = int

    def try_complete(self) -> bool:
        self.act()
        return False


@pytest.mark.parametrize("checked", [True, False])
async def test_wait_due_before_a_check_of_all_is_not_missed(
    purgatory: Purgatory, clock: ManualClock, checked: bool
) -> None:
    """The check is called for in the same turn, before the deadline is dealt with."""
    found: list[int] = []
    acting = purgatory.watch(Acts(5.0), ["other"])
    waiting = asyncio.create_task(purgatory.wait_for(lambda: found, ["key"], timeout=5.0))
    await turns(10)
    acting.act = purgatory.notify_all if checked else int
    found.append(1)
    await clock.advance(5.0)
    await waiting
    assert outcomes(purgatory) == {"completed": 1, "expired": 1} | ({} if checked else {"missed_triggers": 1})
