"""Deadlines: the timer in nanoseconds, and the expiry of operations."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from math import inf
from typing import Final, cast, final

from ..timer import Timer
from ..timer.delay_queue import NEVER
from ..timer.ring import set_deadline
from .alarm import Alarm
from .endings import call_each_then_raise, expire
from .loop import Loop
from .nanoseconds import ceil_ns, floor_ns
from .operation import Operation, is_due, is_pending, seconds_of
from .watchers import Watchers

#: Tasks to cascade between two readings of the clock.
CASCADE_SLICE: Final = 128


@final
class Deadlines:
    """Args: tick_ns: the timer's tick in nanoseconds."""

    __slots__ = ("_again", "_alarm", "_loop", "_watchers", "is_expiring_all", "timer")

    def __init__(self, tick_ns: int, wheel_size: int, loop: Loop, alarm: Alarm, watchers: Watchers) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self._watchers: Final = watchers
        self._again = False
        self.timer: Final = Timer(tick_ns, wheel_size)
        self.is_expiring_all = False

    def start(self) -> None:
        """Start the timer at the current time."""
        self.timer.start_at(self._loop.now())

    def arm(self, op: Operation, now: float) -> None:
        """Start the timeout of the parked *op*, at *now* seconds."""
        seconds = seconds_of(op)
        if seconds == inf:
            return
        timer = self.timer
        timer.catch_up(floor_ns(now))
        set_deadline(op, ceil_ns(now) + ceil_ns(seconds))
        if not timer.add(op):
            # A timeout of 0 is due at once, but must not expire inside this call: make it due at the next tick.
            set_deadline(op, timer.now + 1)
            timer.add(op)
        if timer.soonest() < self._alarm.until:
            self.sleep()

    def disarm(self, op: Operation) -> None:
        self.timer.cancel(op)

    def sleep(self) -> None:
        """Let the clock sleep until the next expiration, no longer (I4)."""
        due = self.timer.next_expiration()
        self._alarm.sleep_until(NEVER if due is None else due)

    def expire_due(self, share: float) -> bool:
        """Expire what is due, in order of tick-rounded deadline, for *share* seconds. Returns: whether more is due."""
        timer, loop = self.timer, self._loop
        now = loop.now()
        stop = loop.turn_time() + share
        while True:
            task = timer.poll(now, CASCADE_SLICE)
            if task is not None:
                op = cast(Operation, task)
                try:  # noqa: SIM105 suppress() is a call
                    expire(op)
                except CancelledError:
                    pass  # an operation's failure: it must not be taken for a cancellation of the clock task (I11)
            else:
                due = timer.next_expiration()
                if due is None or due > now:
                    return False
            if loop.turn_time() >= stop:
                return True

    def expire_all(self) -> int:
        """Expire everything that is pending, whatever its deadline (the exception to I1). Returns: how many ended."""
        self._again = True
        if self.is_expiring_all:  # called from a hook it runs: repeat when finished (I7)
            return 0
        self.is_expiring_all = True
        ended = 0
        try:
            while self._again:
                self._again = False
                ended += len(call_each_then_raise(self._watchers.all_pending(), self._expire_now))
        finally:
            self.is_expiring_all = False
        return ended

    def _expire_now(self, op: Operation) -> bool:
        if not is_pending(op) or is_due(op):  # due: it is in its last try, up the stack, or in its last read
            return False
        self.timer.cancel(op)
        return expire(op)
