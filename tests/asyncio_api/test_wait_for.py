"""wait_for(): a condition instead of an operation of one's own, a plain function or one that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from aiopurgatory import DeadlineError, Purgatory, PurgatoryClosedError, PurgatoryError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Table, begun, turns

Condition: TypeAlias = Callable[[], Any]


@pytest.fixture(params=["plain", "awaited"])
def condition(request: pytest.FixtureRequest, table: Table) -> Condition:
    return table.look if request.param == "plain" else table.read


@pytest.mark.parametrize("timeout", [5.0, None, 0, -0.001])
async def test_value_that_is_there_is_returned_after_one_look(
    purgatory: Purgatory, table: Table, condition: Condition, timeout: float | None
) -> None:
    table.row = [7]
    assert await purgatory.wait_for(condition, ["key"], timeout=timeout) == [7]
    stats = purgatory.statistics()
    assert (table.reads, stats.completed, stats.expired, stats.watched_entries) == (1, 1, 0, 0)


@pytest.mark.parametrize("timeout", [60.0, None])
async def test_check_leads_to_another_look(
    purgatory: Purgatory, table: Table, condition: Condition, timeout: float | None
) -> None:
    waiting = await begun(purgatory, condition, "a", "b", timeout=timeout)
    before = table.reads
    purgatory.check_and_complete("b")
    await turns(10)
    assert (waiting.done(), table.reads) == (False, before + 1)
    table.row = "row"
    await turns(10)
    assert table.reads == before + 1  # nobody has said so
    purgatory.check_and_complete("b")
    check_invariants(purgatory)
    assert await waiting == "row"
    assert purgatory.watched_entries == 0


async def test_deadline_leads_to_a_last_look(
    purgatory: Purgatory, table: Table, condition: Condition, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=5.0))
    await clock.advance(4.999)
    before, table.row = table.reads, "row"  # and nobody is told
    await clock.advance(0.001)
    assert (await waiting, table.reads) == ("row", before + 1)


@pytest.mark.parametrize("false", [None, False])
async def test_no_value_at_the_deadline_is_a_deadline_error(
    purgatory: Purgatory, table: Table, condition: Condition, clock: ManualClock, false: object
) -> None:
    table.row = false
    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=5.0))
    await clock.advance(4.999)
    assert not waiting.done()
    await clock.advance(0.001)
    with pytest.raises(DeadlineError, match=r"^the condition was still false after 5\.0 s$") as caught:
        await waiting
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, PurgatoryError)
    assert (purgatory.statistics().expired, purgatory.watched_entries) == (1, 0)


@pytest.mark.parametrize("timeout", [0, 0.0, -0.001, -5])
async def test_no_time_means_one_look_and_nothing_parked(
    purgatory: Purgatory, table: Table, condition: Condition, timeout: float
) -> None:
    """The remaining time to a deadline may be 0 or negative."""
    with pytest.raises(DeadlineError, match="there was no time to wait"):
        await purgatory.wait_for(condition, ["key"], timeout=timeout)
    assert (table.reads, purgatory.num_delayed, purgatory.watched_entries) == (1, 0, 0)
    check_invariants(purgatory)


@pytest.mark.parametrize("timeout", [5.0, 0.0])
@pytest.mark.parametrize("false", [0, "", []])
async def test_false_value_at_the_deadline_is_named(
    purgatory: Purgatory, table: Table, condition: Condition, clock: ManualClock, false: object, timeout: float
) -> None:
    table.row = false
    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=timeout))
    await clock.advance(5.0)
    with pytest.raises(DeadlineError) as caught:
        await waiting
    assert str(caught.value).endswith(
        f"; it returned {false!r}, which counts as false; if that is a result, return it in a tuple"
    )


async def test_deadline_error_without_a_deadline_names_what_ended_it(purgatory: Purgatory) -> None:
    task = await begun(purgatory, lambda: False, timeout=None)
    assert purgatory.expire_all() == 1
    with pytest.raises(DeadlineError, match=r"^the condition was still false when expire_all\(\) ended it$"):
        await task


@pytest.mark.parametrize("timeout", [5.0, 0])
@pytest.mark.parametrize("default", [None, "nothing"])
async def test_default_is_returned_at_the_deadline(
    purgatory: Purgatory, table: Table, condition: Condition, clock: ManualClock, timeout: float, default: str | None
) -> None:
    waiting = asyncio.create_task(purgatory.wait_for(condition, ["key"], timeout=timeout, default=default))
    await clock.advance(5.0)
    assert await waiting == default
    table.row = 7
    assert await purgatory.wait_for(condition, ["key"], timeout=timeout, default=default) == 7


@pytest.mark.parametrize("error", [LookupError("no such table"), TimeoutError("the database's")], ids=repr)
@pytest.mark.parametrize("timeout", [5.0, 0])
async def test_error_of_the_condition_is_raised(
    purgatory: Purgatory, table: Table, condition: Condition, timeout: float, error: Exception
) -> None:
    table.row = error
    with pytest.raises(type(error)) as caught:
        await purgatory.wait_for(condition, ["key"], timeout=timeout, default="none")
    assert caught.value is error
    assert (purgatory.statistics().failed, purgatory.watched_entries) == (1, 0)


async def test_value_whose_truth_cannot_be_told_fails_the_wait(
    purgatory: Purgatory, table: Table, condition: Condition
) -> None:
    class Undecided:
        def __bool__(self) -> bool:
            raise ValueError("neither true nor false")

    table.row = Undecided()
    with pytest.raises(ValueError, match="neither true nor false"):
        await purgatory.wait_for(condition, ["key"], timeout=5.0)
    assert purgatory.statistics().failed == 1


ENDS: dict[str, tuple[Callable[[Purgatory], object], type[BaseException]]] = {
    "close": (Purgatory.close, PurgatoryClosedError),
    "fail_for_key": (lambda purgatory: purgatory.fail_for_key("key", LookupError()), LookupError),
    "cancel_for_key": (lambda purgatory: purgatory.cancel_for_key("key"), asyncio.CancelledError),
    "cancel the task": (lambda _: None, asyncio.CancelledError),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", ["parked", "reading", "pausing"])
async def test_end_from_outside_leaves_nothing(
    purgatory: Purgatory, table: Table, condition: Condition, when: str, end: str, reported: list[dict[str, Any]]
) -> None:
    if when == "reading":
        table.gate.clear()  # and nothing opens it
    elif when == "pausing":
        table.row = ConnectionError()
    waiting = await begun(purgatory, condition, retry_on=ConnectionError)
    before = table.reads
    ends, error = ENDS[end]
    waiting.cancel() if end == "cancel the task" else ends(purgatory)
    await turns(10)
    assert waiting.done()
    with pytest.raises(error):
        await waiting
    assert (table.reads, table.reading, purgatory.num_delayed, purgatory.watched_entries) == (before, 0, 0, 0)
    assert (purgatory.statistics().timeouts, reported) == (0, [])
    check_invariants(purgatory)


@pytest.mark.parametrize("timeout", [5.0, 0.0])
async def test_what_is_no_function_is_refused(purgatory: Purgatory, table: Table, timeout: float) -> None:
    wrong: Any
    for wrong, said in ((True, "got True"), (table.read(), "got the coroutine of one call; pass the function")):
        with pytest.raises(TypeError, match=rf"^condition must be a function, {said}$"):
            await purgatory.wait_for(wrong, ["key"], timeout=timeout)
    wrong = True
    with pytest.raises(TypeError, match="on_undelivered must be a function, got True"):
        await purgatory.wait_for(table.look, ["key"], timeout=timeout, on_undelivered=wrong)
    assert (table.reads, purgatory.num_delayed, purgatory.statistics().cancelled) == (0, 0, 0)
