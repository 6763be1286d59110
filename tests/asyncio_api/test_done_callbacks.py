"""Done callbacks of an operation work as an asyncio.Future's: through call_soon(), in order, in their context.

Most tests also run on an asyncio.Future. They follow test_futures.py of CPython.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import Context, ContextVar
from typing import Any

import pytest

from aiopurgatory import Purgatory

from .parts import ENDINGS, Boom, Kind, Op, seen_in, turns

pytestmark = pytest.mark.usefixtures("reports")

SEEN: dict[str, object] = {"complete": "result", "fail": Boom, "cancel": asyncio.CancelledError}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_done_callback_runs_once_on_the_next_turn(purgatory: Purgatory, kind: Kind, ending: str) -> None:
    future = kind.new(purgatory)
    seen: list[tuple[object, object]] = []
    for steps in (3, 0):
        future.add_done_callback(lambda argument: seen.append((argument, seen_in(argument))))
        await turns(steps)
        if not future.done():
            ENDINGS[ending](kind, future)
        assert seen == []
        await turns(1)
        assert seen == [(future, SEEN[ending])]
        await turns(3)
        assert len(seen) == 1
        seen.clear()  # another one is added after the end


async def test_done_callbacks_run_in_the_order_added(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    seen: list[int] = []

    def first(_: object) -> None:
        seen.append(1)

    def second(_: object) -> None:
        seen.append(2)

    for callback in (first, second, first, second, second):
        future.add_done_callback(callback)
    kind.complete(future, "result")
    await turns(1)
    assert seen == [1, 2, 1, 2, 2]


@pytest.mark.parametrize("when", ["before the end", "after the end"])
async def test_done_callback_runs_in_the_given_context(purgatory: Purgatory, kind: Kind, when: str) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="")
    future = kind.new(purgatory)
    seen: list[str] = []
    given = Context()
    given.run(variable.set, "given")
    if when == "after the end":
        kind.complete(future, "result")
    variable.set("when added")
    future.add_done_callback(lambda _: seen.append(variable.get()), context=given)
    future.add_done_callback(lambda _: seen.append(variable.get()))
    variable.set("later")
    if when == "before the end":
        kind.complete(future, "result")
    await turns(1)
    assert seen == ["given", "when added"]


async def test_remove_done_callback_returns_how_many(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    seen: list[int] = []
    first, second, never = (lambda _, number=number: seen.append(number) for number in range(3))
    assert future.remove_done_callback(first) == 0
    future.add_done_callback(first)
    future.add_done_callback(second)
    assert (future.remove_done_callback(second), future.remove_done_callback(never)) == (1, 0)
    future.add_done_callback(second)
    for _ in range(5):
        future.add_done_callback(first)
    assert future.remove_done_callback(first) == 6
    kind.complete(future, "result")
    await turns(1)
    assert seen == [1]


async def test_remove_done_callback_compares_by_equality(purgatory: Purgatory, kind: Kind) -> None:
    class Listener:
        called = False

        def heard(self, _: object) -> None:
            self.called = True

    future, listener = kind.new(purgatory), Listener()
    future.add_done_callback(listener.heard)
    assert future.remove_done_callback(listener.heard) == 1  # another method object, and equal
    kind.complete(future, "result")
    await turns(1)
    assert not listener.called


async def test_remove_done_callback_after_the_end_is_late(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    seen: list[object] = []
    future.add_done_callback(seen.append)
    kind.complete(future, "result")
    assert future.remove_done_callback(seen.append) == 0
    await turns(1)
    assert seen == [future]


@pytest.mark.parametrize("removed", [False, True])
async def test_done_callback_is_let_go(purgatory: Purgatory, kind: Kind, removed: bool) -> None:
    class Callback:
        def __call__(self, _: object) -> None: ...

    future, callback = kind.new(purgatory), Callback()
    future.add_done_callback(callback)
    left = weakref.ref(callback)
    if removed:
        future.remove_done_callback(callback)
    else:
        kind.complete(future, "result")
        await turns(1)
    del callback
    assert left() is None


async def test_removed_done_callback_leaves_nothing_behind(purgatory: Purgatory) -> None:
    op: Any = purgatory.watch(Op(60.0), ["key"])
    kept: list[object] = []

    def removed(_: object) -> None:
        raise AssertionError("it was removed")

    op.add_done_callback(kept.append)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(1_000):
        op.add_done_callback(removed)
        await asyncio.wait([op], timeout=0)
        assert op.remove_done_callback(removed) == 1
    op.add_done_callback(kept.append)
    assert len(gc.get_objects()) - before < 100
    op.force_complete()
    await turns(1)
    assert kept == [op, op]
