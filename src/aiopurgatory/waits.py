"""The operations behind wait_for() and wait_until()."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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


class ReadWait(DelayedOperation[None]):
    """Tells its one task of checks, for whatever it has to await to find out."""

    __slots__ = ("_checked", "_woken")

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self._checked = False
        self._woken: asyncio.Future[None] | None = None

    def try_complete(self) -> bool:
        self._checked = True
        self._wake()
        return False

    def begin_read(self) -> None:
        """Checks from here on ask for another read."""
        self._checked = False

    async def wait_for_check(self) -> None:
        """Return once there was a check since begin_read(), or this has ended."""
        if not self._checked and not self.done():
            self._woken = asyncio.get_running_loop().create_future()
            self.add_done_callback(self._wake)
            try:
                await self._woken
            finally:
                self.remove_done_callback(self._wake)
                self._woken = None

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
