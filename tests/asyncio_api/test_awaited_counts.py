"""Awaited conditions in statistics, observers and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Observer, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .test_wait_for_async import Table, settle


class Ends(Observer):
    """The outcome and the lateness of each operation, and how long it waited."""

    def __init__(self) -> None:
        self.all: list[tuple[Outcome, float | None, float]] = []

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.all.append((outcome, lateness, waited))


@pytest.fixture
def table() -> Table:
    return Table()


def start(purgatory: Purgatory, table: Table, *keys: str, timeout: float | None = 5.0) -> asyncio.Task[Any]:
    return asyncio.create_task(purgatory.wait_for(table.read, keys or ("key",), timeout=timeout))


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
    waiting = start(purgatory, table)
    await clock.advance(4.9)
    table.row = "row"
    await clock.advance(0.1)
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1, "missed_triggers": 1}


async def test_last_read_without_news_expires(purgatory: Purgatory, table: Table, clock: ManualClock) -> None:
    waiting = start(purgatory, table)
    await clock.advance(5.0)
    await settle()
    with pytest.raises(TimeoutError):
        await waiting
    assert outcomes(purgatory) == {"expired": 1}


async def test_check_in_time_is_no_missed_trigger(purgatory: Purgatory, table: Table, clock: ManualClock) -> None:
    waiting = start(purgatory, table)
    await clock.advance(4.9)
    table.row = "row"
    purgatory.check_and_complete("key")
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1}


async def test_news_of_a_read_that_a_check_began_are_not_missed(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    """The deadline comes during that read."""
    waiting = start(purgatory, table)
    await settle()
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
    waiting = start(purgatory, table)
    await settle()
    if is_late:
        table.gate.set()
        await settle()
        table.gate.clear()
        table.row = "row"
        await clock.advance(5.0)
        await settle()
    else:
        table.row = "row"
    check(purgatory, "key")
    await clock.advance(0.0 if is_late else 5.0)
    table.gate.set()
    assert (await waiting, table.reads) == ("row", 2)
    assert outcomes(purgatory) == {"completed": 1}


async def test_expire_all_is_no_missed_trigger(purgatory: Purgatory, table: Table) -> None:
    """No check was due: the time of the operation had not come. Its last read follows, as at the deadline."""
    waiting = start(purgatory, table)
    await settle()
    table.row = "row"
    assert purgatory.expire_all() == 0
    assert await waiting == "row"
    assert outcomes(purgatory) == {"completed": 1}


async def test_expire_all_during_the_last_read_changes_nothing(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    waiting = start(purgatory, table)
    await settle()
    table.gate.clear()
    await clock.advance(5.0)
    await settle()
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
    waiting = start(purgatory, table)
    await settle()
    table.gate.clear()
    await clock.advance(5.0)
    await settle()
    assert purgatory.reschedule(purgatory.waiting("key")[0], more)
    table.gate.set()
    await settle()
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
    waiting = start(purgatory, table)
    await settle()
    table.gate.clear()
    await clock.advance(5.0)
    await settle()
    purgatory.reschedule(purgatory.waiting("key")[0], 1.0)
    if found:
        table.row = "row"
    await clock.advance(1.0)
    await settle()
    assert (waiting.done(), table.reads) == (False, 2)
    table.gate.set()
    await settle()
    check_invariants(purgatory)
    assert (waiting.done(), table.reads) == (True, 3)
    assert outcomes(purgatory) == ({"completed": 1, "missed_triggers": 1} if found else {"expired": 1})
    assert (await waiting if found else waiting.exception()) is not None


@pytest.mark.parametrize("end", ["close", "cancel", "fail"])
async def test_end_during_the_last_read_cancels_it(
    purgatory: Purgatory, table: Table, clock: ManualClock, end: str
) -> None:
    waiting = start(purgatory, table)
    await settle()
    table.gate.clear()
    await clock.advance(5.0)
    await settle()
    check_invariants(purgatory)
    assert (table.reading, purgatory.num_delayed) == (1, 1)
    if end == "close":
        purgatory.close()
    elif end == "cancel":
        waiting.cancel()
    else:
        purgatory.fail_for_key("key", ConnectionError("not leader"))
    await settle()
    assert (waiting.done(), table.reading, purgatory.num_delayed) == (True, 0, 0)
    assert outcomes(purgatory) == ({"cancelled": 1} if end == "cancel" else {"failed": 1})
    assert waiting.cancelled() or waiting.exception() is not None


async def test_read_that_raises_fails_the_wait(purgatory: Purgatory) -> None:
    async def read() -> bool:
        raise LookupError("no such table")

    with pytest.raises(LookupError):
        await purgatory.wait_for(read, ["key"], timeout=5.0)
    assert outcomes(purgatory) == {"failed": 1}


async def test_last_read_counts_as_wait_and_not_as_lateness(clock: ManualClock, table: Table) -> None:
    """The time that a database takes is no lateness of the purgatory's."""
    ends = Ends()
    async with Purgatory(clock=clock, observers=[ends]) as purgatory:
        waiting = start(purgatory, table)
        await settle()
        table.gate.clear()
        await clock.advance(7.0)
        table.gate.set()
        with pytest.raises(TimeoutError):
            await waiting
    assert ends.all == [(Outcome.EXPIRED, 0.0, 7.0)]


async def test_debug_missed_trigger_names_the_key(
    clock: ManualClock, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.get_running_loop().set_debug(True)
    async with Purgatory(clock=clock) as purgatory:
        waiting = start(purgatory, table)
        await settle()
        table.row = "row"
        await clock.advance(5.0)
        await waiting
    assert "check_and_complete('key')" in caplog.text


# checks and the reads that they lead to


async def test_check_that_wakes_a_wait_has_an_effect_at_once(purgatory: Purgatory, table: Table) -> None:
    waiting = start(purgatory, table)
    await settle()
    for count in (1, 2, 3):
        purgatory.check_and_complete("key")
        assert checks(purgatory) == (count, 0)
        await settle()
        assert reads(purgatory) == (count, count)
    table.row = "row"
    purgatory.check_and_complete("key")
    await waiting
    assert (checks(purgatory), reads(purgatory)) == ((4, 0), (4, 3))


async def test_read_without_a_check_does_not_count(purgatory: Purgatory, table: Table, clock: ManualClock) -> None:
    """Neither the first, nor the last, at the deadline."""
    waiting = start(purgatory, table)
    await settle()
    table.row = "row"
    await clock.advance(5.0)
    assert (await waiting, table.reads, reads(purgatory)) == ("row", 2, (0, 0))


@pytest.mark.parametrize("found", [0, 1, 10])
@pytest.mark.parametrize("check", [Purgatory.check_and_complete, Purgatory.notify, Purgatory.notify_threadsafe])
async def test_check_of_ten_waits_is_one_check_and_ten_reads(
    purgatory: Purgatory, found: int, check: Callable[[Purgatory, str], object]
) -> None:
    tables = [Table() for _ in range(10)]
    waits = [start(purgatory, table) for table in tables]
    await settle()
    for table in tables[:found]:
        table.row = "row"
    check(purgatory, "key")
    await settle()
    await settle()
    assert sum(wait.done() for wait in waits) == found
    assert (checks(purgatory), reads(purgatory)) == ((1, 0), (10, 10 - found))
    for wait in waits:
        wait.cancel()


async def test_check_in_slices_is_one_check(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        waits = [start(purgatory, Table()) for _ in range(10)]
        acting = purgatory.watch(Acts(), ["other"])
        await settle()
        purgatory.notify("key")
        for _ in range(5):
            await asyncio.sleep(0)
        purgatory.check_and_complete("other")  # between two slices
        assert checks(purgatory) == (2, 1)  # both have begun
        for _ in range(5):
            await settle()
        assert (checks(purgatory), reads(purgatory)) == ((2, 1), (10, 10))
        acting.cancel()
        for wait in waits:
            wait.cancel()


@pytest.mark.parametrize("found", [True, False])
async def test_checks_during_a_read_call_for_one_more(purgatory: Purgatory, table: Table, found: bool) -> None:
    table.gate.clear()
    waiting = start(purgatory, table, "key", "other")
    await settle()
    if found:
        table.row = "row"
    for _ in range(50):
        purgatory.check_and_complete("key")
        purgatory.check_and_complete("other")
    table.gate.set()
    await settle()
    assert (table.reads, checks(purgatory), reads(purgatory)) == (2, (100, 0), (1, 0 if found else 1))
    waiting.cancel()


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_read_cut_off_found_nothing(purgatory: Purgatory, table: Table, end: str) -> None:
    waiting = start(purgatory, table)
    await settle()
    table.gate.clear()
    purgatory.check_and_complete("key")
    await settle()
    assert reads(purgatory) == (0, 0)
    if end == "cancel":
        waiting.cancel()
    else:
        purgatory.close()
    await asyncio.gather(waiting, return_exceptions=True)
    assert reads(purgatory) == (1, 1)


async def test_read_that_fails_found_nothing(purgatory: Purgatory, table: Table) -> None:
    found: list[Exception] = []

    async def read() -> bool:
        if found:
            raise found[0]
        return False

    waiting = asyncio.create_task(purgatory.wait_for(read, ["key"], timeout=5.0))
    await settle()
    found.append(LookupError("no such table"))
    purgatory.check_and_complete("key")
    with pytest.raises(LookupError):
        await waiting
    assert reads(purgatory) == (1, 1)


class Acts(DelayedOperation[None]):
    """Does something at each check."""

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__(timeout)
        self.act: Callable[[], object] = int

    def try_complete(self) -> bool:
        self.act()
        return False


def raise_cancelled() -> None:
    raise asyncio.CancelledError


async def test_check_cut_off_is_made_and_counted_later(purgatory: Purgatory, table: Table) -> None:
    waiting = start(purgatory, table, "key", "other")
    acting = purgatory.watch(Acts(), ["other"])
    await settle()
    acting.act = raise_cancelled
    with pytest.raises(asyncio.CancelledError):
        purgatory.check_and_complete("other")
    with pytest.raises(asyncio.CancelledError):
        acting.result()
    assert checks(purgatory) == (0, 0)
    await settle()
    assert checks(purgatory) == (1, 0)
    waiting.cancel()


@pytest.mark.parametrize("is_soon", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
async def test_check_that_closes_the_purgatory_counts(
    purgatory: Purgatory, table: Table, is_soon: bool, is_shared: bool
) -> None:
    waiting = start(purgatory, table, "key", "other")
    acting = purgatory.watch(Acts(), ["key"])
    await settle()
    acting.act = purgatory.close
    if is_shared:
        purgatory.check_and_complete("other")
    if is_soon:
        purgatory.notify("key")
    else:
        purgatory.check_and_complete("key")
    await asyncio.gather(waiting, return_exceptions=True)
    assert acting.exception() is not None
    assert checks(purgatory)[0] == 1 + is_shared


async def test_close_in_a_check_between_slices_counts_both(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        waits = [start(purgatory, Table()) for _ in range(10)]
        acting = purgatory.watch(Acts(), ["other"])
        await settle()
        acting.act = purgatory.close
        purgatory.notify("key")
        for _ in range(3):
            await asyncio.sleep(0)
        assert checks(purgatory) == (1, 0)
        purgatory.check_and_complete("other")
        await asyncio.gather(*waits, return_exceptions=True)
        assert acting.exception() is not None
        assert checks(purgatory) == (2, 0)  # one of them woke a wait, and one ended *acting*


@pytest.mark.parametrize("checked", [True, False])
async def test_wait_due_before_a_check_of_all_is_not_missed(
    purgatory: Purgatory, clock: ManualClock, checked: bool
) -> None:
    """The check is called for in the same turn, before the deadline is dealt with."""
    found: list[int] = []
    acting = purgatory.watch(Acts(5.0), ["other"])
    waiting = asyncio.create_task(purgatory.wait_for(lambda: found, ["key"], timeout=5.0))
    await settle()
    acting.act = purgatory.notify_all if checked else int
    found.append(1)
    await clock.advance(5.0)
    await waiting
    assert outcomes(purgatory) == {"completed": 1, "expired": 1} | ({} if checked else {"missed_triggers": 1})


async def test_wait_begun_in_a_check_does_not_count_for_it(purgatory: Purgatory, table: Table) -> None:
    """Its first read would come without that check, too."""
    waits: list[asyncio.Task[Any]] = []
    eager: Any = getattr(asyncio, "eager_task_factory", None)  # from Python 3.12 on

    def begin() -> bool:
        waits.append(start(purgatory, table))
        return False

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, *, eager_start: bool = True, **options: Any) -> Any:
        return eager(loop, coro, **options)  # uvloop passes eager_start, which Python 3.13.0 does not know

    # It is watched before the check is through.
    asyncio.get_running_loop().set_task_factory(factory if eager is not None else None)
    other = asyncio.create_task(purgatory.wait_for(begin, ["key"], timeout=5.0))
    await settle()
    for wait in waits:
        wait.cancel()
    await settle()
    purgatory.check_and_complete("key")
    await settle()
    assert (checks(purgatory), reads(purgatory)) == ((1, 1), (0, 0))
    for wait in (*waits, other):
        wait.cancel()
