"""Failures reach the awaiting tasks, or the loop's exception handler."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory

from .parts import CALLS, Boom, Op, fail_in, fate, turns

TIMES = 100


def frames_of(exc: BaseException) -> list[str]:
    """The names of the functions that the traceback of *exc* goes through."""
    return [frame.name for frame in traceback.extract_tb(exc.__traceback__)]


async def seen_by_task(op: Op) -> list[str]:
    with pytest.raises(Boom) as raised:
        await op
    return frames_of(raised.value)


def seen_by_result(op: Op) -> list[str]:
    with pytest.raises(Boom) as raised:
        op.result()
    return frames_of(raised.value)


#: Ways to fail: by the hook that raises, which the traceback must go on showing.
FAILURES: dict[str, Callable[[Purgatory, Op], object]] = {
    "fail": CALLS["fail"],
    "try_complete": fail_in("try_complete", "check_and_complete"),
    "on_complete": fail_in("on_complete", "force_complete"),
    "on_expiration": fail_in("on_expiration", "expire_all"),
}


# the traceback


@pytest.mark.parametrize("name", FAILURES)
async def test_traceback_of_100_awaits_and_results_does_not_grow(purgatory: Purgatory, name: str) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    tasks = [asyncio.create_task(seen_by_task(op)) for _ in range(TIMES)]
    await turns(1)
    FAILURES[name](purgatory, op)
    by_tasks = [*await asyncio.gather(*tasks), await seen_by_task(op)]
    assert all(names[0] == "seen_by_task" for names in by_tasks)
    for seen in (by_tasks, [seen_by_result(op) for _ in range(TIMES)]):
        assert max(map(len, seen)) <= len(seen[0]) + 1
        assert name == "fail" or all(name in names for names in seen)


async def test_traceback_keeps_that_from_before_fail(purgatory: Purgatory) -> None:
    """The exception given to fail() was raised elsewhere, and shows where, as with Future.set_exception()."""

    def lose_the_leader() -> None:
        raise Boom

    op = purgatory.watch(Op(60.0), ["key"])
    try:
        lose_the_leader()
    except Boom as exc:
        op.fail(exc)
    seen = [await seen_by_task(op) for _ in range(TIMES)]
    assert all("lose_the_leader" in names for names in seen)
    assert max(map(len, seen)) <= len(seen[0]) + 1


# reported, or not


WAYS_TO_AWAIT: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "gather": lambda op: asyncio.gather(op),
    "gather with others": lambda op: asyncio.gather(asyncio.sleep(0), op),
    "gather, return_exceptions": lambda op: asyncio.gather(op, return_exceptions=True),
    "task": lambda op: asyncio.create_task(fate(op)),
    "shield": lambda op: asyncio.shield(op),
    "wait_for": lambda op: asyncio.create_task(asyncio.wait_for(op, None)),
}


@pytest.mark.parametrize("way", WAYS_TO_AWAIT)
@pytest.mark.parametrize("name", ["fail", "try_complete", "on_complete"])
async def test_failure_about_to_be_awaited_is_not_reported(
    purgatory: Purgatory, reports: list[BaseException], name: str, way: str
) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    FAILURES[name](purgatory, op)
    awaiting = WAYS_TO_AWAIT[way](op)
    await asyncio.wait([asyncio.ensure_future(awaiting)])
    await asyncio.gather(awaiting, return_exceptions=True)
    await turns(10)
    assert (reports, op.outcome) == ([], Outcome.FAILED)


@pytest.mark.parametrize("return_when", [asyncio.FIRST_COMPLETED, asyncio.ALL_COMPLETED])
async def test_failure_seen_after_asyncio_wait_is_not_reported(
    purgatory: Purgatory, reports: list[BaseException], return_when: str
) -> None:
    before, meanwhile, last = (purgatory.watch(Op(60.0), ["key"]) for _ in range(3))
    before.fail(Boom())
    ops: list[Any] = [before, meanwhile, last]
    loop = asyncio.get_running_loop()
    loop.call_soon(meanwhile.fail, Boom())
    loop.call_soon(loop.call_soon, last.fail, Boom())
    done, _ = await asyncio.wait(ops, return_when=return_when)
    assert {type(op.exception()) for op in done} == {Boom}
    for op in ops:
        await fate(op)
    await turns(10)
    assert reports == []


@pytest.mark.parametrize("name", ["fail", "try_complete", "on_complete"])
async def test_failure_nobody_looks_at_is_reported_once(
    purgatory: Purgatory, reports: list[BaseException], name: str
) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    FAILURES[name](purgatory, op)
    assert reports == []
    await turns(5)
    assert [type(exc) for exc in reports] == [Boom]
    assert op.exception() is reports[0]
    await turns(10)
    assert len(reports) == 1
    reports.clear()
