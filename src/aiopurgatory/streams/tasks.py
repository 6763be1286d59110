"""Tasks that end with their log."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class Tasks:
    """Tasks of a log. An exception of theirs that nobody awaits is not reported."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin a task. Args: name: its work and its topic."""
        task = asyncio.create_task(coroutine, name=f"aiopurgatory log: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def aclose(self, patience: float = 0.0) -> None:
        """Cancel the tasks that have not ended after *patience* seconds, and wait for them."""
        if self._tasks and patience > 0:
            await asyncio.wait(self._tasks, timeout=patience)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()
