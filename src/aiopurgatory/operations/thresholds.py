"""Waits for an offset: an advance touches only the waits it satisfies. Compiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable
from heapq import heappop, heappush
from typing import Any, Final, SupportsFloat, SupportsIndex, final

from mypy_extensions import mypyc_attr

from ..arguments import described, require_error, require_hashable, require_int, require_methods
from ..core.kit import AwaitableOperation, Failure, core_of, is_pending, park_awaited
from ..delayed_operation import wait
from ..errors import DeadlineError
from ..purgatory import Purgatory

#: Offsets without waits are swept when they outnumber the offsets with waits by more than this.
SWEEP_SLACK: Final = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class Collection:
    """The waits in a purgatory for one thing, which has a key: what all such classes have."""

    __slots__ = ("_key", "_purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable) -> None:
        require_methods("purgatory", purgatory, ("watch",), "Purgatory")
        require_hashable("key", key)
        self._purgatory: Final = purgatory
        self._key: Final = key

    @property
    def purgatory(self) -> Purgatory:
        """The purgatory in which they wait."""
        return self._purgatory

    @property
    def key(self) -> Hashable:
        """The key of what they wait for."""
        return self._key


@final
class OffsetQueue:
    """Counts the waits by offset. Call add() when a wait begins, and discard() when it ends without pop()."""

    __slots__ = ("_ascending", "_strays", "waiting")

    def __init__(self) -> None:
        #: The number of waits, by offset.
        self.waiting: Final[dict[int, int]] = {}
        # The same offsets, and some without waits. Most arrive in ascending order; the others go into a heap, where
        # each costs several times as much.
        self._ascending: Final[deque[int]] = deque()
        self._strays: Final[list[int]] = []

    def add(self, offset: int) -> None:
        """Count one more wait for *offset*. Cost: O(1) if it is the highest, else O(log offsets)."""
        waiting, ascending = self.waiting, self._ascending
        if offset in waiting:
            waiting[offset] += 1
            return
        waiting[offset] = 1
        if not ascending or offset > ascending[-1]:
            ascending.append(offset)
        else:
            heappush(self._strays, offset)

    def discard(self, offset: int) -> None:
        """Count one wait less for *offset*, which was not popped."""
        waiting, ascending, strays = self.waiting, self._ascending, self._strays
        count = waiting[offset]
        if count > 1:
            waiting[offset] = count - 1
            return
        del waiting[offset]
        if len(ascending) + len(strays) > 2 * len(waiting) + SWEEP_SLACK:
            strays.clear()
            ascending.clear()
            ascending.extend(sorted(waiting))

    def may_pop(self, value: int) -> bool:
        """Return False if nothing waits for *value* or a lower offset."""
        ascending, strays = self._ascending, self._strays
        return (bool(ascending) and ascending[0] <= value) or (bool(strays) and strays[0] <= value)

    def pop(self, value: int) -> int | None:
        """Remove and return the lowest offset up to *value* that has waits; None if there is none."""
        ascending, strays, waiting = self._ascending, self._strays, self.waiting
        while self.may_pop(value):
            is_stray = bool(strays) and (not ascending or strays[0] < ascending[0])
            offset = heappop(strays) if is_stray else ascending.popleft()
            if waiting.pop(offset, 0):
                return offset
        return None


@final
class Thresholds(Collection):
    """A value that only grows, and the operations that wait for it to reach their offset.

        async with Purgatory("raft") as purgatory:
            committed = Thresholds(purgatory, "log")
            wait = committed.reached(2, timeout=30.0)
            assert committed.advance(1) == 0  # nothing is tried
            assert committed.advance(5) == 1
            assert await wait == 5

    check_and_complete() tries every operation that waits under a key. With 100,000 producers on one partition and a
    high watermark that advances record by record, that is quadratic. Here an advance tries only the waits that it
    satisfies. ``len()`` counts the waits.

    Args:
        purgatory: holds the operations.
        key: a name for messages; the watch keys are ``("offset", key, offset)``.
        start: the initial value. Default 0.

    Raises: TypeError: *start* is not an int, or *key* is not hashable.
    Cost: a wait, watch() and O(log offsets); an advance, the same per operation that it ends.
    """

    # Source: Kafka raft ThresholdPurgatory; differs: it knows its value, so a wait for a reached offset ends at once.

    __slots__ = ("_failure", "_has_failed", "_queue", "_value")

    def __init__(self, purgatory: Purgatory, key: Hashable, *, start: SupportsIndex = 0) -> None:
        super().__init__(purgatory, key)
        self._value = as_int("start", start)
        # While set, _failure ends every wait for an offset above the value; by fail(), every wait, for good.
        self._failure: Failure | None = None
        self._has_failed = False
        self._queue: Final = OffsetQueue()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {described(self._key)} value={self.value} waiting={len(self)}>"

    def __len__(self) -> int:
        return sum([len(self._purgatory.waiting(key_of(self, offset))) for offset in self._queue.waiting])

    @property
    def value(self) -> int:
        """The value now."""
        return self._value

    def error_for(self, offset: SupportsIndex) -> Exception | None:
        """Return the error that a wait for *offset* would raise now, DeadlineError aside; None if there is none."""
        return error_at(self, as_int("offset", offset))

    def reached(self, offset: SupportsIndex, *, timeout: SupportsFloat | None) -> ThresholdWait:
        """Wait until the value has reached *offset*: await the operation that this returns. It waits already.

        Args: timeout: seconds, or None for no deadline. 0 or less: do not wait.

        Returns: an operation. Its result is the value.

        Raises:
            TypeError: *offset* is not an int.
            Exception: raised by watch() of the purgatory. By the await: DeadlineError, if the value was still below
                *offset* at the deadline; or the argument of fail().
        """
        op = ThresholdWait(self, as_int("offset", offset), timeout)
        park_awaited(self._purgatory, op, (key_of(self, op.offset),))
        if is_pending(op):
            self._queue.add(op.offset)
            op.is_counted = True
        return op

    def advance(self, value: SupportsIndex) -> int:
        """Raise the value to *value* (no effect if lower) and complete the waits it satisfies, lowest offset first.

        All of them end in this call. If they may be very many, advance in several steps, with an
        ``await asyncio.sleep(0)`` after each. Called from a hook during a check, it completes them when that check
        finishes, and returns 0.

        Returns: how many operations ended.
        Raises: TypeError: *value* is not an int. RuntimeError: called from another thread, while a wait is reached.
        Cost: O(log offsets) and one check for each reached offset that has waits.
        """
        # Invariants: I7.
        return raise_value(self, as_int("value", value))

    def fail(self, exc: Exception) -> int:
        """Fail every wait, now and later, with *exc*, for instance when leadership is lost. The first call counts.

        Returns: how many operations ended; 0 if called from a hook during a check, as advance().

        Raises:
            TypeError: *exc* is not an instance of Exception, or is a StopIteration.
            RuntimeError: called from another thread, while something waits.
        """
        require_error(exc)
        refuse_other_thread(self)
        if not self._has_failed:
            self._has_failed = True
            self._failure = Failure(exc)
        return check_every_offset(self)


@final
class ThresholdWait(AwaitableOperation):
    """One wait for one offset; see Thresholds.reached(). A timeout of 0 means one try."""

    __slots__ = ("_thresholds", "is_counted", "offset")

    def __init__(self, thresholds: Thresholds, offset: int, timeout: Any) -> None:
        super().__init__(timeout)
        self.offset: Final = offset
        self._thresholds: Final = thresholds
        #: Whether the thresholds count it, so that advance() completes it.
        self.is_counted = False

    def __await__(self) -> Generator[Any, None, int]:
        """Wait for the value. Raises: DeadlineError at the deadline; otherwise as DelayedOperation."""
        return wait(self)

    def try_complete(self) -> bool:
        if self._thresholds._failure is not None:
            error = error_at(self._thresholds, self.offset)
            if error is not None:
                return self.fail(error)
        return self._thresholds._value >= self.offset and self.force_complete()

    # Not in on_end(): one more hook would cost an advance 4 %.
    def on_complete(self) -> int:
        self._leave()
        return self._thresholds._value

    def on_expiration(self) -> None:
        raise DeadlineError(
            f"{described(self._thresholds._key)} had not reached offset {self.offset} after {self.timeout} s"
        )

    def on_cancel(self) -> None:
        self._leave()

    def on_failure(self, exc: BaseException) -> None:
        self._leave()

    def _leave(self) -> None:
        if self.is_counted:
            leave(self._thresholds, self.offset)


def key_of(thresholds: Thresholds, offset: int) -> tuple[str, Hashable, int]:
    """The watch key of *offset*."""
    return "offset", thresholds._key, offset


def leave(thresholds: Thresholds, offset: int) -> None:
    """Uncount an operation that has ended. (A reached offset was already popped as a whole.)"""
    if offset > thresholds._value:
        thresholds._queue.discard(offset)


def error_at(thresholds: Thresholds, offset: int) -> Exception | None:
    failure = thresholds._failure
    if failure is None or (offset <= thresholds._value and not thresholds._has_failed):
        return None
    # It is raised for many waits, which would each lengthen its traceback: start from the original one.
    error = failure.exc.with_traceback(failure.traceback)
    assert isinstance(error, Exception)
    return error


def refuse_other_thread(thresholds: Thresholds) -> None:
    """Raises: RuntimeError: something waits, and the caller is in another thread than its loop."""
    # Invariants: I15.
    if thresholds._queue.waiting:
        core_of(thresholds._purgatory).loop.check_thread()


def raise_value(thresholds: Thresholds, value: int) -> int:
    """Raise the value, and complete the waits it satisfies. Returns: how many ended."""
    queue = thresholds._queue
    if queue.may_pop(value):
        refuse_other_thread(thresholds)  # before anything is changed
    if value > thresholds._value:
        thresholds._value = value
    ended = 0
    try:
        while (offset := queue.pop(thresholds._value)) is not None:
            ended += thresholds._purgatory.check_and_complete(key_of(thresholds, offset))
    except BaseException:  # a hook raised: the rest is checked soon
        while (offset := queue.pop(thresholds._value)) is not None:
            thresholds._purgatory.notify(key_of(thresholds, offset))
        raise
    return ended


def check_every_offset(thresholds: Thresholds) -> int:
    """Check every offset that has waits, lowest first. Returns: how many operations ended."""
    keys = [key_of(thresholds, offset) for offset in sorted(thresholds._queue.waiting)]
    return thresholds._purgatory.check_each(keys) if keys else 0


def as_int(parameter: str, value: object) -> int:
    """Return *value*, the argument for *parameter*. Raises: TypeError: it is not an int."""
    return value if isinstance(value, int) and not isinstance(value, bool) else require_int(parameter, value)
