"""Finds what a test leaves behind: broken invariants, pending operations, running tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

from ..core.kit import core_of
from ..purgatory import Purgatory
from .manual_clock import settle

#: A message names at most so many operations or tasks.
_NAMED = 5


def check_invariants(purgatory: Purgatory) -> None:
    """Check the invariants I1, I3, I4, I5, I6, I9 and I13 of *purgatory*. May be called at any time, even in hooks.

    The others of I1 to I15 are about events, not about state. The library's own tests check them.

    Raises: AssertionError: the message names the broken invariant.
    Cost: O(n) in everything that the purgatory holds.
    """
    core_of(purgatory).verify()


def check_empty(purgatory: Purgatory) -> None:
    """Check that no operation of *purgatory* is pending, and its invariants.

    A task that was just cancelled leaves its wait on the next loop iterations: await ``ManualClock.settle()`` before.

    Raises: AssertionError: the message names the pending operations, or the broken invariant.
    """
    check_invariants(purgatory)
    left = pending_of(purgatory)
    assert not left, f"left behind in {purgatory!r}: {left}"


def pending_of(purgatory: Purgatory) -> str:
    """The number of pending operations, and the first of them; "" if there is none."""
    ops = core_of(purgatory).watchers.all_pending()
    return f"{len(ops)} pending: {', '.join(map(repr, ops[:_NAMED]))}" if ops else ""


@contextmanager
def none_left() -> Iterator[None]:
    """Check that each purgatory that the block opens is empty: when it closes, or at the end of the block.

    Raises: AssertionError: the message names the pending operations.
    """
    opened: list[Purgatory] = []
    left: list[str] = []

    def note(purgatory: Purgatory) -> None:
        if pending := pending_of(purgatory):
            left.append(f"purgatory {purgatory.name!r}: {pending}")

    start, close, aclose = Purgatory.start, Purgatory.close, Purgatory.aclose

    async def noted_start(purgatory: Purgatory) -> None:
        await start(purgatory)
        opened.append(purgatory)

    def noted_close(purgatory: Purgatory) -> None:
        note(purgatory)
        close(purgatory)

    async def noted_aclose(purgatory: Purgatory) -> None:
        await settle(lambda: True)  # cancelled tasks leave now
        note(purgatory)
        await aclose(purgatory)

    with patch.multiple(Purgatory, start=noted_start, close=noted_close, aclose=noted_aclose):
        yield
    for purgatory in {id(each): each for each in opened}.values():
        loop = core_of(purgatory).loop.running
        if purgatory.is_open and not (loop.is_running() or loop.is_closed()):
            loop.run_until_complete(settle(lambda: True))
        note(purgatory)
    assert not left, f"left behind by the test: {'; '.join(left)}"


@asynccontextmanager
async def checked(purgatory: Purgatory) -> AsyncIterator[Purgatory]:
    """Start *purgatory*, and close it at the end. Check its invariants before and after closing."""
    async with purgatory:
        yield purgatory
        check_invariants(purgatory)
    check_invariants(purgatory)


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
        left = "; ".join(filter(None, (pending_of(self.purgatory), self._tasks())))
        assert not left, f"left behind by the test: {left}"

    def _tasks(self) -> str:
        # The purgatory has a new clock task if the test has closed and started it again.
        clock_task = f"aiopurgatory-clock-{self.purgatory.name}"
        left = [repr(task) for task in self._begun if not task.done() and task.get_name() != clock_task]
        return f"{len(left)} running: {', '.join(left[:_NAMED])}" if left else ""
