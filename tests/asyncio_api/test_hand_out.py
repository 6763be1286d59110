"""wait_for() with on_undelivered=: what a condition has taken is delivered or put back, whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import begun, turns

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


class Desk:
    """Hands out jobs after some iterations."""

    def __init__(self, *jobs: Any) -> None:
        self.jobs, self.back = list(jobs), list[Any]()

    async def take(self) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        return self.jobs.pop(0) if self.jobs else None


is_awaited = pytest.mark.parametrize("is_awaited", [True, False], ids=["awaited", "plain"])


@is_awaited
@pytest.mark.parametrize("job", [*FALSE_DATA, Undecided(), 1, "job"], ids=repr)
@pytest.mark.parametrize("timeout", [0.0, -1.0, 1.0, None])
@pytest.mark.parametrize("retry_on", [(), ConnectionError])
async def test_job_at_once_is_delivered(
    purgatory: Purgatory, job: object, timeout: float | None, retry_on: Any, is_awaited: bool
) -> None:
    desk = Desk(job)
    take = desk.take if is_awaited else taking(desk.jobs)
    found = await purgatory.wait_for(
        take, ["jobs"], timeout=timeout, on_undelivered=desk.back.append, retry_on=retry_on
    )
    assert found is job
    assert (desk.jobs, desk.back, purgatory.statistics().undelivered) == ([], [], 0)


@is_awaited
@pytest.mark.parametrize("job", [*FALSE_DATA, Undecided()], ids=repr)
@pytest.mark.parametrize("way", ["check", "deadline"])
async def test_job_of_a_later_try_is_delivered(
    purgatory: Purgatory, clock: ManualClock, job: object, way: str, is_awaited: bool
) -> None:
    desk = Desk()
    take = desk.take if is_awaited else taking(desk.jobs)
    task = await begun(purgatory, take, "jobs", timeout=1.0, on_undelivered=desk.back.append, default="none")
    desk.jobs.append(job)
    if way == "check":
        assert purgatory.check_and_complete("jobs", limit=1) == (not is_awaited)
    else:
        await clock.advance(1.0)
    assert await task is job
    assert (desk.jobs, desk.back) == ([], [])


@pytest.mark.parametrize("job", FALSE_DATA, ids=repr)
@pytest.mark.parametrize("gives_back", [True, False])
async def test_job_of_a_cancelled_task_is_put_back(purgatory: Purgatory, job: object, gives_back: bool) -> None:
    jobs, back = list[object](), list[object]()
    options: dict[str, Any] = {"on_undelivered": back.append} if gives_back else {}
    task = await begun(purgatory, taking(jobs), "jobs", **options)
    jobs.append(job if gives_back else "job")  # without a function, false data is no value
    assert purgatory.check_and_complete("jobs") == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (jobs, back) == ([], [job] * gives_back)
    assert purgatory.statistics().undelivered == 1


@pytest.mark.parametrize("nothing", [None, False])
@pytest.mark.parametrize("timeout", [0.0, 1.0])
async def test_nothing_yet_is_waited_for(
    purgatory: Purgatory, clock: ManualClock, nothing: object, timeout: float
) -> None:
    back = list[object]()
    task = await begun(purgatory, lambda: nothing, "jobs", timeout=timeout, on_undelivered=back.append)
    await clock.advance(0.999)
    assert task.done() == (timeout == 0.0)
    await clock.advance(0.001)
    with pytest.raises(DeadlineError) as caught:
        await task
    assert "which counts as false" not in str(caught.value)
    assert back == []


@pytest.mark.parametrize("end", ["expire_all", "complete_for_key", "none"])
async def test_nothing_taken_is_not_put_back(purgatory: Purgatory, end: str) -> None:
    back = list[object]()
    task = await begun(purgatory, lambda: None, "jobs", on_undelivered=back.append)
    if end == "expire_all":
        assert purgatory.expire_all() == 1
    elif end == "complete_for_key":
        assert len(purgatory.complete_for_key("jobs")) == 1
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), back) == (True, [])


@pytest.mark.parametrize("job", [0, "job"])
@pytest.mark.parametrize("is_full", [True, False])
async def test_job_taken_by_a_condition_that_ends_the_wait_is_put_back(
    purgatory: Purgatory, job: object, is_full: bool, reported: list[dict[str, Any]]
) -> None:
    jobs, back = list[object](), list[object]()

    def take_and_cancel() -> object:
        if not jobs:
            return None
        task.cancel()
        return jobs.pop()

    def put(job: object) -> None:
        back.append(job)
        if is_full:
            raise ValueError("full")

    task = await begun(purgatory, take_and_cancel, "jobs", on_undelivered=put)
    jobs.append(job)
    assert purgatory.check_and_complete("jobs") == 0
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (jobs, back) == ([], [job])
    assert [str(context["exception"]) for context in reported] == ["full"] * is_full
    check_invariants(purgatory)


# awaited conditions


ENDS: dict[str, Callable[[Purgatory], object]] = {
    "close": Purgatory.close,
    "fail": lambda purgatory: purgatory.fail_for_key("jobs", ConnectionError()),
    "cancel": lambda purgatory: purgatory.cancel_for_key("jobs"),
    "complete": lambda purgatory: purgatory.complete_for_key("jobs"),
}


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("end", [*ENDS, "cancel task", "deadline"])
async def test_awaited_job_is_delivered_or_put_back_whenever_it_ends(
    purgatory: Purgatory, clock: ManualClock, end: str, steps: int
) -> None:
    desk = Desk(0)
    task = asyncio.create_task(purgatory.wait_for(desk.take, ["jobs"], timeout=1.0, on_undelivered=desk.back.append))
    await turns(steps)
    if end == "cancel task":
        task.cancel()
    elif end == "deadline":
        await clock.advance(1.0)
    else:
        ENDS[end](purgatory)
    await asyncio.wait([task])
    await turns(10)  # a read whose task has left goes on
    delivered = [] if task.cancelled() or task.exception() else [task.result()]
    assert desk.jobs + desk.back + delivered == [0]
    assert purgatory.statistics().undelivered == len(desk.back)
    assert purgatory.num_delayed == 0
