"""Calls: a check with a limit has that many operations look, the oldest first, and loses none of them.

A *look* is a try of an operation, or a read of an awaited condition. What is looked for may be taken by it: an item, a
lock, a place. So each item needs a look that begins after it is there, by an operation that would take it. These rules
see to that (C5: at rest, no key has both an item and a waiter that would take it):

C1  A check with ``limit=n`` makes n calls of its key, numbered with it. A call goes to the oldest operation that can
    look: it is in no read and in no pause after an error, it holds no call, and it has not looked since. While all
    such are busy, the call is owed to the first that becomes free. If all have looked since, it ends.
C2  It is answered by an operation that completes by a look that began after it, under that key alone. What an operation
    with several keys takes may be another's: it passes the call on. So does one that ends before it has looked, and one
    that finds nothing but takes nothing, either.
C3  A look that failed or was cancelled may have put back what it took, and so may on_undelivered(): each key of the
    operation is called once more. (A try begins and ends at once, so nobody has looked meanwhile: if it fails, the
    call goes on.)
C4  A hand-out that finds nothing was overtaken: the call ends. So an item costs one claim.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Final, NamedTuple, final

from mypy_extensions import i64, mypyc_attr

from .awaiter import AwaitableOperation
from .bell import Bell
from .deadlines import ClockAlarm
from .loop import Loop
from .nanoseconds import timeout_seconds
from .operation import COMPLETED, EXPIRED, PENDING, Operation, Owner
from .watchers import WaitLine, Watchers


class KeyCall(NamedTuple):
    """A call of *key*, by the check with this *number*.

    Args: after: the number, in line, of the operation that is called. late: ``WaitLine.late`` at that time.
    """

    key: Hashable
    number: int
    after: int
    late: int


@final
class Reading(Bell):
    """The reads of an operation under *keys*, as calls see them. *takes*: they may take what they find."""

    __slots__ = ("call", "due_at", "is_busy", "is_excused", "is_last", "keys", "seen", "takes")

    def __init__(self, owner: Owner, keys: tuple[Hashable, ...], takes: bool) -> None:
        super().__init__(owner)
        self.takes = takes
        #: The call that it holds; the number of the newest check when the last read began; and whether a read, or a
        #: pause after an error, is under way.
        self.call: KeyCall | None = None
        self.seen: i64 = 0
        self.is_busy = False
        #: The keys of the operation, for its reads that go on after its end.
        self.keys = keys
        #: The read under way began at the deadline; no check was due then; and the time of that.
        self.is_last = False
        self.is_excused = False
        self.due_at = 0.0

    def excuse(self) -> None:
        """No check is missing if the read under way finds something at the deadline."""
        self.is_excused = True

    def go_on(self) -> None:
        """The read under way goes on, though its task leaves it: its call is not passed on, and nothing is back yet."""
        self.call = None
        self.takes = False


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadingOperation(AwaitableOperation):
    """An operation whose looks may be reads of a task. *hands_out*: a look takes what it finds."""

    __slots__ = ("_op_hands_out", "_op_reading")

    def __init__(self, timeout: object, hands_out: bool = False) -> None:
        self._op_timeout = timeout_seconds(timeout)
        #: None: its looks are tries.
        self._op_reading: Reading | None = None
        self._op_hands_out = hands_out


class Calls:
    """The part of the checks that gives calls to operations."""

    def __init__(self, loop: Loop, alarm: ClockAlarm, watchers: Watchers) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self._watchers: Final = watchers
        #: Calls that were passed on, and wait for an iteration.
        self.passed: Final[deque[KeyCall]] = deque()
        #: How many operations the calls that are given now have ended.
        self.ended = 0

    @abstractmethod
    def _walk(self, key: Hashable, entry: Any, number: i64, limit: int) -> int:
        """Try everything in *entry* for the check with this *number*; see checks."""

    @abstractmethod
    def _postpone(self, key: Hashable, limit: int) -> None:
        """Check *key* with *limit* on the next iterations."""

    def give(self, key: Hashable, number: i64, limit: int, after: int = 0, late: int = 0) -> Iterator[None]:
        """Have *limit* operations under *key* look, the oldest first. Yields after each look.

        Args: after, late: of a call that was passed on: as for KeyCall.
        """
        self.ended = 0
        line: WaitLine | None = self._loop.guarded(self._watchers.line_of, key)
        if line is None:
            return
        line.newest = max(line.newest, number)
        while limit > 0:
            if late != line.late:  # one can look again that was busy, and so has not looked since
                after, late = 0, line.late
            op = line.next(after)
            if op is None:
                line.owe(number, limit)
                return
            after = op._op_number
            reading = op._op_reading if isinstance(op, ReadingOperation) else None
            if reading is None:
                limit -= self._try(key, op, number, limit)
            elif reading.is_busy or reading.call is not None:
                line.take(after)
                continue
            elif reading.seen >= number:
                continue
            else:
                line.take(after)
                reading.call = KeyCall(key, number, after, line.late)
                limit -= 1
                self._walk(key, op, number, limit)
            yield

    def pass_on(self, reading: Reading) -> None:
        """Have another operation look for the call that *reading* holds, if any (C2)."""
        call, reading.call = reading.call, None
        if call is not None:
            self.passed.append(call)
            self._alarm.wake()

    def end_look(self, op: ReadingOperation, reading: Reading, is_found: bool, has_failed: bool) -> None:
        """The read of *op* is done. *has_failed*: or it was cancelled."""
        if has_failed or op._op_state > EXPIRED:
            if reading.takes:
                reading.call = None
                self.call_again(reading.keys)
        elif op._op_hands_out if not is_found else len(reading.keys) == 1:
            reading.call = None
        self.pass_on(reading)

    def call_again(self, keys: tuple[Hashable, ...]) -> None:
        """Call each of *keys* once more: something may have been put back (C3)."""
        for key in keys:
            self._postpone(key, 1)

    def free(self, op: Operation, reading: Reading) -> None:
        """The pending *op* can look again. It takes a call that is owed (C1)."""
        for key in op._op_keys:
            line: object = self._entry_of(key)
            if not isinstance(line, WaitLine):
                continue
            if line.put_back(op._op_number) and reading.seen < line.newest:
                line.late += 1
            number = line.pay(reading.seen) if reading.call is None else 0
            if number > 0:
                reading.call = KeyCall(key, number, op._op_number, line.late)
                reading.ring(number)

    def _entry_of(self, key: Hashable) -> Any:
        return self._loop.guarded(self._watchers.by_key.get, key)

    def _try(self, key: Hashable, op: Operation, number: i64, limit: int) -> int:
        """Have *op*, which looks at once, look for one of *limit* calls.

        Returns: how many of them that has answered (C2), or ended (C4).
        """
        if op._op_trying:  # by its deadline or by watch(): a try inside that try could take a second result
            self._postpone(key, 1)
            return 1
        has_several = len(op._op_keys) > 1
        self.ended += self._walk(key, op, number, limit)
        if op._op_state == PENDING:
            return int(isinstance(op, ReadingOperation) and op._op_hands_out)
        return int(op._op_state == COMPLETED and not has_several)
