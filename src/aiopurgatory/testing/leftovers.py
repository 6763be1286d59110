"""Finds what a test leaves behind: broken invariants, pending operations, running tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from ..core.kit import core_of
from ..purgatory import Purgatory
from .clock import settle

#: A message names at most so many operations or tasks.
_NAMED = 5


def check_invariants(purgatory: Purgatory) -> None:
    """Check the invariants I1, I3, I4, I5, I6, I9 and I13 of *purgatory*. May be called at any time, even in hooks.

    The others of I1 to I15 are about events, not about state. The library's own tests check them.

    Raises: AssertionError: the message names the broken invariant.
    Cost: O(n) in everything that the purgatory holds.
    """
    core_of(purgatory).verify()


@asynccontextmanager
async def checked(purgatory: Purgatory) -> AsyncIterator[Purgatory]:
    """Start *purgatory*, and close it at the end. Check its invariants before and after closing."""
    async with purgatory:
        yield purgatory
        check_invariants(purgatory)
    check_invariants(purgatory)


@asynccontextmanager
async def left_empty(purgatory: Purgatory) -> AsyncIterator[Leftovers]:
    """Like checked(), but also require that no operation is pending and that the tasks of the test have ended.

    Raises: AssertionError: the message names the leftovers.
    """
    async with checked(purgatory):
        leftovers = Leftovers(purgatory)
        yield leftovers
        await leftovers.check()


class Leftovers:
    """The operations and tasks of a test. Create it when the test begins, in its event loop."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self._loop = asyncio.get_running_loop()
        self._before = asyncio.all_tasks()
        self._begun: set[asyncio.Task[Any]] = set()

    def test_has_ended(self) -> None:
        """Note the tasks of the test. Call this while the loop is stopped: then none is the test runner's."""
        self._begun = asyncio.all_tasks(self._loop) - self._before

    async def check(self) -> None:
        """Let cancelled and completed tasks end, then check. Raises: AssertionError: something is left."""
        check_invariants(self.purgatory)
        await settle(lambda: True)
        left = [*self._operations(), *self._tasks()]
        assert not left, f"left behind by the test: {'; '.join(left)}"

    def _operations(self) -> Iterator[str]:
        if count := self.purgatory.num_delayed:
            keys = list(core_of(self.purgatory).watchers.by_key)
            # By identity: an operation under several keys is found several times, and may define __eq__.
            found = {id(op): repr(op) for key in keys for op in self.purgatory.waiting(key)}
            yield f"{count} pending: {', '.join(islice(found.values(), _NAMED))}"

    def _tasks(self) -> Iterator[str]:
        # The purgatory has a new clock task if the test has closed and started it again.
        clock_task = f"aiopurgatory-clock-{self.purgatory.name}"
        left = [repr(task) for task in self._begun if not task.done() and task.get_name() != clock_task]
        if left:
            yield f"{len(left)} running: {', '.join(left[:_NAMED])}"
