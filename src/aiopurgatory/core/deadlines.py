"""Deadlines: the timer in nanoseconds, the expiry of operations, and the alarm that wakes the clock task for it."""

from __future__ import annotations

from abc import abstractmethod
from asyncio.exceptions import CancelledError
from collections.abc import Callable
from math import inf
from typing import Any, Final, cast, final

from ..timer import Timer
from ..timer.delay_queue import NEVER
from ..timer.ring import Entry, set_deadline
from .endings import call_each_then_raise, expire
from .loop import Loop
from .nanoseconds import ceil_ns, ns_to_seconds
from .operation import NOT_DUE, PENDING, Operation
from .watchers import Watchers

#: Tasks to cascade between two readings of the clock.
CASCADE_SLICE: Final = 128
#: The value of ``until`` while the clock is awake: nothing is earlier. (Python is slow with integers beyond 2**62.)
AWAKE: Final = -(1 << 62)
#: Nanoseconds: if the clock wakes later than this after its time, the loop was stalled.
STALLED: Final = 10_000_000
#: Loop iterations to read in after a stall, before anything expires. A handler that awaits a stream needs two or three.
READINGS: Final = 5


@final
class ClockAlarm:
    """The clock task's one armed call, the time it sleeps until, and how to wake it earlier.

    At most one call of the clock is armed (I3). The sleep follows from the timer alone (I4).
    """

    def __init__(self) -> None:
        #: Nanoseconds: the sleeping clock wakes by then. Or AWAKE, or NEVER.
        self.until = AWAKE
        #: How often the armed call fired.
        self.wakeups = 0
        self._handle: Any = None
        self._armed_for = NEVER
        self._call_at: Any = None
        self._ring: Callable[[], object] = int
        #: Makes the clock work on the next loop iteration.
        self.wake: Callable[[], object] = int

    def connect(self, call_at: Any, ring: Callable[[], object], wake: Callable[[], object]) -> None:
        """Args: call_at: Clock.call_at(). ring: called when the armed time comes. wake: ends the clock's sleep."""
        self._call_at = call_at
        self._ring = ring
        self.wake = wake

    def sleep_until(self, due: int) -> None:
        """Arm a call for *due*; NEVER arms none."""
        if self._handle is not None:
            if self._armed_for <= due:
                # Its bucket was emptied, or is still there. The alarm may ring for nothing. That costs less than
                # cancelling and re-arming it each time the earliest operation ends.
                self.until = self._armed_for
                return
            self._handle.cancel()
            self._handle = None
        self.until = self._armed_for = due
        if due != NEVER:
            self._handle = self._call_at(ns_to_seconds(due), self._ring)

    def rang(self) -> None:
        """Note that the armed call has fired."""
        self._handle = None
        self.wakeups += 1
        self.until = AWAKE

    def disconnect(self) -> None:
        """Cancel the armed call and drop all references: nothing is armed or woken after this."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.until = AWAKE
        self._call_at = None
        self._ring = self.wake = int

    def verify(self, due: int | None) -> None:
        """Check that the sleeping clock wakes in time for *due*. Raises: AssertionError: I3, or I4, does not hold."""
        is_armed = self._handle is not None
        assert is_armed or due is None, "I4: operations wait for a deadline and nothing is armed"
        assert due is None or self.until <= due, f"I4: armed for {self.until}, due at {due}"
        assert is_armed == (self.until < NEVER), "I3: armed without a handle, or a handle without being armed"


class TimedBlock(Entry):
    """A block of code with a deadline, as the deadlines see it; see timeouts."""

    @abstractmethod
    def fire(self) -> None:
        """Called when the deadline has come."""

    @abstractmethod
    def close(self) -> None:
        """Called when the purgatory closes before the deadline."""


@final
class Deadlines:
    """Args: tick_ns: the timer's tick in nanoseconds."""

    def __init__(self, tick_ns: int, wheel_size: int, loop: Loop, alarm: ClockAlarm, watchers: Watchers) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self._watchers: Final = watchers
        self._again = False
        #: Nanoseconds: the sleeping clock should wake by then; and the loop iterations left to read in.
        self._expected = NEVER
        self._readings = 0
        self.timer = Timer(tick_ns, wheel_size)
        #: Tasks that the timers before this one have moved to a finer level.
        self.cascaded_before = 0
        self.is_expiring_all = False
        #: Blocks of code with a deadline, see timeouts. They are no operations.
        self.blocks = 0

    def start(self) -> None:
        """Start a new timer at the current time."""
        self._expected = NEVER
        self.cascaded_before += self.timer.cascaded
        finest = self.timer.wheels[0]
        self.timer = Timer(finest.tick, finest.size, self._loop.now())

    def arm(self, op: Operation, now: float) -> None:
        """Start the timeout of the parked *op*, at *now* seconds."""
        seconds = op._op_timeout
        if seconds != inf:
            at = ceil_ns(now)
            set_deadline(op, at + ceil_ns(seconds))
            self._add(op, at)

    def arm_block(self, block: TimedBlock, now: float) -> None:
        """Start the timeout of *block*, whose deadline is set, at *now* seconds."""
        self._add(block, ceil_ns(now))
        self.blocks += 1

    def disarm_block(self, block: TimedBlock) -> None:
        if self.timer.cancel(block):
            self.blocks -= 1

    def _add(self, entry: Entry, now: int) -> None:
        timer = self.timer
        timer.catch_up(now)
        if not timer.add(entry):
            # A timeout of 0 is due at once, but must not expire inside this call: make it due at the next tick.
            set_deadline(entry, timer.now + 1)
            timer.add(entry)
        if timer.soonest() < self._alarm.until:
            self.sleep()

    def take_blocks(self) -> list[TimedBlock]:
        """Take the blocks out of the timer: nothing else is there any more (I13)."""
        blocks: list[TimedBlock] = []
        self.timer.advance(NEVER, blocks.append)  # start() makes another
        self.blocks = 0
        return blocks

    def sleep(self) -> None:
        """Let the clock sleep until the next expiration, no longer (I4)."""
        due = self.timer.next_expiration()
        self._alarm.sleep_until(NEVER if due is None else due)
        self._expected = self._alarm.until

    def expire_due(self, share: float) -> bool:
        """Expire due operations for *share* seconds, by tick-rounded deadline. Returns: whether more are due."""
        timer, loop = self.timer, self._loop
        now = loop.now()
        if self._must_read(now):
            return True
        stop = loop.turn_time() + share
        while True:
            task = timer.poll(now, CASCADE_SLICE)
            if isinstance(task, TimedBlock):
                self.blocks -= 1
                task.fire()
            elif task is not None:
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

    def _must_read(self, now: int) -> bool:
        """Is the loop to read first? After a stall, events that came in time wait in the sockets (I2).

        A loop runs its timers before the tasks that read.
        """
        if now - self._expected > STALLED:
            self._expected = NEVER
            self._readings = READINGS
        if self._readings == 0:
            return False
        self._readings -= 1
        return True

    def expire_all(self) -> int:
        """Expire every pending operation, even before its deadline (the exception to I1). Returns: how many ended."""
        self._again = True
        if self.is_expiring_all:  # called from a hook it runs: repeat when finished (I7)
            return 0
        self.is_expiring_all = True
        ended = 0
        try:
            while self._again:
                self._again = False
                ended += call_each_then_raise(self._watchers.all_pending(), self._expire_now)
        finally:
            self.is_expiring_all = False
        return ended

    def _expire_now(self, op: Operation) -> bool:
        if op._op_state != PENDING or op._op_due != NOT_DUE:  # due: in its last try, up the stack, or in its last read
            return False
        self.timer.cancel(op)
        return expire(op)
