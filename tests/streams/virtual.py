"""An event loop in virtual time: when all tasks wait, the time jumps to the next timer. Nothing waits for real."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Args: start: seconds."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.now = start
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual_loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        assert timeout is not None, "every task waits, and no timer will wake one"
        self._virtual_loop.now += max(timeout, 1e-6 if timeout else 0.0)
        return []


def play(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run *coroutine* in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
