"""Who waits for which offset, so that an advance touches those whom it satisfies and nobody else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from copy import copy
from heapq import heappop, heappush
from typing import Any, TypeVar

from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .arguments import require_error, require_int

T = TypeVar("T")

#: Offsets that nobody waits for any more are swept when they are more than those that somebody does, and this.
SWEEP_SLACK = 32


class ThresholdWatchers:
    """A value that only grows, and the operations that wait for it to reach their offset.

        async with Purgatory("raft") as purgatory:
            committed = ThresholdWatchers(purgatory, "log")
            wait = asyncio.create_task(committed.reached(2, timeout=30.0))
            await asyncio.sleep(0)
            assert committed.advance(1) == 0  # nobody is asked
            assert committed.advance(5) == 1
            assert await wait == 5

    check_and_complete() asks everybody who waits under a key. With 100,000 producers on one partition and a high
    watermark that advances record by record, that is quadratic; here each advance asks those whom it satisfies.

    Args:
        purgatory: where they wait.
        key: for messages; the watch keys are ``("offset", key, offset)``.
        start: the value to begin with.

    Cost: of a wait, the watch and O(log offsets); of an advance, the same per operation that it ends.
    Source: Kafka raft ThresholdPurgatory; differs: it knows its value, so that who comes late does not wait.
    """

    # The waiters are in the purgatory, each under its offset. Here are the offsets alone: whatever way an operation
    # ends, nothing here keeps it.
    __slots__ = ("_error", "_heap", "_obstacle", "_value", "_waiting", "key", "purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable, *, start: int = 0) -> None:
        require_int("start", start)
        hash(key)
        self.purgatory = purgatory
        self.key = key
        self._value = start
        self._error: Exception | None = None  # ends everything, for good
        self._obstacle: Exception | None = None  # ends every wait for what is above the value, while it is there
        self._waiting: dict[int, int] = {}  # how many wait, by offset; every offset in it is above the value
        self._heap: list[int] = []  # the same offsets, and some for which nobody waits any more

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} value={self._value} waiting={self.waiting}>"

    @property
    def value(self) -> int:
        return self._value

    @property
    def waiting(self) -> int:
        """How many wait for an offset; once the purgatory is closed, how many did. Cost: O(offsets)."""
        return sum(self._waiting.values())

    def error_for(self, offset: int) -> Exception | None:
        """What a wait for *offset* would raise now; None: nothing."""
        return self._error or (self._obstacle if offset > self._value else None)

    async def reached(self, offset: int, timeout: float | None = None) -> int:
        """Wait until the value has reached *offset*.

        Args: timeout: seconds, or None.
        Returns: the value.
        Raises: TimeoutError: it was still below at the deadline; what fail() was given; whatever watch() raises.
        """
        return await self.watch(offset, timeout)

    def watch(self, offset: int, timeout: float | None = None) -> ThresholdWait:
        """reached(), as an operation that is watched when this returns, awaited or not."""
        require_int("offset", offset)
        op = ThresholdWait(self, offset, timeout)
        self._enter(offset)
        try:
            return self.purgatory.watch(op, (("offset", self.key, offset),))
        except BaseException:
            self._leave(offset)
            raise

    def advance(self, value: int) -> int:
        """The value is *value* now; a smaller one changes nothing. Ends who waited for that, lowest offset first.

        Returns: how many that ended; 0 from inside a hook that a check runs, which puts them off (I7).
        """
        require_int("value", value)
        if value > self._value:
            self._value = value
        try:
            return self._work_off(self.purgatory.check_and_complete)
        except BaseException:
            # On its way out of a hook; what it cut off is not lost.
            self._work_off(self.purgatory.check_and_complete_soon)
            raise

    def fail(self, exc: Exception) -> int:
        """End it for good, with a copy of *exc* for everybody who waits or comes later. Returns: how many that ended.

        Raises: TypeError: *exc* is no instance of Exception, or a StopIteration.
        """
        require_error(exc)
        self._error = self._obstacle = self._error or exc
        return self._check_all()

    def _work_off(self, check: Callable[[Hashable], int | None]) -> int:
        """Check who waits for what is reached now."""
        heap, waiting = self._heap, self._waiting
        ended = 0
        while heap and heap[0] <= self._value:
            offset = heappop(heap)
            if waiting.pop(offset, 0):
                ended += check(("offset", self.key, offset)) or 0
        return ended

    def _check_all(self) -> int:
        keys = [("offset", self.key, offset) for offset in sorted(self._waiting)]
        try:
            return sum(map(self.purgatory.check_and_complete, keys))
        except BaseException:
            for key in keys:
                self.purgatory.check_and_complete_soon(key)
            raise

    def _enter(self, offset: int) -> None:
        """Somebody is going to wait for *offset*, unless it is reached."""
        if offset <= self._value:
            return
        if offset in self._waiting:
            self._waiting[offset] += 1
        else:
            self._waiting[offset] = 1
            heappush(self._heap, offset)

    def _leave(self, offset: int) -> None:
        """Who has entered has ended. If it was reached, its offset is gone already."""
        count = self._waiting.get(offset, 0)
        if count > 1:
            self._waiting[offset] = count - 1
        elif count == 1:
            del self._waiting[offset]
            if len(self._heap) > 2 * len(self._waiting) + SWEEP_SLACK:
                self._heap[:] = sorted(self._waiting)


class ThresholdOperation(DelayedOperation[T]):
    """Stands in the lists of ThresholdWatchers until it ends."""

    __slots__ = ()

    @abstractmethod  # mypy sees to it; Python does not, for a subclass of a compiled class
    def leave(self) -> None:
        """Out of those lists."""

    def on_cancel(self) -> None:
        self.leave()

    def fail(self, exc: Exception) -> bool:
        ended = super().fail(exc)
        if ended:
            self.leave()
        return ended


class ThresholdWait(ThresholdOperation[int]):
    """One wait for one offset; see ThresholdWatchers.watch()."""

    __slots__ = ("offset", "watchers")

    def __init__(self, watchers: ThresholdWatchers, offset: int, timeout: float | None) -> None:
        super().__init__(timeout)
        self.watchers = watchers
        self.offset = offset

    def try_complete(self) -> bool:
        watchers = self.watchers
        if watchers._obstacle is not None and (error := watchers.error_for(self.offset)) is not None:
            return self.fail(copy_of(error))
        return watchers._value >= self.offset and self.force_complete()

    def on_complete(self) -> int:
        value = self.watchers._value
        if value < self.offset:
            self.leave()
        return value

    def on_expiration(self) -> None:
        raise TimeoutError(f"{self.watchers.key!r} had not reached offset {self.offset} after {self.timeout} s")

    def leave(self) -> None:
        self.watchers._leave(self.offset)


def copy_of(exc: Exception) -> Exception:
    """One to raise: the very same one, raised in many tasks, would gather the traceback of each."""
    try:
        twin: Any = copy(exc)
    except Exception:  # it cannot be made from its own args
        return exc
    return twin if isinstance(twin, type(exc)) else exc
