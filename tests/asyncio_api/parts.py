"""Helpers of the tests of the asyncio face: an operation, an asyncio.Future for the same tests, a table, a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from core.parts import turns as turns  # type: ignore[import-not-found]

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock


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


class Table:
    """A remote table: a read takes the value at its beginning, and returns it or raises it when the test lets it.

    Before, reads raise *errors*, one each.
    """

    def __init__(self) -> None:
        self.row: Any = None
        self.errors: list[Exception] = []
        self.reads = 0
        self.reading = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def look(self) -> Any:
        """Read at once."""
        self.reads += 1
        if isinstance(self.row, Exception):
            raise self.row
        return self.row

    async def read(self) -> Any:
        self.reads += 1
        self.reading += 1
        seen = self.errors.pop(0) if self.errors else self.row
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.reading -= 1
        if isinstance(seen, Exception):
            raise seen
        return seen


class CountingClock:
    """A manual clock that keeps count of the handles that are armed."""

    def __init__(self) -> None:
        self.manual = ManualClock()
        self.armed: list[float] = []
        self.cancelled = 0

    def time(self) -> float:
        return self.manual.time()

    def call_at(self, when: float, callback: Callable[[], object]) -> CountedHandle:
        self.armed.append(when)
        return CountedHandle(self, self.manual.call_at(when, callback).cancel)

    def handles(self, fired: int) -> int:
        """How many handles are armed now, when *fired* have fired."""
        return len(self.armed) - self.cancelled - fired


class CountedHandle:
    def __init__(self, clock: CountingClock, cancel: Callable[[], object]) -> None:
        self.clock = clock
        self.cancel_handle = cancel

    def cancel(self) -> None:
        self.clock.cancelled += 1
        self.cancel_handle()


async def begun(purgatory: Purgatory, condition: Any, *keys: str, **options: Any) -> asyncio.Task[Any]:
    """A wait_for(), for 5 s if *options* do not say otherwise. Its first read has ended, if it may."""
    task = asyncio.create_task(purgatory.wait_for(condition, keys or ["key"], **{"timeout": 5.0} | options))
    await turns(10)
    return task


def clock_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "clock" in task.get_name()]


class FailingClock(ManualClock):
    """Its time cannot be read while it is *broken*."""

    broken = True

    def time(self) -> float:
        if self.broken:
            raise OSError("no time")
        return super().time()
