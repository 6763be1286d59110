"""The purgatory as users see it: the rules on an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from .clock import Clock, ClockHandle, LoopClock
from .core.endings import report
from .core.moments import NS, reached_at
from .core.observer import Observer
from .core.rules import AWAKE, Rules
from .errors import PurgatoryClosedError
from .operation import DelayedOperation
from .statistics import Statistics
from .timer.delay_queue import NEVER

R = TypeVar("R")

_opened: WeakSet[Purgatory] = WeakSet()


class Purgatory(Rules):
    """Holds operations until their condition holds or their time is up, and ends each exactly once.

        async with Purgatory("fetch") as purgatory:
            records = await purgatory.watch(DelayedFetch(log, 1, timeout=30.0), keys=[("orders", 0)])
            ...
            purgatory.check_and_complete(("orders", 0))  # from the append path

    It belongs to the event loop it was started in; all methods but check_and_complete_threadsafe() are to be called
    there. Callbacks may call any of them at any point (I7).

    Args:
        name: for messages and metrics.
        tick: seconds; timeouts are rounded up to it, once.
        wheel_size: buckets per level of the timing wheel.
        purge_interval: 0: an operation that ends leaves all its keys at once. N > 0, Kafka's way: its entries under
            other keys stay until about N of them are swept together.
        max_pending: refuse to park more operations than this; None for no limit.
        turn_budget: seconds that expiries, ..._soon checks and purges may take of one turn of the event loop.
        clock: where the time comes from; None: ``time.monotonic`` and the loop's timer.
        observers: told of each operation that ends.

    Raises: ValueError: an argument out of its range.

    Creating one costs no task and no thread.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_closed",
        "_forked",
        "_handle",
        "_handle_at",
        "_handover",
        "_handover_lock",
        "_sleep",
        "_task",
        "_wakeups",
    )

    def __init__(
        self,
        name: str = "default",
        *,
        tick: float = 0.001,
        wheel_size: int = 20,
        purge_interval: int = 0,
        max_pending: int | None = None,
        turn_budget: float = 0.005,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        _require(_is_float(tick, 1e-9), "tick", "a number of seconds from 1e-9 to 1e6", tick)
        _require(_is_int(wheel_size, 2), "wheel_size", "an int >= 2", wheel_size)
        _require(_is_int(purge_interval, 0), "purge_interval", "an int >= 0", purge_interval)
        _require(max_pending is None or _is_int(max_pending, 1), "max_pending", "an int >= 1, or None", max_pending)
        _require(_is_float(turn_budget, 1e-9), "turn_budget", "a number of seconds from 1e-9 to 1e6", turn_budget)
        tick_ns = round(tick * NS)
        super().__init__(name, tick_ns, wheel_size, purge_interval, max_pending, turn_budget, tuple(observers))
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._sleep: asyncio.Future[None] | None = None
        self._handle: ClockHandle | None = None
        self._handle_at = NEVER
        self._wakeups = 0
        self._closed = False
        self._forked = False
        self._handover: dict[Hashable, None] = {}
        # The one lock (I14), and one that a signal handler may take while its thread holds it.
        self._handover_lock = threading.RLock()

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._closed else "new"
        return f"<Purgatory {self._name!r} {state} pending={self._pending} keys={len(self._watchers)}>"

    # life

    async def start(self) -> None:
        """Start the clock task, in the running loop. A second call does nothing.

        Raises: PurgatoryClosedError: it was closed. RuntimeError: it runs in another loop or process.
        """
        loop = asyncio.get_running_loop()
        if self._open and self._loop is loop:
            return
        if self._task is not None or self._closed:
            raise self._refusal()
        if self._clock is None:
            self._clock = LoopClock()
        self._open_on(loop, self._clock.time, time.perf_counter, threading.get_ident)
        self._task = loop.create_task(self._run_clock(), name=f"aiopurgatory-clock-{self._name}")
        # However it ends: cancelled before its first step, too.
        self._task.add_done_callback(self._clock_ended)
        _opened.add(self)
        self._tell_observers(lambda observer: observer.opened(self))

    def close(self) -> None:
        """End every pending operation FAILED with PurgatoryClosedError, and stop. A second call does nothing.

        Synchronous, for callbacks and handlers of ``loop.add_signal_handler()``. (One of ``signal.signal()`` may come
        between any two steps of anything: there, ``loop.call_soon_threadsafe(purgatory.close)``.) Nothing of the
        purgatory runs later (I13); the clock task ends on the next turn.
        """
        if self._closed:
            return
        if self._debug:
            self._check_thread()
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        try:
            self._close()
        finally:
            self._wake_clock()
            self._tell_observers(lambda observer: observer.closed(self))

    async def aclose(self) -> None:
        """close(), and wait until the clock task is gone."""
        self.close()
        task = self._task
        # A task of a loop that is gone, or of the parent process, would never be done.
        if task is not None and task is not asyncio.current_task() and self._loop is asyncio.get_running_loop():
            await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    # use

    async def wait_for(self, predicate: Callable[[], R], keys: Iterable[Hashable], timeout: float | None) -> R:
        """Wait until *predicate*, asked at each check of one of *keys*, returns something true.

        Args: timeout: seconds, or None.
        Returns: the first true value.
        Raises: TimeoutError: it was still false at the deadline; whatever *predicate* or watch() raises.
        """
        op = self.watch(_PredicateWait(predicate, timeout), keys)
        try:
            value = await op
            expired = op.expired
        finally:
            del op  # what is raised keeps this frame, and the operation keeps what is raised
        if expired:
            raise TimeoutError(f"the predicate was still false after {timeout} s")
        return value

    def check_and_complete_threadsafe(self, key: Hashable) -> None:
        """check_and_complete_soon() for other threads: many calls cost few wake-ups of the loop."""
        hash(key)  # an unhashable one fails here, not in the loop
        if not self._open:
            return
        with self._handover_lock:
            first = not self._handover
            self._handover[key] = None
        if first:
            try:
                self._loop.call_soon_threadsafe(self._take_handover)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise

    def statistics(self) -> Statistics:
        """A snapshot. Cost: a walk over the buckets, never over the operations."""
        return Statistics(
            name=self._name,
            pending=self._pending,
            watched=self._watchers.entries,
            keys=len(self._watchers),
            completed=self._completed,
            expired=self._expired,
            cancelled=self._cancelled,
            failed=self._failed,
            missed_triggers=self._missed_triggers,
            refused=self._refused,
            undelivered=self._undelivered,
            checks=self._checks,
            checks_in_vain=self._checks_in_vain,
            cascaded=self._timer.cascaded,
            wakeups=self._wakeups,
            purges=self._purges,
            purged=self._purged,
            estimated_total=self._estimated_total if self._purge_interval > 0 else self._pending,
            levels=self._timer.levels,
            buckets=len(self._timer.occupied()),
            pending_by_level=self._timer.pending_by_level(),
            longest_turn=self._longest_turn,
        )

    # the clock task

    async def _run_clock(self) -> None:
        """Sleep until the earliest non-empty bucket, work off what is due, and again (I2, I3)."""
        while self._open:
            self._armed = AWAKE
            if self._turn():
                await asyncio.sleep(0)  # I8: the loop's turn
            elif self._open:
                sleep: asyncio.Future[None] = self._loop.create_future()
                self._sleep = sleep
                self._arm_clock()
                await sleep

    def _arm_clock(self) -> None:
        """Sleep until what the timer says, and nothing else (I4); one handle at most (I3)."""
        due = self._timer.next_expiration()
        if self._handle is not None:
            if due is None or self._handle_at <= due:
                # Its bucket was emptied, or is still there. It may fire for nothing, which costs less than to cancel
                # and arm anew each time that the earliest operation ends.
                self._armed = self._handle_at
                return
            self._handle.cancel()
            self._handle = None
        self._armed = NEVER
        if due is not None:
            assert self._clock is not None
            self._armed = self._handle_at = due
            self._handle = self._clock.call_at(reached_at(due), self._fired)

    def _fired(self) -> None:
        """The clock task's step, without the two turns of the loop that it takes to wake a task."""
        self._handle = None
        self._wakeups += 1
        sleep = self._sleep
        if sleep is None or sleep.done():
            return
        self._armed = AWAKE
        try:
            more = self._turn()
        except BaseException as exc:
            if not sleep.done():
                sleep.set_exception(exc)
            return
        if more:
            self._wake_clock()
        elif not sleep.done():
            self._arm_clock()

    def _wake_clock(self) -> None:
        sleep = self._sleep
        if sleep is not None and not sleep.done() and not self._loop.is_closed():
            sleep.set_result(None)

    def _clock_ended(self, task: asyncio.Task[None]) -> None:
        """Cancelled from outside, or dead: then nobody would ever expire; answer everybody (I13)."""
        if not task.cancelled() and (exc := task.exception()) is not None:
            report(self, None, exc, f"the clock task of {self!r} died, and everything pending fails")
        self.close()

    def _tell_observers(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as exc:
                report(self, None, exc, "observer raised")

    def _is_idle(self) -> bool:
        """Has the clock task done what there is to do now?"""
        asleep = self._sleep is not None and not self._sleep.done()
        return not self._open or (asleep and self._armed != AWAKE)

    def _take_handover(self) -> None:
        with self._handover_lock:
            keys = self._handover
            self._handover = {}
        for key in keys:
            self.check_and_complete_soon(key)

    def _refusal(self) -> Exception:
        if self._closed:
            return PurgatoryClosedError(f"purgatory {self._name!r} is closed")
        if self._forked:
            return RuntimeError(
                f"purgatory {self._name!r} was started before a fork; start another one in this process"
            )
        if self._task is None:
            return RuntimeError(f"purgatory {self._name!r} is not started; use 'async with' or await start()")
        return RuntimeError(f"purgatory {self._name!r} belongs to another event loop; start one in each loop")


class _PredicateWait(DelayedOperation[R]):
    __slots__ = ("predicate", "value")

    def __init__(self, predicate: Callable[[], R], timeout: float | None) -> None:
        super().__init__(timeout)
        self.predicate = predicate
        self.value: R

    def try_complete(self) -> bool:
        self.value = self.predicate()
        return bool(self.value) and self.force_complete()

    def on_complete(self) -> R:
        return self.value


def _require(holds: bool, parameter: str, rule: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{parameter} must be {rule}, got {value!r}")


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_float(value: object, least: float) -> bool:
    return isinstance(value, (int, float)) and least <= value <= 1e6


def _close_to_child() -> None:
    """I15: the child of a fork has the parent's purgatories but not its loop."""
    for purgatory in _opened:
        purgatory._open = False
        purgatory._forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_to_child)
