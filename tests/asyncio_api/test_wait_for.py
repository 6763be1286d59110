"""wait_for(): a condition instead of an operation of one's own. For those that are awaited, see test_wait_for_async."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory, PurgatoryClosedError, PurgatoryError
from aiopurgatory.testing import ManualClock, check_invariants


async def test_wait_for_true_at_once_returns_it(purgatory: Purgatory) -> None:
    assert await purgatory.wait_for(lambda: [7], ["key"], timeout=1.0) == [7]
    assert purgatory.statistics().completed == 1


@pytest.mark.parametrize("timeout", [60.0, None])
async def test_wait_for_returns_first_true_value(purgatory: Purgatory, timeout: float | None) -> None:
    records: list[int] = []
    task = asyncio.create_task(purgatory.wait_for(lambda: records[1:], ["a", "b"], timeout=timeout))
    for number in range(3):
        await asyncio.sleep(0)
        records.append(number)
        purgatory.check_and_complete("b")
        check_invariants(purgatory)
    assert await task == [1]
    assert purgatory.watched_entries == 0


async def test_wait_for_at_deadline_raises_timeout_error(purgatory: Purgatory, clock: ManualClock) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: 0, ["key"], timeout=1.0))
    await clock.advance(0.999)
    assert not task.done()
    await clock.advance(0.001)
    with pytest.raises(DeadlineError) as caught:
        await task
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, PurgatoryError)
    assert (purgatory.statistics().expired, purgatory.watched_entries) == (1, 0)


@pytest.mark.parametrize("timeout", [1.0, 0.0])
@pytest.mark.parametrize("value", [0, "", []])
async def test_wait_for_false_data_at_deadline_is_named(
    purgatory: Purgatory, clock: ManualClock, timeout: float, value: object
) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: value, ["key"], timeout=timeout))
    await clock.advance(1.0)
    with pytest.raises(DeadlineError) as caught:
        await task
    assert str(caught.value).endswith(
        f"; it returned {value!r}, which counts as false; if that is a result, return it in a tuple"
    )


async def test_wait_for_false_data_that_was_taken_is_named(purgatory: Purgatory, clock: ManualClock) -> None:
    jobs = [0]  # the condition takes it, and takes it for nothing
    task = asyncio.create_task(purgatory.wait_for(lambda: jobs.pop() if jobs else None, ["key"], timeout=1.0))
    await clock.advance(1.0)
    with pytest.raises(DeadlineError, match=r"; it returned 0, which counts as false; "):
        await task


@pytest.mark.parametrize("value", [None, False])
async def test_wait_for_plain_false_at_deadline_needs_no_hint(
    purgatory: Purgatory, clock: ManualClock, value: object
) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: value, ["key"], timeout=1.0))
    await clock.advance(1.0)
    with pytest.raises(DeadlineError, match=r"^the condition was still false after 1\.0 s$"):
        await task


async def test_wait_for_without_a_deadline_names_what_ended_it(purgatory: Purgatory) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: False, ["key"], timeout=None))
    await asyncio.sleep(0)
    assert purgatory.expire_all() == 1
    with pytest.raises(DeadlineError, match=r"^the condition was still false when expire_all\(\) ended it$"):
        await task


@pytest.mark.parametrize("timeout", [1.0, 0.0])
@pytest.mark.parametrize("default", [None, "nothing"])
async def test_wait_for_default_is_returned_at_the_deadline(
    purgatory: Purgatory, clock: ManualClock, timeout: float, default: str | None
) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: 0, ["key"], timeout=timeout, default=default))
    await clock.advance(1.0)
    assert await task == default
    assert await purgatory.wait_for(lambda: 7, ["key"], timeout=timeout, default=default) == 7


async def test_wait_for_timeout_of_the_condition_is_no_deadline_error(purgatory: Purgatory) -> None:
    def condition() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError) as caught:
        await purgatory.wait_for(condition, ["key"], timeout=1.0, default=None)
    assert not isinstance(caught.value, DeadlineError)


async def test_wait_for_true_at_deadline_returns_it(purgatory: Purgatory, clock: ManualClock) -> None:
    records: list[int] = []
    task = asyncio.create_task(purgatory.wait_for(lambda: records, ["key"], timeout=1.0))
    await clock.advance(0.5)
    records.append(7)
    await clock.advance(0.5)
    assert await task == [7]


async def test_wait_for_condition_raising_raises(purgatory: Purgatory) -> None:
    answers: list[Callable[[], int]] = [lambda: 0, lambda: 0, lambda: 1 // 0]
    task = asyncio.create_task(purgatory.wait_for(lambda: answers.pop(0)(), ["key"], timeout=1.0))
    await asyncio.sleep(0)
    purgatory.check_and_complete("key")
    with pytest.raises(ZeroDivisionError):
        await task
    assert purgatory.watched_entries == 0


async def test_wait_for_cancelled_leaves_nothing(purgatory: Purgatory) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: False, ["key"], timeout=1.0))
    await asyncio.sleep(0)
    task.cancel()
    check_invariants(purgatory)
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_wait_for_closed_meanwhile_raises(purgatory: Purgatory) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: False, ["key"], timeout=1.0))
    await asyncio.sleep(0)
    purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await task


@pytest.mark.parametrize(
    ("keys", "timeout", "error"),
    [("key", 1.0, TypeError), ([], 1.0, ValueError), (["key"], math.nan, ValueError), (["key"], "1", TypeError)],
)
async def test_wait_for_bad_argument_raises(
    purgatory: Purgatory, keys: Any, timeout: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"keys|timeout"):
        await purgatory.wait_for(lambda: True, keys, timeout=timeout)
