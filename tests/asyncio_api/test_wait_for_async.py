"""wait_for() with conditions that have to be awaited. What every condition does, see test_wait_for."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from inspect import CORO_CLOSED, getcoroutinestate
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest

from aiopurgatory import DeadlineError, Purgatory, PurgatoryFullError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op, Table, begun, turns


async def test_check_during_a_read_is_not_missed(purgatory: Purgatory, table: Table) -> None:
    table.gate.clear()
    waiting = await begun(purgatory, table.read)
    table.row = "row"  # too late for the read that is under way
    for _ in range(100):
        purgatory.check_and_complete("key")
    table.gate.set()
    assert await waiting == "row"
    assert table.reads == 2


async def test_deadline_during_a_read_reads_once_more(purgatory: Purgatory, table: Table, clock: ManualClock) -> None:
    table.gate.clear()
    waiting = asyncio.create_task(purgatory.wait_for(table.read, ["key"], timeout=5.0))
    await clock.advance(5.0)
    table.row = "row"
    assert not waiting.done()
    table.gate.set()
    assert (await waiting, table.reads) == ("row", 2)


@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_at_any_turn_leaves_nothing(purgatory: Purgatory, table: Table, steps: int) -> None:
    waiting = asyncio.create_task(purgatory.wait_for(table.read, ["key", "other"], timeout=5.0))
    for turn in range(steps):
        if turn == 3:
            purgatory.check_and_complete("other")
        if turn == 5:
            table.row = "row"
            purgatory.check_and_complete("key")
        await asyncio.sleep(0)
    waiting.cancel()
    await turns(10)
    assert waiting.cancelled() or waiting.result() == "row"
    assert (purgatory.num_delayed, purgatory.watched_entries, table.reading) == (0, 0, 0)
    check_invariants(purgatory)


async def test_retry_on_keeps_it_parked_until_the_next_check(purgatory: Purgatory, table: Table) -> None:
    table.row, table.errors = "row", [ConnectionError(), ConnectionError()]
    waiting = await begun(purgatory, table.read, timeout=60.0, retry_on=(ConnectionError, TimeoutError))
    assert (waiting.done(), table.reads, purgatory.num_delayed) == (False, 1, 1)
    purgatory.check_and_complete("key")
    await turns(10)
    assert table.reads == 2
    purgatory.check_and_complete("key")
    assert (await waiting, table.reads) == ("row", 3)
    statistics = purgatory.statistics()
    assert (statistics.completed, statistics.failed, statistics.timeouts) == (1, 0, 0)
    assert (statistics.reads, statistics.reads_in_vain) == (2, 1)
    check_invariants(purgatory)


async def test_retry_on_reads_again_after_growing_pauses(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    table.row, table.errors = "row", [ConnectionError() for _ in range(12)]
    waiting = asyncio.create_task(purgatory.wait_for(table.read, ["key"], timeout=None, retry_on=ConnectionError))
    times = []
    while not waiting.done():
        reads = table.reads
        await clock.advance(0.01)
        times += [clock.time()] * (table.reads - reads)
    pauses = [after - before for before, after in pairwise(times)]
    longest = [min(0.1 * 2**number, 10.0) for number in range(12)]
    assert await waiting == "row"
    for pause, most in zip(pauses, longest, strict=True):
        assert most / 2 - 0.011 <= pause <= most + 0.021
    assert purgatory.statistics().missed_triggers == 0


async def test_retry_on_error_of_the_last_read_is_the_cause(
    purgatory: Purgatory, table: Table, clock: ManualClock
) -> None:
    errors: list[Exception] = [ConnectionError(str(number)) for number in range(100)]
    table.errors = errors[:]
    waiting = await begun(purgatory, table.read, retry_on=ConnectionError)
    await clock.advance(5.0)
    await turns(10)
    with pytest.raises(DeadlineError) as caught:
        await waiting
    assert caught.value.__cause__ is errors[table.reads - 1]
    assert purgatory.statistics().expired == 1


async def test_other_errors_are_raised_at_once(purgatory: Purgatory, table: Table) -> None:
    table.errors = [ConnectionError(), LookupError("no such table")]
    waiting = await begun(purgatory, table.read, retry_on=ConnectionError)
    purgatory.check_and_complete("key")
    with pytest.raises(LookupError):
        await waiting


@pytest.mark.parametrize("timeout", [5.0, 0])
async def test_default_is_returned_if_the_last_read_failed(
    purgatory: Purgatory, table: Table, clock: ManualClock, timeout: float
) -> None:
    table.row = ConnectionError()
    waiting = await begun(purgatory, table.read, timeout=timeout, retry_on=ConnectionError, default="none")
    await clock.advance(5.0)
    await turns(10)
    assert await waiting == "none"


@pytest.mark.parametrize("wrong", [7, asyncio.CancelledError, (ConnectionError, "x"), [ConnectionError]])
async def test_wrong_retry_on_is_named(purgatory: Purgatory, table: Table, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^retry_on must be a subclass of Exception, or a tuple of them, got"):
        await purgatory.wait_for(table.read, ["key"], timeout=5.0, retry_on=wrong)
    assert table.reads == 0


# which conditions are awaited


class Asked:
    """Has an ``async def __call__()``."""

    def __init__(self, table: Table) -> None:
        self.table = table

    async def __call__(self) -> Any:
        return await self.table.read()


class Query:
    """Is awaitable, but no coroutine: a driver's own class."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __await__(self) -> Generator[Any, None, Any]:
        return self.table.read().__await__()


CONDITIONS: dict[str, Callable[[Table], Callable[[], Any]]] = {
    "async def": lambda table: table.read,
    "lambda": lambda table: lambda: table.read(),
    "partial": lambda table: partial(Table.read, table),
    "async __call__": Asked,
    "awaitable": lambda table: partial(Query, table),
    "task": lambda table: lambda: asyncio.ensure_future(table.read()),
}


@pytest.mark.parametrize("kind", CONDITIONS)
@pytest.mark.parametrize("timeout", [5.0, None, 0])
async def test_whatever_can_be_awaited_is(purgatory: Purgatory, table: Table, kind: str, timeout: float | None) -> None:
    condition = CONDITIONS[kind](table)
    waiting = await begun(purgatory, condition, timeout=timeout, default="none")
    assert (waiting.done(), table.reads) == (timeout == 0, 1)
    table.row = "row"
    purgatory.check_and_complete("key")
    assert await waiting == ("none" if timeout == 0 else "row")
    assert await purgatory.wait_for(condition, ["key"], timeout=timeout) == "row"


async def test_first_call_is_the_first_read(purgatory: Purgatory, table: Table) -> None:
    calls: list[int] = []

    def condition() -> Awaitable[Any]:
        calls.append(purgatory.num_delayed)
        return table.read()

    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=5.0))
    await asyncio.sleep(0)
    assert (calls, purgatory.num_delayed, table.reads) == ([0], 1, 1)
    table.row = "row"
    purgatory.check_and_complete("key")
    assert (await waiting, calls) == ("row", [0, 1])


async def test_awaitable_that_a_read_returns_is_the_value(purgatory: Purgatory) -> None:
    inner = asyncio.get_running_loop().create_future()

    async def condition() -> asyncio.Future[int]:
        return inner

    assert await purgatory.wait_for(condition, ["key"], timeout=5.0) is inner
    assert await purgatory.wait_for(condition, ["key"], timeout=0) is inner


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("kind", "hands_out"), [("coroutine", False), ("Future", False), ("Future", True)])
async def test_awaitable_at_a_later_call_is_refused(
    purgatory: Purgatory, table: Table, kind: str, hands_out: bool
) -> None:
    """A coroutine is closed, a future left alone, or put back: whether to await is decided at the first call."""
    inner: Any = table.read() if kind == "coroutine" else asyncio.get_running_loop().create_future()
    answers, back = [None, None, inner], list[object]()
    waiting = await begun(purgatory, lambda: answers.pop(0), **({"on_undelivered": back.append} if hands_out else {}))
    assert purgatory.check_and_complete("key") == 1
    said = rf"^condition must return an awaitable at its first call or never, got <{kind} .*or return a result in a tup"
    with pytest.raises(TypeError, match=said):
        await waiting
    assert (back, purgatory.num_delayed, purgatory.watched_entries) == ([inner] * hands_out, 0, 0)
    assert getcoroutinestate(inner) == CORO_CLOSED if kind == "coroutine" else not inner.done()


class Anything:
    """Has every attribute, as a proxy of a remote object does."""

    def __getattr__(self, name: str) -> object:
        return self


@pytest.mark.parametrize("value", [Anything(), Query])
@pytest.mark.parametrize("timeout", [5.0, 0])
async def test_value_that_only_looks_awaitable_is_returned(purgatory: Purgatory, value: object, timeout: float) -> None:
    assert await purgatory.wait_for(lambda: value, ["key"], timeout=timeout) is value


@pytest.mark.filterwarnings("error")
async def test_full_purgatory_closes_what_the_first_call_returned(clock: ManualClock, table: Table) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        first = await begun(purgatory, table.read)
        task = asyncio.ensure_future(table.read())
        coroutine = table.read()
        for started in (coroutine, task):
            with pytest.raises(PurgatoryFullError):
                await purgatory.wait_for(lambda: started, ["key"], timeout=5.0)  # noqa: B023
        await turns(10)
        assert (getcoroutinestate(coroutine), task.cancelled(), table.reads) == (CORO_CLOSED, True, 1)
        first.cancel()
        await turns(10)
    gc.collect()


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("how", ["found", "full", "close", "cancel", "deadline"])
async def test_condition_is_freed_with_the_wait(clock: ManualClock, how: str) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        table = Table()
        freed = ref(table)
        table.row = "row" if how == "found" else None
        if how == "full":
            purgatory.watch(Op(), ["key"])
        waiting = asyncio.create_task(purgatory.wait_for(table.read, ["key"], timeout=5.0))
        del table
        await turns(10)
        if how == "close":
            purgatory.close()
        elif how == "cancel":
            waiting.cancel()
        await clock.advance(6.0)
        await turns(10)
        assert waiting.done()
        assert waiting.cancelled() or waiting.exception() or how == "found"
        del waiting
        await turns(10)
        assert freed() is None


# every


@pytest.mark.parametrize("is_async", [False, True])
async def test_every_calls_at_least_so_often(
    purgatory: Purgatory, table: Table, clock: ManualClock, is_async: bool
) -> None:
    calls: list[float] = []

    def condition() -> Any:
        calls.append(clock.time())
        return table.read() if is_async else table.row

    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=500.0, every=10.0))
    while clock.time() < 100.0:
        await clock.advance(0.01)
    pauses = [after - before for before, after in pairwise(calls)]
    assert 7.48 <= min(pauses) < max(pauses) <= 10.02
    table.row = "row"  # and nobody is told
    await clock.advance(10.02)
    assert await waiting == "row"
    found = purgatory.statistics()
    assert (found.missed_triggers, found.reads, found.pending, found.timeouts) == (0, 0, 0, 0)


@pytest.mark.parametrize(("wrong", "error"), [(0, ValueError), (-1.0, ValueError), ("1", TypeError)])
async def test_wrong_every_is_named(purgatory: Purgatory, table: Table, wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^every must be "):
        await purgatory.wait_for(table.read, ["key"], timeout=5.0, every=wrong)


# a function with retry_on


@pytest.mark.parametrize("is_async", [False, True])
async def test_retry_on_survives_a_first_call_that_raises(purgatory: Purgatory, table: Table, is_async: bool) -> None:
    errors: list[Exception] = [ConnectionError()]

    def condition() -> Any:
        if errors:
            raise errors.pop()
        return table.read() if is_async else table.row

    waiting = await begun(purgatory, condition, retry_on=ConnectionError)
    assert (waiting.done(), errors, purgatory.num_delayed) == (False, [], 1)
    table.row = "row"
    purgatory.check_and_complete("key")
    assert await waiting == "row"
    assert purgatory.statistics().completed == 1
    check_invariants(purgatory)


async def test_retry_on_survives_an_error_of_a_function_in_no_time(purgatory: Purgatory) -> None:
    def condition() -> int:
        raise ConnectionError("down")

    assert await purgatory.wait_for(condition, ["key"], timeout=0, retry_on=ConnectionError, default=7) == 7
    with pytest.raises(DeadlineError) as caught:
        await purgatory.wait_for(condition, ["key"], timeout=0, retry_on=ConnectionError)
    assert isinstance(caught.value.__cause__, ConnectionError)
