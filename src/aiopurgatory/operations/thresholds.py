"""Waits for an offset: an advance touches only the waits it satisfies. Compiled."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from heapq import heappop, heappush
from typing import Any, Final, SupportsFloat, SupportsIndex, cast, final

from ..arguments import described, require_error, require_int, require_methods
from ..core.kit import AwaitableOperation, Failure, core_of, is_pending, park_awaited
from ..delayed_operation import wait
from ..errors import DeadlineError
from ..purgatory import Purgatory

#: Offsets are swept when they outnumber the purgatory's watch entries by more than their number and this.
SWEEP_SLACK: Final = 32


@final
class Thresholds:
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

    __slots__ = ("_failure", "_key", "_noted", "_obstacle", "_offsets", "_purgatory", "_value")

    def __init__(self, purgatory: Purgatory, key: Hashable, *, start: SupportsIndex = 0) -> None:
        require_methods("purgatory", purgatory, ("watch",), "Purgatory")
        hash(key)
        self._purgatory: Final = purgatory
        self._key: Final = key
        self._value = as_int("start", start)
        # _failure ends every wait, for good. _obstacle, while set, ends every wait for an offset above the value.
        self._failure: Failure | None = None
        self._obstacle: Failure | None = None
        # The offsets that operations wait for, as a heap and as a set. An offset whose waits have ended otherwise stays
        # until it is reached, or swept: who waits is known to the purgatory alone.
        self._offsets: Final[list[int]] = []
        self._noted: Final[set[int]] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {described(self._key)} value={self.value} waiting={len(self)}>"

    def __len__(self) -> int:
        purgatory = self._purgatory
        return sum([len(purgatory.waiting(key_of(self, offset))) for offset in self._noted])

    @property
    def purgatory(self) -> Purgatory:
        """The purgatory that holds the operations."""
        return self._purgatory

    @property
    def key(self) -> Hashable:
        """The name for messages, which is also part of the watch keys."""
        return self._key

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
            note_offset(self, op.offset)
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
        if self._failure is None:
            self._failure = self._obstacle = Failure(exc)
        return check_every_offset(self)


@final
class ThresholdWait(AwaitableOperation):
    """One wait for one offset; see Thresholds.reached(). A timeout of 0 means one try."""

    __slots__ = ("_thresholds", "offset")

    def __init__(self, thresholds: Thresholds, offset: int, timeout: Any) -> None:
        super().__init__(timeout)
        self.offset: Final = offset
        self._thresholds: Final = thresholds

    def __await__(self) -> Generator[Any, None, int]:
        """Wait for the value. Raises: DeadlineError at the deadline; otherwise as DelayedOperation."""
        return wait(self)

    def try_complete(self) -> bool:
        if self._thresholds._obstacle is not None:
            error = error_at(self._thresholds, self.offset)
            if error is not None:
                return self.fail(error)
        return self._thresholds._value >= self.offset and self.force_complete()

    def on_complete(self) -> int:
        return self._thresholds._value

    def on_expiration(self) -> None:
        raise DeadlineError(
            f"{described(self._thresholds._key)} had not reached offset {self.offset} after {self.timeout} s"
        )


def key_of(thresholds: Thresholds, offset: int) -> tuple[str, Hashable, int]:
    """The watch key of *offset*."""
    return "offset", thresholds._key, offset


def note_offset(thresholds: Thresholds, offset: int) -> None:
    """Note that an operation waits for *offset*. Cost: O(1) if it is the highest, else O(log offsets)."""
    noted, offsets = thresholds._noted, thresholds._offsets
    if offset in noted:
        return
    watchers = core_of(thresholds._purgatory).watchers
    if len(noted) > 2 * watchers.entries + SWEEP_SLACK:
        offsets[:] = sorted([each for each in noted if watchers.count(key_of(thresholds, each))])
        noted.intersection_update(offsets)
    noted.add(offset)
    heappush(offsets, offset)


def take_key(thresholds: Thresholds) -> tuple[str, Hashable, int]:
    """Forget the lowest offset. Returns: its watch key."""
    offset = heappop(thresholds._offsets)
    thresholds._noted.remove(offset)
    return key_of(thresholds, offset)


def error_at(thresholds: Thresholds, offset: int) -> Exception | None:
    failure = thresholds._failure
    if failure is None and offset > thresholds._value:
        failure = thresholds._obstacle
    if failure is None:
        return None
    # It is raised for many waits, which would each lengthen its traceback: start from the original one.
    error = failure.exc.with_traceback(failure.traceback)
    assert isinstance(error, Exception)
    return error


def set_obstacle(thresholds: Thresholds, exc: Exception | None) -> int:
    """Until the next call, fail every wait for an offset above the value with *exc*. Returns: how many ended."""
    thresholds._obstacle = None if exc is None else Failure(exc)
    return 0 if exc is None else check_every_offset(thresholds)


def refuse_other_thread(thresholds: Thresholds) -> None:
    """Raises: RuntimeError: something waits, and the caller is in another thread than its loop."""
    # Invariants: I15.
    loop = core_of(thresholds._purgatory).loop
    if loop.is_foreign_thread() and len(thresholds) > 0:
        raise RuntimeError(loop.wrong_thread())


def raise_value(thresholds: Thresholds, value: int) -> int:
    """Raise the value, and complete the waits it satisfies. Returns: how many ended."""
    offsets, purgatory = thresholds._offsets, thresholds._purgatory
    if offsets and offsets[0] <= value:
        refuse_other_thread(thresholds)  # before anything is changed
    if value > thresholds._value:
        thresholds._value = value
    ended = 0
    try:
        while offsets and offsets[0] <= thresholds._value:
            ended += purgatory.check_and_complete(take_key(thresholds))
    except BaseException:  # a hook raised: the rest is checked soon
        while offsets and offsets[0] <= thresholds._value:
            purgatory.notify(take_key(thresholds))
        raise
    return ended


def check_every_offset(thresholds: Thresholds) -> int:
    """Check every offset that has waits, lowest first. Returns: how many operations ended."""
    watchers = core_of(thresholds._purgatory).watchers
    keys = [key_of(thresholds, offset) for offset in sorted(thresholds._noted)]
    watched = [key for key in keys if watchers.count(key) > 0]
    return thresholds._purgatory.check_each(watched) if watched else 0


def as_int(parameter: str, value: object) -> int:
    """Return *value*, the argument for *parameter*. Raises: TypeError: it is not an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        require_int(parameter, value)
    return cast(int, value)
