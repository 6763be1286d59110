"""The alarm: the clock task's one armed call, the time it sleeps until, and how to wake it earlier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from ..timer.delay_queue import NEVER
from .nanoseconds import ns_to_seconds

#: The value of ``until`` while the clock is awake: nothing is earlier.
AWAKE: Final = -NEVER


@final
class Alarm:
    """At most one call of the clock is armed (I3); its sleep follows from the timer alone (I4)."""

    __slots__ = ("_armed_for", "_call_at", "_handle", "_ring", "_wake", "until", "wakeups")

    def __init__(self) -> None:
        #: Nanoseconds: the sleeping clock wakes by then. Or AWAKE, or NEVER.
        self.until = AWAKE
        #: How often the armed call fired.
        self.wakeups = 0
        self._handle: Any = None
        self._armed_for = NEVER
        self._call_at: Any = None
        self._ring: Callable[[], object] = int
        self._wake: Callable[[], object] = int

    def connect(self, call_at: Any, ring: Callable[[], object], wake: Callable[[], object]) -> None:
        """Args: call_at: Clock.call_at(). ring: called when the armed time comes. wake: ends the clock's sleep."""
        self.until = AWAKE
        self._call_at = call_at
        self._ring = ring
        self._wake = wake

    @property
    def is_armed(self) -> bool:
        return self._handle is not None

    def stay_awake(self) -> None:
        """The clock is working: it will poll the timer before it sleeps again."""
        self.until = AWAKE

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

    def wake(self) -> None:
        """Make the clock work on the next loop iteration."""
        self._wake()

    def disconnect(self) -> None:
        """Cancel the armed call and drop all references: nothing is armed or woken after this."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.until = AWAKE
        self._call_at = None
        self._ring = self._wake = int

    def verify(self, due: int | None) -> None:
        """Check that the sleeping clock wakes in time for *due*. Raises: AssertionError: I3, or I4, does not hold."""
        assert self.is_armed or due is None, "I4: operations wait for a deadline and nothing is armed"
        assert due is None or self.until <= due, f"I4: armed for {self.until}, due at {due}"
        assert self.is_armed == (self.until < NEVER), "I3: armed without a handle, or a handle without being armed"
