"""The operations behind wait_for() and wait_until()."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .arguments import require_not_coroutine
from .core.operation import mark_retrieved
from .operation import DelayedOperation

R = TypeVar("R")


class PredicateWait(DelayedOperation[R]):
    """Waits until *predicate* is true; calls it on each check."""

    __slots__ = ("_predicate", "_put_back", "_value")

    def __init__(
        self, predicate: Callable[[], R | None], timeout: float | None, put_back: Callable[[R], object] | None
    ) -> None:
        super().__init__(timeout)
        self._predicate = predicate
        self._put_back = put_back
        self._value: Any

    def try_complete(self) -> bool:
        self._value = self._predicate()
        require_not_coroutine("predicate", self._value)
        return bool(self._value) and self.force_complete()

    def on_complete(self) -> R:
        value: R = self._value
        return value

    def on_undelivered(self, result: R) -> None:
        if self._put_back is not None and not self.expired:
            self._put_back(result)


class Checks:
    """Tells the task of a wait_until() that a key was checked, so that it reads again."""

    __slots__ = ("_seen", "_woken")

    def __init__(self) -> None:
        self._seen = False
        self._woken: asyncio.Future[None] | None = None

    def tell(self, _: object = None) -> None:
        self._seen = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def begin(self) -> None:
        """From here on, a check calls for another read."""
        self._seen = False

    async def wait(self, op: DelayedOperation[None]) -> None:
        """Wait until a key has been checked since begin(), or *op* has ended."""
        if not self._seen and not op.done():
            self._woken = asyncio.get_running_loop().create_future()
            op.add_done_callback(self.tell)
            try:
                await self._woken
            finally:
                op.remove_done_callback(self.tell)
                self._woken = None


class ReadWait(DelayedOperation[None]):
    """Never completes by itself: read_until() completes it."""

    __slots__ = ("checks",)

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self.checks = Checks()
        mark_retrieved(self)  # read_until() raises its failure; during a read, nothing awaits it

    def try_complete(self) -> bool:
        self.checks.tell()
        return False


async def read_until(op: DelayedOperation[None], checks: Checks, read: Callable[[], Awaitable[R | None]]) -> R | None:
    """Call *read* until it returns a true value: now, after each check, and once more when *op* has expired.

    Returns: the first true value, after completing *op*; None if there was none in time.
    Raises: the exception that *op* failed with; CancelledError: it was cancelled.
    """
    try:
        while True:
            checks.begin()
            is_last = op.done()
            if value := await read():
                op.force_complete()
                return value
            if is_last:
                return None
            await checks.wait(op)
            if op.done() and not op.expired:
                op.result()  # raises
    finally:
        del op  # what is raised keeps this frame
