"""A value that only grows, and the offsets that operations wait for it to reach: state and operation."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, SupportsFloat, SupportsIndex, final

from mypy_extensions import mypyc_attr

from ..core.faults import Failure, require_error
from ..core.operation import is_pending
from ..core.purgatory import parts_of
from ..purgatory import Purgatory
from .offset_queue import OffsetQueue
from .watermark import Watermark, WatermarkWait, as_int, set_value

#: Offsets that advance_soon() marks in one loop iteration: half a millisecond or so.
MARK_SLICE: Final = 500


@mypyc_attr(allow_interpreted_subclasses=True)
class Offsets:
    """What ThresholdWatchers does without being a coroutine; see there.

    The operations are in the purgatory, each under its offset. Here are the offsets alone: whatever way an operation
    ends, nothing here keeps it. The helpers are no methods: one of a class that interpreted code subclasses is looked
    up by name at each call.
    """

    __slots__ = ("_failure", "_marking", "_obstacle", "_queue", "_reached", "_round", "key", "purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable, *, start: SupportsIndex = 0) -> None:
        hash(key)
        self.purgatory: Final = purgatory
        self.key: Final = key
        self._reached: Final = Watermark(as_int("start", start))
        # Ends everything, for good; and what ends every wait for an offset above the value, while it is there.
        self._failure: Failure | None = None
        self._obstacle: Failure | None = None
        self._queue: Final = OffsetQueue()
        self._round = 0  # calls of complete_all(): operations of an earlier round end
        self._marking: object = None  # the loop in which the next slice of advance_soon() is to be marked

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} value={self.value} waiting={self.waiting}>"

    @property
    def value(self) -> int:
        return self._reached.value

    @property
    def waiting(self) -> int:
        """How many operations wait for an offset above the value. Cost: O(waiters)."""
        return sum([len(self.purgatory.waiting(key_of(self, offset))) for offset in self._queue.waiting])

    def error_for(self, offset: SupportsIndex) -> Exception | None:
        """What a wait for *offset* would raise now, apart from TimeoutError; None if nothing."""
        return error_at(self, as_int("offset", offset))

    def watch(self, offset: SupportsIndex, *, timeout: SupportsFloat | None) -> ThresholdWait:
        """reached() as an operation, which is watched when this returns, awaited or not.

        Args, Raises: as reached(), whose TimeoutError an await of the operation raises.
        """
        op = ThresholdWait(self, as_int("offset", offset), timeout)
        self.purgatory.watch(op, (key_of(self, op.target),))
        op.enter()
        return op

    def advance(self, value: SupportsIndex) -> int:
        """Raise the value to *value* (no effect if lower) and complete the waits it satisfies, lowest offset first.

        Called from a hook during a check, it completes them when that check finishes, and returns 0 (I7).

        Returns: how many operations ended.
        Raises: TypeError: *value* is no int. RuntimeError: called from another thread, while something waits for it.
        Cost: O(log offsets) and one check per offset that something waits for.
        """
        return raise_value(self, as_int("value", value))

    def advance_soon(self, value: SupportsIndex) -> None:
        """advance() on the next loop iterations, in slices of at most ``turn_budget``: for many waits at once.

        The value is raised now. (An advance() meanwhile completes at once what no slice has come to yet.)

        Raises: as advance().
        """
        begin_raise(self, as_int("value", value))
        mark_slice(self)

    def complete_all(self) -> int:
        """Complete every wait that has begun, with the value as it is. Waits that begin later wait.

        Called from a hook during a check, it completes them when that check finishes, and returns 0 (I7). A produce()
        that waits here goes on, as it is not acked.

        Returns: how many operations ended.
        Raises: RuntimeError: called from another thread, while something waits.
        Cost: O(offsets log offsets), and one check per offset that something waits for.
        Source: Kafka raft ThresholdPurgatory.completeAll.
        """
        refuse_other_thread(self)
        self._round += 1
        return check_every_offset(self)

    def fail(self, exc: Exception) -> int:
        """End every wait, now and later, with *exc*: leadership is lost, say. Only the first call has an effect.

        Returns: how many operations ended; 0 from a hook during a check, as advance().
        Raises: TypeError: *exc* is no instance of Exception, or a StopIteration. RuntimeError: called from another
            thread, while something waits.
        """
        require_error(exc)
        refuse_other_thread(self)
        if self._failure is None:
            self._failure = self._obstacle = Failure(exc)
        return check_every_offset(self)


@final
class ThresholdWait(WatermarkWait):
    """One wait for one offset; see ThresholdWatchers.watch()."""

    __slots__ = ("_entered", "_offsets", "_round")

    def __init__(self, offsets: Offsets, offset: int, timeout: Any) -> None:
        super().__init__(offsets._reached, offset, timeout)
        self._offsets: Final = offsets
        self._round: Final = offsets._round
        self._entered = False

    def enter(self) -> None:
        """Have an advance() look after it, if it still waits."""
        if is_pending(self):
            enter(self._offsets, self.target)
            self._entered = True

    def try_complete(self) -> bool:
        if self._offsets._obstacle is not None:
            error = error_at(self._offsets, self.target)
            if error is not None:
                return self.fail(error)
        if self._round != self._offsets._round:
            return self.force_complete()
        return super().try_complete()

    def on_complete(self) -> int:
        self._leave()
        return self.watermark.value

    def on_expiration(self) -> None:
        raise TimeoutError(f"{self._offsets.key!r} had not reached offset {self.target} after {self.timeout} s")

    def on_cancel(self) -> None:
        self._leave()

    def fail(self, exc: Exception) -> bool:
        ended = super().fail(exc)
        if ended:
            self._leave()
        return ended

    def _leave(self) -> None:
        if self._entered:
            self._entered = False
            leave(self._offsets, self.target)


def key_of(offsets: Offsets, offset: int) -> tuple[str, Hashable, int]:
    """The watch key of *offset*."""
    return "offset", offsets.key, offset


def enter(offsets: Offsets, offset: int) -> None:
    """An operation is parked under *offset*, which is above the value."""
    offsets._queue.add(offset)


def leave(offsets: Offsets, offset: int) -> None:
    """An operation that entered has ended. (An offset that is reached is dropped as a whole.)"""
    if offset > offsets._reached.value:
        offsets._queue.discard(offset)


def has_reached(offsets: Offsets, offset: int) -> bool:
    return offsets._reached.value >= offset


def error_at(offsets: Offsets, offset: int) -> Exception | None:
    failure = offsets._failure
    if failure is None and offset > offsets._reached.value:
        failure = offsets._obstacle
    if failure is None:
        return None
    # It is raised for many, and each time its traceback grows: let it begin with the one that it came with.
    error = failure.exc.with_traceback(failure.traceback)
    assert isinstance(error, Exception)
    return error


def has_failed(offsets: Offsets) -> bool:
    """Was fail() called?"""
    return offsets._failure is not None


def set_obstacle(offsets: Offsets, exc: Exception | None) -> int:
    """Until the next call, end every wait for what is above the value with *exc*. Returns: how many ended."""
    offsets._obstacle = None if exc is None else Failure(exc)
    return 0 if exc is None else check_every_offset(offsets)


def refuse_other_thread(offsets: Offsets) -> None:
    """Raises: RuntimeError: something waits, and the caller is in another thread than its loop (I15)."""
    if offsets._queue.waiting:
        parts_of(offsets.purgatory).loop.check_thread()


def begin_raise(offsets: Offsets, value: int) -> None:
    if offsets._queue.may_pop(value):
        refuse_other_thread(offsets)  # before anything is changed
    if value > offsets._reached.value:
        set_value(offsets._reached, value)


def raise_value(offsets: Offsets, value: int) -> int:
    """Raise the value, and complete what waits for that. Returns: how many ended."""
    begin_raise(offsets, value)
    ended = 0
    try:
        while (offset := offsets._queue.pop(offsets._reached.value)) is not None:
            ended += offsets.purgatory.check_and_complete(key_of(offsets, offset))
    except BaseException:
        mark_slice(offsets)  # it is on its way out of a hook; what it cut off is not lost
        raise
    return ended


def mark_slice(offsets: Offsets) -> None:
    """Have the next offsets that are reached checked soon, and after them the others."""
    for _ in range(MARK_SLICE):
        offset = offsets._queue.pop(offsets._reached.value)
        if offset is None:
            return
        offsets.purgatory.check_and_complete_soon(key_of(offsets, offset))
    loop = parts_of(offsets.purgatory).loop
    if offsets._marking is not loop.running:
        offsets._marking = loop.running
        loop.call_soon(mark_next_slice, offsets)


def mark_next_slice(offsets: Offsets) -> None:
    offsets._marking = None
    if offsets.purgatory.is_open:
        mark_slice(offsets)


def check_every_offset(offsets: Offsets) -> int:
    """Check every offset that something waits for, lowest first. Returns: how many operations ended."""
    keys = [key_of(offsets, offset) for offset in sorted(offsets._queue.waiting)]
    ended = 0
    try:
        for key in keys:
            ended += offsets.purgatory.check_and_complete(key)
    except BaseException:
        for key in keys:
            offsets.purgatory.check_and_complete_soon(key)
        raise
    return ended
