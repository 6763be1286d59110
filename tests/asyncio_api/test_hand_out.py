"""wait_for() with on_undelivered=: what a predicate has taken is delivered or put back, whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

#: Values that count as false.
FALSE_DATA: list[Any] = [0, 0.0, "", b"", {}, [], ()]


class Undecided:
    """Like an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")

    def __repr__(self) -> str:
        return "undecided"


def taking(jobs: list[Any]) -> Callable[[], Any]:
    return lambda: jobs.pop(0) if jobs else None


@pytest.mark.parametrize("job", [*FALSE_DATA, Undecided(), 1, "job"], ids=repr)
@pytest.mark.parametrize("timeout", [0.0, -1.0, 1.0, None])
async def test_job_at_once_is_delivered(purgatory: Purgatory, job: object, timeout: float | None) -> None:
    jobs, back = [job], list[object]()
    found = await purgatory.wait_for(taking(jobs), ["jobs"], timeout=timeout, on_undelivered=back.append)
    assert found is job
    assert (jobs, back) == ([], [])


@pytest.mark.parametrize("job", [*FALSE_DATA, Undecided()], ids=repr)
async def test_job_at_a_check_is_delivered(purgatory: Purgatory, job: object) -> None:
    jobs, back = list[object](), list[object]()
    task = asyncio.create_task(
        purgatory.wait_for(taking(jobs), ["jobs"], timeout=60.0, on_undelivered=back.append, default="none")
    )
    await asyncio.sleep(0)
    jobs.append(job)
    assert purgatory.check_and_complete("jobs", limit=1) == 1
    assert await task is job
    assert (jobs, back) == ([], [])


@pytest.mark.parametrize("job", FALSE_DATA, ids=repr)
async def test_job_at_the_deadline_is_delivered(purgatory: Purgatory, clock: ManualClock, job: object) -> None:
    jobs = list[object]()
    task = asyncio.create_task(purgatory.wait_for(taking(jobs), ["jobs"], timeout=1.0, on_undelivered=jobs.append))
    await asyncio.sleep(0)
    jobs.append(job)
    await clock.advance(1.0)
    assert await task is job


@pytest.mark.parametrize("job", FALSE_DATA, ids=repr)
async def test_job_of_a_cancelled_task_is_put_back(purgatory: Purgatory, job: object) -> None:
    jobs, back = list[object](), list[object]()
    task = asyncio.create_task(purgatory.wait_for(taking(jobs), ["jobs"], timeout=60.0, on_undelivered=back.append))
    await asyncio.sleep(0)
    jobs.append(job)
    assert purgatory.check_and_complete("jobs") == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (jobs, back) == ([], [job])
    assert purgatory.statistics().undelivered == 1


@pytest.mark.parametrize("nothing", [None, False])
@pytest.mark.parametrize("timeout", [0.0, 1.0])
async def test_nothing_yet_is_waited_for(
    purgatory: Purgatory, clock: ManualClock, nothing: object, timeout: float
) -> None:
    back = list[object]()
    task = asyncio.create_task(
        purgatory.wait_for(lambda: nothing, ["jobs"], timeout=timeout, on_undelivered=back.append)
    )
    await clock.advance(0.999)
    assert task.done() == (timeout == 0.0)
    await clock.advance(0.001)
    with pytest.raises(DeadlineError) as caught:
        await task
    assert "which counts as false" not in str(caught.value)
    assert back == []


@pytest.mark.parametrize("job", [0, "job"])
async def test_job_taken_by_a_predicate_that_ends_the_wait_is_put_back(purgatory: Purgatory, job: object) -> None:
    jobs, back = list[object](), list[object]()

    def take_and_cancel() -> object:
        if not jobs:
            return None
        task.cancel()
        return jobs.pop()

    task = asyncio.create_task(purgatory.wait_for(take_and_cancel, ["jobs"], timeout=60.0, on_undelivered=back.append))
    await asyncio.sleep(0)
    jobs.append(job)
    assert purgatory.check_and_complete("jobs") == 0
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (jobs, back) == ([], [job])
    check_invariants(purgatory)


async def test_put_back_that_raises_after_such_an_end_is_reported(purgatory: Purgatory) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    jobs = list[int]()

    def take_and_cancel() -> int | None:
        if not jobs:
            return None
        task.cancel()
        return jobs.pop()

    def put(job: int) -> None:
        raise ValueError("full")

    task = asyncio.create_task(purgatory.wait_for(take_and_cancel, ["jobs"], timeout=60.0, on_undelivered=put))
    await asyncio.sleep(0)
    jobs.append(7)
    assert purgatory.check_and_complete("jobs") == 0
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [str(context["exception"]) for context in told] == ["full"]


@pytest.mark.parametrize("value", FALSE_DATA, ids=repr)
@pytest.mark.parametrize("timeout", [0.0, 1.0])
async def test_without_it_false_data_is_no_value(
    purgatory: Purgatory, clock: ManualClock, value: object, timeout: float
) -> None:
    task = asyncio.create_task(purgatory.wait_for(lambda: value, ["key"], timeout=timeout, default="none"))
    await clock.advance(1.0)
    assert await task == "none"
