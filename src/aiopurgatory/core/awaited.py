"""The operation of a task that reads until it finds something: the wait ends with its first value.

It stays parked meanwhile: a check does not end it, but rings its bell. Checks during a read lead to one more. At its
deadline, it stays pending until a last read is done.
"""

from __future__ import annotations

from math import inf
from typing import Any

from mypy_extensions import mypyc_attr

from ..timer.ring import deadline_of, set_deadline
from .bell import NO_CHECK
from .calls import Reading, ReadingOperation
from .core import Core, owner_of
from .endings import complete
from .nanoseconds import ceil_ns
from .operation import COMPLETED, DUE, EXPIRED, LAST_READ, NOT_DUE, PENDING


@mypyc_attr(allow_interpreted_subclasses=True)
class AwaitedWait(ReadingOperation):
    """If begin() returns True, its task reads, and calls end() or give_up(). Else it awaits wait().

    Until begin_reads(), a subclass may try it like any other operation.
    """

    __slots__ = ()

    @property
    def bell(self) -> Reading:
        """The reads of its task."""
        return reading_of(self)

    def begin_reads(self, core: Core, takes: bool) -> None:
        """From now on, its task reads. *takes*: reads may take what they find.

        With a timeout of 0, the first read is the last.
        """
        self._op_reading = reading = Reading(core, self._op_keys, takes)
        reading.ring(NO_CHECK)
        if self._op_timeout == 0.0:
            self._op_timeout = inf
            self._op_due = LAST_READ
            reading.is_excused = True

    def try_complete(self) -> bool:
        ring(self)
        return False

    def on_complete(self) -> Any:
        if self._op_state == COMPLETED and self._op_reading is not None:
            self._op_reading.ring(NO_CHECK)  # by complete_for_key(): read once more
        else:
            leave_off(self)

    def on_cancel(self) -> Any:
        leave_off(self)

    def on_failure(self, exc: BaseException) -> Any:
        leave_off(self)


# No methods: interpreted code subclasses this, so they would be looked up by name.


def reading_of(op: ReadingOperation) -> Reading:
    """The reads of *op*, which has begun them."""
    assert op._op_reading is not None
    return op._op_reading


def ring(op: ReadingOperation) -> None:
    """A check, or the deadline, calls for a read of *op*."""
    core, reading = owner_of(op), reading_of(op)
    if op._op_due == DUE:  # stay pending until a last read is done
        op._op_due = LAST_READ
        reading.is_last = False  # the read under way began before
        reading.is_excused = not core.is_unchecked(op)
        reading.due_at = core.loop.time()
        reading.ring(NO_CHECK)
    else:
        reading.ring(core.checks.read_call(op))


def begin(op: ReadingOperation, reading: Reading) -> bool:
    """Begin a read if one is called for. Returns: False if none is."""
    if not (reading._is_free or reading._newest > 0):
        return False
    op._op_retrieved = True  # the task raises its failure; while that reads, nothing awaits the operation
    reading.is_last = op._op_due != NOT_DUE
    reading.is_busy = True
    reading.seen = owner_of(op).checks.newest
    if op._op_state == PENDING:
        reading.keys = op._op_keys
    reading.take(True)
    return True


def end(op: ReadingOperation, reading: Reading, is_found: bool, has_failed: bool) -> None:
    """The read is done. *is_found*: it has found a value. *has_failed*: its error is survived, after a pause."""
    reading.end(is_found)
    if op._op_state == PENDING:
        if is_found:
            # It missed a trigger if no check had called for what its last read found.
            if not reading.is_last or reading.is_checked or reading.is_rung or reading.is_excused:
                op._op_due = NOT_DUE
            complete(op, COMPLETED)
        elif reading.is_last and op._op_due != NOT_DUE:  # else reschedule() has set another deadline meanwhile
            if op._op_timeout != inf:  # the time of that read is no lateness of ours
                late = max(owner_of(op).loop.time() - reading.due_at, 0.0)
                set_deadline(op, deadline_of(op) + ceil_ns(late))
            complete(op, EXPIRED)
    owner_of(op).checks.end_look(op, reading, is_found, has_failed)
    if op._op_state == PENDING and not has_failed:
        reading.is_busy = False
        owner_of(op).checks.free(op, reading)


def give_up(op: ReadingOperation, reading: Reading) -> None:
    """The read was cancelled, or its error is raised."""
    reading.end(False)
    owner_of(op).checks.end_look(op, reading, False, True)


def leave_off(op: ReadingOperation) -> None:
    """*op* has ended: no read is called for any more. If it has not looked, it passes its call on."""
    reading = op._op_reading
    if reading is not None:
        if not reading.is_busy:
            owner_of(op).checks.pass_on(reading)
        reading.interrupt()
