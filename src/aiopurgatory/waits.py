"""The operations behind wait_for() and wait_until()."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .arguments import require_not_coroutine
from .operation import DelayedOperation

R = TypeVar("R")


class PredicateWait(DelayedOperation[R]):
    """Waits until *predicate* is true, which it asks at each check."""

    __slots__ = ("_predicate", "_put_back", "_value")

    def __init__(
        self, predicate: Callable[[], R], timeout: float | None, put_back: Callable[[R], object] | None
    ) -> None:
        super().__init__(timeout)
        self._predicate = predicate
        self._put_back = put_back
        self._value: R

    def try_complete(self) -> bool:
        self._value = self._predicate()
        require_not_coroutine("predicate", self._value)
        return bool(self._value) and self.force_complete()

    def on_complete(self) -> R:
        return self._value

    def on_undelivered(self, result: R) -> None:
        if self._put_back is not None and not self.expired:
            self._put_back(result)


class Checks:
    """Tells the one task of an operation of checks, for whatever it has to await to find out."""

    __slots__ = ("_seen", "_woken")

    def __init__(self) -> None:
        self._seen = False
        self._woken: asyncio.Future[None] | None = None

    def tell(self, _: object = None) -> None:
        self._seen = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def begin(self) -> None:
        """Checks from here on ask for another read."""
        self._seen = False

    async def wait(self, op: DelayedOperation[None]) -> None:
        """Return once there was a check since begin(), or *op* has ended."""
        if not self._seen and not op.done():
            self._woken = asyncio.get_running_loop().create_future()
            op.add_done_callback(self.tell)
            try:
                await self._woken
            finally:
                op.remove_done_callback(self.tell)
                self._woken = None


class ReadWait(DelayedOperation[None]):
    """Never completes by itself: its task does that, see read_until()."""

    __slots__ = ("checks",)

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self.checks = Checks()

    def try_complete(self) -> bool:
        self.checks.tell()
        return False


async def read_until(op: DelayedOperation[None], checks: Checks, read: Callable[[], Awaitable[R]]) -> R | None:
    """Call *read* until it returns something true: at first, after each check, and once more when *op* has expired.

    Returns: the first true value, *op* being completed; None: there was none in time.
    Raises: what *op* has failed with; CancelledError: it was cancelled.
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
