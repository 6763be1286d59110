"""Functions of asyncio and anyio work on operations: wait, wait_for, gather, shield, as_completed, scopes.

Most tests also run on an asyncio.Future, as the reference.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import check_empty

from .parts import KINDS, Boom, Kind, turns

pytestmark = pytest.mark.usefixtures("reports")


# wait


async def test_wait_first_completed_returns_the_first(purgatory: Purgatory, kind: Kind) -> None:
    futures = [kind.new(purgatory) for _ in range(3)]
    asyncio.get_running_loop().call_soon(kind.complete, futures[1], "result")
    done, pending = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    assert (done, pending) == ({futures[1]}, {futures[0], futures[2]})
    assert [future.done() for future in futures] == [False, True, False]


async def test_wait_all_completed_returns_all(purgatory: Purgatory, kind: Kind) -> None:
    futures = [kind.new(purgatory) for _ in range(4)]
    kind.complete(futures[0], "before")
    call_soon = asyncio.get_running_loop().call_soon
    call_soon(kind.complete, futures[3], "last")
    call_soon(kind.fail, futures[1], Boom())
    call_soon(futures[2].cancel)
    done, pending = await asyncio.wait(futures)
    assert (done, pending) == (set(futures), set())
    assert (futures[0].result(), futures[3].result(), futures[2].cancelled()) == ("before", "last", True)
    assert isinstance(futures[1].exception(), Boom)
    check_empty(purgatory)


# wait_for


async def test_wait_for_0_cancels_what_is_pending(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0)
    assert future.cancelled()
    check_empty(purgatory)


# gather


async def say(word: str) -> str:
    await turns(1)
    return word


async def test_gather_futures_and_coroutines_in_order(purgatory: Purgatory, kind: Kind) -> None:
    first, last = kind.new(purgatory), kind.new(purgatory)
    before = len(asyncio.all_tasks())
    both: Any = asyncio.gather(first, say("hello"), last, first)
    assert len(asyncio.all_tasks()) == before + 1  # for the coroutine
    call_soon = asyncio.get_running_loop().call_soon
    call_soon(kind.complete, last, "last")
    call_soon(call_soon, kind.complete, first, "first")
    assert await both == ["first", "hello", "last", "first"]


async def test_gather_return_exceptions_returns_them(purgatory: Purgatory, kind: Kind) -> None:
    futures = [kind.new(purgatory) for _ in range(3)]
    exc = Boom()
    both: Any = asyncio.gather(*futures, say("hello"), return_exceptions=True)
    kind.complete(futures[0], "result")
    kind.fail(futures[1], exc)
    futures[2].cancel("gone")
    await turns(5)
    assert both.done()  # an error inside gather() would leave it pending for ever
    result, failure, cancelled, word = both.result()
    assert (result, failure, word) == ("result", exc, "hello")
    assert (type(cancelled), cancelled.args) == (asyncio.CancelledError, ("gone",))


@pytest.mark.parametrize("after_turns", [0, 1])
async def test_gather_cancelled_cancels_all(purgatory: Purgatory, kind: Kind, after_turns: int) -> None:
    futures = [kind.new(purgatory) for _ in range(3)]
    both: Any = asyncio.gather(*futures)
    await turns(after_turns)
    assert both.cancel()
    assert all(future.cancelled() for future in futures)
    check_empty(purgatory)
    with pytest.raises(asyncio.CancelledError):
        await both


# shield and as_completed


@pytest.mark.parametrize("after_turns", [0, 1])
async def test_shield_cancelled_leaves_it_pending(purgatory: Purgatory, kind: Kind, after_turns: int) -> None:
    future = kind.new(purgatory)
    before = len(asyncio.all_tasks())
    outer = asyncio.shield(future)
    assert len(asyncio.all_tasks()) == before
    await turns(after_turns)
    outer.cancel()
    await turns(2)
    assert (outer.cancelled(), future.done()) == (True, False)
    kind.complete(future, "result")
    await turns(2)
    assert await future == "result"


async def test_shield_left_by_its_task_reports_a_failure(
    purgatory: Purgatory, kind: Kind, reports: list[BaseException]
) -> None:
    future, exc = kind.new(purgatory), Boom()
    outer = asyncio.shield(future)
    outer.cancel()
    await turns(2)
    kind.fail(future, exc)
    await turns(3)
    del future  # before Python 3.14, asyncio reports it only now
    gc.collect()
    assert reports == [exc]
    reports.clear()


async def test_as_completed_yields_in_the_order_of_ending(purgatory: Purgatory, kind: Kind) -> None:
    futures = [kind.new(purgatory) for _ in range(3)]
    before = len(asyncio.all_tasks())
    iterator = iter(asyncio.as_completed(futures))
    first = next(iterator)
    more_tasks = len(asyncio.all_tasks()) - before
    for number in (2, 0, 1):
        kind.complete(futures[number], str(number))
    assert [await first, *[await coroutine for coroutine in iterator]] == ["2", "0", "1"]
    assert more_tasks == 0


# anyio


async def end_and_cancel(purgatory: Purgatory, kind: Kind, first: str, how: str) -> list[object]:
    """End a future and cancel the scope of its awaiting task, in one loop iteration. Returns: the task's view."""
    future = kind.new(purgatory)
    seen: list[object] = []

    async def wait() -> None:
        try:
            seen.append(await future)
        except BaseException as exc:
            seen.append(type(exc))
            if isinstance(exc, asyncio.CancelledError):
                raise

    def end() -> None:
        if not future.done():
            kind.complete(future, "result") if how == "complete" else kind.fail(future, Boom())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await turns(1)
        steps: list[Callable[[], object]] = [end, group.cancel_scope.cancel]
        for step in steps if first == "end" else reversed(steps):
            step()
    return [*seen, future.cancelled(), group.cancel_scope.cancelled_caught]


@pytest.mark.parametrize("how", ["complete", "fail"])
@pytest.mark.parametrize("first", ["end", "cancel"])
async def test_scope_cancelled_with_the_end_is_as_a_future(purgatory: Purgatory, first: str, how: str) -> None:
    op, future = [await end_and_cancel(purgatory, kind, first, how) for kind in KINDS.values()]
    assert op == future
    check_empty(purgatory)
