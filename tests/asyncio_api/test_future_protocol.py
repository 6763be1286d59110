"""An operation is a future by asyncio's own protocol: its states, its loop, and its await.

Most tests also run on an asyncio.Future. They follow test_futures.py of CPython.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import check_invariants

from .parts import ENDINGS, Kind, Op, seen_in

pytestmark = pytest.mark.usefixtures("reports")

# its nature


async def test_isfuture_watched_or_not_is_true(purgatory: Purgatory) -> None:
    new, pending, ended = Op(), purgatory.watch(Op(), ["key"]), Op()
    ended.force_complete()
    ops: list[object] = [new, pending, ended]
    assert [asyncio.isfuture(op) for op in ops] == [True, True, True]
    assert not asyncio.isfuture(Op)


async def test_ensure_future_returns_it_itself(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    assert asyncio.ensure_future(future) is future
    assert asyncio.ensure_future(future, loop=asyncio.get_running_loop()) is future
    assert asyncio.wrap_future(future) is future


async def test_ensure_future_of_another_loop_is_refused(purgatory: Purgatory, kind: Kind) -> None:
    other = asyncio.new_event_loop()
    try:
        with pytest.raises(ValueError, match="different loop"):
            await asyncio.ensure_future(kind.new(purgatory), loop=other)
    finally:
        other.close()


async def test_get_loop_ended_by_watch_is_the_running_one(purgatory: Purgatory) -> None:
    ready, ended = Op(), Op()
    ready.ready = True
    ended.force_complete()  # before anybody watched it
    for op in (ready, ended):
        future: Any = purgatory.watch(op, ["key"])
        assert future.done()
        assert future.get_loop() is asyncio.get_running_loop()
        assert await asyncio.wait_for(future, 0) == "result"


def read_off_futures() -> set[str]:
    """Return the private attributes that functions of asyncio read off any future, from their source."""
    nodes = ast.walk(ast.parse(inspect.getsource(asyncio.tasks)))
    loads = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    own = {"self", "outer", *vars(asyncio.tasks)}  # tasks, the future of gather(), modules
    return {
        node.attr
        for node in loads
        if isinstance(node.value, ast.Name) and node.value.id not in own and node.attr[0] == "_"
    }


@pytest.mark.parametrize("ending", [None, *ENDINGS])
async def test_private_attributes_that_asyncio_reads_exist(
    purgatory: Purgatory, kind: Kind, ending: str | None
) -> None:
    future = kind.new(purgatory)
    if ending is not None:
        ENDINGS[ending](kind, future)
        seen_in(future)
    names = read_off_futures()
    assert names >= {"_make_cancelled_error", "_cancel_message"}  # read by every version
    assert [name for name in names if not hasattr(future, name)] == []


NEEDS_WATCH: dict[str, Callable[[Any], Any]] = {
    "add_done_callback": lambda op: op.add_done_callback(print),
    "get_loop": lambda op: op.get_loop(),
    "gather": lambda op: asyncio.gather(op),
    "shield": lambda op: asyncio.shield(op),
    "await": lambda op: op.__await__().send(None),
    "wait_for": lambda op: asyncio.wait_for(op, 0).send(None),
    "wait_for, 60 s": lambda op: asyncio.wait_for(op, 60.0).send(None),
}


@pytest.mark.parametrize("name", NEEDS_WATCH)
async def test_never_watched_error_says_to_watch_it(purgatory: Purgatory, name: str) -> None:
    op = Op()
    with pytest.raises(RuntimeError, match=r"watch\(\)"):
        NEEDS_WATCH[name](op)
    purgatory.watch(op, ["key"])
    check_invariants(purgatory)
    assert op.force_complete()


# its states


async def test_pending_has_no_result_and_no_exception(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    for ask in (future.result, future.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()


async def test_cancelled_raises_cancelled_error(purgatory: Purgatory, kind: Kind) -> None:
    future = kind.new(purgatory)
    future.cancel("my message")
    for ask in (future.result, future.exception):
        with pytest.raises(asyncio.CancelledError, match="my message"):
            ask()
    assert future.cancel() is False


@pytest.mark.parametrize("ending", ENDINGS)
async def test_await_yields_a_future_that_tells_the_end(purgatory: Purgatory, kind: Kind, ending: str) -> None:
    future = kind.new(purgatory)
    waiting = future.__await__().send(None)
    assert (waiting.done(), waiting.cancelled()) == (False, False)
    ENDINGS[ending](kind, future)
    assert (waiting.done(), waiting.cancelled()) == (True, future.cancelled())
    seen_in(future)
