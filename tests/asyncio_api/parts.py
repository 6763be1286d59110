"""Helpers: an operation, and an asyncio.Future for the same tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from aiopurgatory import DelayedOperation, Purgatory


class Boom(Exception):  # noqa: N818
    """A failure."""


class Op(DelayedOperation[str]):
    """Completes with its *answer* at the first check after it was made *ready*."""

    def __init__(self, timeout: float | None = None) -> None:
        super().__init__(timeout)
        self.ready = False
        self.answer = "result"

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        return "late" if self.expired else self.answer


class Kind(NamedTuple):
    """A kind of future, and functions to make and end one."""

    new: Callable[[Purgatory], Any]
    complete: Callable[[Any, str], object]
    fail: Callable[[Any, Exception], object]


def complete_op(op: Op, answer: str) -> None:
    op.answer = answer
    assert op.force_complete()


#: Each test of a Kind runs on both: asyncio itself is the judge.
KINDS = {
    "op": Kind(lambda purgatory: purgatory.watch(Op(60.0), ["a", "b"]), complete_op, Op.fail),
    "Future": Kind(
        lambda _: asyncio.get_running_loop().create_future(), asyncio.Future.set_result, asyncio.Future.set_exception
    ),
}


#: The ways to end a future.
ENDINGS: dict[str, Callable[[Kind, Any], object]] = {
    "complete": lambda kind, future: kind.complete(future, "result"),
    "fail": lambda kind, future: kind.fail(future, Boom()),
    "cancel": lambda kind, future: future.cancel(),
}


def seen_in(future: Any) -> object:
    """Return the result of the ended *future*, or the type of its exception."""
    try:
        return future.result()
    except BaseException as exc:
        return type(exc)


async def turns(count: int) -> None:
    """Run *count* iterations of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
