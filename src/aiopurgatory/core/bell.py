"""The bell of a task that reads: a check rings it, and that calls for a read.

A bell knows the task, not what it waits for: the operations that read have one each (awaited, stream_wait).
"""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i64

from .operation import PENDING, Operation, Owner
from .watchers import ALL

#: The number of no check: newer than any.
NO_CHECK: Final = ALL


class Bell:
    """Has a task read for an operation in *owner*. If it is rung, the task reads. Else it awaits wait()."""

    __slots__ = (
        "_cancelling",
        "_is_free",
        "_is_interrupted",
        "_newest",
        "_owner",
        "_task",
        "check",
        "is_checked",
        "woken",
    )

    def __init__(self, owner: Owner) -> None:
        self._owner: Final = owner
        #: The newest check since the last read began, or 0; and whether anything else called for a read.
        self._newest: i64 = 0
        self._is_free = False
        #: Of the read under way: the newest check that called for it, or NO_CHECK if anything else did; and whether a
        #: check called.
        self.check: i64 = NO_CHECK
        self.is_checked = False
        #: The task that reads; its count of cancellations when that began; and whether the end of the operation has
        #: cancelled it.
        self._task: Any = None
        self._cancelling = 0
        self._is_interrupted = False
        #: The future that the task awaits.
        self.woken: Any = None

    @property
    def is_rung(self) -> bool:
        """Whether a read is called for."""
        return self._is_free or self._newest > 0

    def ring(self, check: i64) -> None:
        """Have the task read. *check*: the number of the check that calls for that, or NO_CHECK."""
        if check == NO_CHECK:
            self._is_free = True
        elif check > self._newest:
            self._newest = check
        if self.woken is not None:
            self.wake()

    def wake(self) -> None:
        """Wake the waiting task."""
        woken, self.woken = self.woken, None
        if not woken.done():  # else it is being cancelled
            woken.set_result(None)

    def take(self, is_cancellable: bool = False) -> None:
        """A read begins: from here on, a check calls for another one. *is_cancellable*: as enter()."""
        newest = self._newest
        self.is_checked = newest > 0
        self.check = NO_CHECK if self._is_free or newest == 0 else newest
        self._newest = 0
        self._is_free = False
        if is_cancellable:
            self.enter()

    def enter(self) -> None:
        """From here on, until leave(), the task is cancelled when the operation ends."""
        loop = self._owner.loop
        self._task = task = loop.current_task(loop.running)
        if task is not None:
            self._cancelling = task.cancelling()

    def is_cancelled(self) -> bool:
        """Has anybody else cancelled the task since enter()?"""
        task = self._task
        return task is not None and task.cancelling() > self._cancelling + int(self._is_interrupted)

    def leave(self) -> bool:
        """Returns: whether the task was cancelled because the operation ended, and for nothing else."""
        task, self._task = self._task, None
        if not self._is_interrupted:
            return False
        self._is_interrupted = False
        # Otherwise somebody else has cancelled the task since enter().
        return bool(task.uncancel() <= self._cancelling)

    def end(self, is_found: bool) -> None:
        """The read is done, or its task has left it."""
        if self._is_interrupted:  # it has swallowed its cancellation
            self.leave()
        self._task = self.woken = None
        self.count(is_found)

    def count(self, is_found: bool) -> None:
        """Count the read under way, if only checks called for it."""
        if self.check != NO_CHECK:
            self.check = NO_CHECK
            self._owner.reads += 1
            if not is_found:
                self._owner.reads_in_vain += 1

    def wait(self, op: Operation) -> Any:
        """Return a future to await: done at the next ring, and when *op* ends; None: it has ended."""
        if op._op_state != PENDING:
            return None
        loop = self._owner.loop
        self.woken = woken = type(loop.done)(loop=loop.running)  # half the time of loop.create_future()
        return woken

    def interrupt(self) -> None:
        """The operation has ended: the task is to notice, and to read no more."""
        self._is_free = False
        self._newest = 0
        if self.woken is not None:
            self.wake()
        elif self._task is not None:
            task, loop = self._task, self._owner.loop
            if task is not loop.current_task(loop.running):  # else the read itself has ended the operation
                self._is_interrupted = True
                task.cancel()
