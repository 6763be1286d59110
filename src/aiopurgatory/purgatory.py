"""The purgatory as users see it, on an event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Final, Never, SupportsFloat, TypeVar, overload
from weakref import WeakSet

from .arguments import (
    Items,
    require_function,
    require_hashable,
    require_int,
    require_methods,
    require_name,
    require_plain_function,
    require_seconds,
    require_settings,
)
from .clock import Clock, LoopClock, running_loop
from .clock_task import ClockTask
from .condition import ConditionWait
from .core.awaiter import take
from .core.core import CLOSED, FORKED, Core
from .core.entry_points import EntryPoints, core_of
from .core.nanoseconds import NS, timeout_seconds
from .core.observer import Observer, checked_observers
from .core.watchers import checked_keys
from .deadline import Deadline
from .following import Following
from .handover import Handover
from .lifecycle import Starting
from .misuse import Misuse
from .waits import pauses_of, read_condition, read_until, require_positive

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .delayed_operation import DelayedOperation

    D = TypeVarWithDefault("D", default=Never)

R = TypeVar("R")
S = TypeVar("S")

#: Before Python 3.12, asking asyncio for the running loop costs a system call.
_BY_IDENT: Final = sys.version_info < (3, 12)
#: And asyncio.current_task() is no C function there: it takes three times as long as its two look-ups, on each read of
#: a follow() and in each timeout().
_CURRENT_TASK: Final[Any] = asyncio.tasks._current_tasks.get if _BY_IDENT else asyncio.current_task  # type: ignore[attr-defined]

_started: WeakSet[Purgatory] = WeakSet()


class Purgatory(EntryPoints, Starting):
    """Holds operations until their condition holds or their time is up, and ends each exactly once.

        async with Purgatory("fetch") as purgatory:
            records = await purgatory.watch(DelayedFetch(log, 1, timeout=30.0), keys=[("orders", 0)])
            ...
            purgatory.check_and_complete(("orders", 0))  # from the append path

    It belongs to the event loop it was started in. Call its methods there: from another thread, all but
    notify_threadsafe() raise RuntimeError. Hooks and callbacks may call any of them at any point.

    Args:
        name: shown in messages and metrics: 1 to 255 bytes of UTF-8 (default: "default").
        tick: seconds; each timeout is rounded up to it, once (default: 0.001). A coarser one makes fewer wake-ups.
        wheel_size: buckets per level of the timing wheel, >= 2 (default: 20, as Kafka's). More make fewer levels.
        purge_interval: when to drop an ended operation's entries under its other keys. 0 (default): at once. N: in one
            sweep per about N ended operations, as Kafka does; measured slower.
        max_pending: refuse to park more operations than this, >= 1. None (default): no limit.
        turn_budget: seconds that expiries, notified checks and purges together may take of one loop iteration
            (default: 0.005). Less makes other tasks wait for a shorter time.
        clock: tells the time. None (default): ``time.monotonic`` and the loop's timer.
        observers: told of each operation that ends (default: none); duplicates count once.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.

    Creating one starts no task and no thread.
    """

    # Invariants: I7.

    __slots__ = ("__weakref__", "_clock_task", "_given_clock", "_handover")

    if TYPE_CHECKING:  # the same methods, with more exact return types

        def waiting(self, key: Hashable) -> list[DelayedOperation[Any]]: ...

        def complete_for_key(self, key: Hashable) -> list[DelayedOperation[Any]]: ...

        def cancel_for_key(self, key: Hashable) -> list[DelayedOperation[Any]]: ...

        def fail_for_key(self, key: Hashable, exc: Exception) -> list[DelayedOperation[Any]]: ...

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
        require_name("name", name)
        require_settings(tick, wheel_size, purge_interval)
        if max_pending is not None:
            require_int("max_pending", max_pending, 1)
        require_seconds("turn_budget", turn_budget, 1e-9, 1e6)
        told = checked_observers(observers)
        if clock is not None:
            require_methods("clock", clock, ("time", "call_at"), "Clock")
        tick_ns = round(tick * NS)
        super().__init__(Core(name, tick_ns, wheel_size, purge_interval, max_pending, turn_budget, told, Misuse))
        self._core.observers.observe(self)
        self._given_clock = clock
        self._clock_task: ClockTask | None = None

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed" if self._core.state == CLOSED else "new"
        return f"<Purgatory {self.name!r} {state} pending={self.num_delayed} keys={len(self._by_key)}>"

    # life

    async def start(self) -> None:
        """Start the clock task in the running loop. After close(), any loop will do.

        While it is open in this loop, a call does nothing. So code that is handed a purgatory may call it first, in any
        number of tasks. It is never closed by that: leave aclose() to the owner.

        If the loop it ran in was closed without cancelling its tasks, this calls close() first.

        Raises: RuntimeError: it runs in another loop, was started before a fork, or is started on trio.
        """
        loop = running_loop()
        if self.is_open and self._core.loop.running is loop:
            return
        if self._core.is_ending or (self.is_open and self._core.loop.running.is_closed()):
            self.close()
        if self.is_open or self._core.state == FORKED:
            raise self._core.refusal()
        # Refuse first, change state after: nothing is open until all of this went well.
        clock = LoopClock() if self._given_clock is None else self._given_clock
        clock.time()
        current = asyncio._get_running_loop
        self._core.loop.enter(
            loop, clock.time, time.perf_counter, threading.get_ident, current, _BY_IDENT, _CURRENT_TASK
        )
        self._handover = Handover(self._core.turn_budget)  # the keys of an earlier loop are gone with it
        self._clock_task = ClockTask(self._core, clock, self._clock_ended)
        self._core.open()
        _started.add(self)
        self._core.observers.tell_opened(self)

    def close(self) -> None:
        """Fail every pending operation with PurgatoryClosedError, and stop. A second call does nothing.

        It is synchronous: callbacks and handlers of ``loop.add_signal_handler()`` can call it. A handler of
        ``signal.signal()`` may interrupt any statement: use ``loop.call_soon_threadsafe(purgatory.close)`` there.
        Nothing of the purgatory runs after this; the clock task ends on the next loop iteration.

        Raises: RuntimeError: called from another thread.

        Cost: 1 to 3 µs an operation, in one piece: a million block the loop for seconds. aclose() ends them in turns.
        """
        # Invariants: I13.
        if self._stop():
            try:
                self._core.close()
            finally:
                self._core.observers.tell_closed(self)

    def _stop(self) -> bool:
        """Stop the clock task. Returns: False: nothing is left to close. Raises: RuntimeError: as close()."""
        core = self._core
        if core.state == FORKED or (core.state == CLOSED and not core.is_ending):
            return False
        core.loop.check_thread()
        if self._clock_task is not None:
            self._clock_task.stop()
        return True

    async def aclose(self) -> None:
        """As close(), in turns of *turn_budget*; and wait for the clock task, and for reads whose tasks have left.

        Everything is refused from the start. If the calling task is cancelled, close() ends what is left.
        """
        clock_task = self._clock_task
        if self._stop():
            try:
                for _ in self._core.end_in_turns():
                    await asyncio.sleep(0)
            finally:
                if self._core.is_ending:  # else somebody has called close(), and perhaps start()
                    self.close()
        if clock_task is not None:
            await clock_task.wait()
        while self._core.kept_reads:
            await asyncio.wait(self._core.kept_reads)

    # its clock

    def time(self) -> float:
        """Return the time in seconds by the purgatory's clock: ``time.monotonic()``, unless it was given another.

        Code that reads this instead of ``time.monotonic()`` follows a ManualClock in tests.
        """
        return time.monotonic() if self._given_clock is None else self._given_clock.time()

    def deadline(self, seconds: SupportsFloat | None) -> Deadline:
        """Return the moment *seconds* from now, to pass as the *timeout* of several waits.

        Args: seconds: 0 or less: it has passed. None: there is no deadline.
        Raises: TypeError, ValueError: *seconds* is not a number, or NaN.
        """
        return Deadline(self.time, seconds)

    # use

    @overload
    async def wait_for(
        self,
        condition: Callable[[], Awaitable[R | None]],
        keys: Items[Hashable],
        *,
        timeout: SupportsFloat | None,
        on_undelivered: Callable[[R], object] | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        default: D = ...,
    ) -> R | D: ...

    @overload
    async def wait_for(
        self,
        condition: Callable[[], R | None],
        keys: Items[Hashable],
        *,
        timeout: SupportsFloat | None,
        on_undelivered: Callable[[R], object] | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        default: D = ...,
    ) -> R | D: ...

    async def wait_for(
        self,
        condition: Callable[[], Any],
        keys: Items[Hashable],
        *,
        timeout: SupportsFloat | None,
        on_undelivered: Callable[[Any], object] | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        default: Any = ...,
    ) -> Any:
        """Wait until *condition*, a function or an ``async def``, returns a true value.

            messages = await purgatory.wait_for(lambda: inbox[after:], [("inbox", 7)], timeout=30.0)
            row = await purgatory.wait_for(lambda: pool.fetchrow(QUERY, after), [("orders", 7)], timeout=30.0)

        The condition is called when the keys are watched, after each check of one of them, and a last time at the
        deadline. If its first call returns an awaitable, it must always return one.

        A function is called by the check itself, and an ``async def`` is awaited by this task, one read at a time. Make
        a change visible before you check its key, because any number of checks during a read lead to a single further
        read. At the deadline, a read in progress is finished, and a last read follows that also finds changes nobody
        checked for. Cancelling the task cancels its read, as do close(), fail_for_key() and cancel_for_key(). Reads
        have no timeout of their own, so give yours one.

        A condition that takes something, such as ``lambda: queue.popleft() if queue else None``, needs
        *on_undelivered*. Otherwise the value is lost if the task is cancelled in the loop iteration in which the
        condition becomes true. An awaited read of such a condition is finished even if its task is cancelled, and what
        it took is put back. Because 0, "" and {} are values then, only None and False mean that there is none yet: do
        not write ``queue and queue.popleft()``, which returns the empty queue.

        Args:
            condition: returns the value to wait for, or anything false: None, 0 or []. To wait for such a value, or for
                an awaitable, such as an operation, return it in a tuple. With *on_undelivered*, only None and False are
                false.
            keys: at least one hashable, as for watch().
            timeout: seconds, a ``deadline()`` that several waits share, or None for no deadline. 0 or less: call
                *condition* once, and do not wait.
            on_undelivered: called with a value that a cancelled task did not receive, to put it back (default: None).
                Then false data is a value.
            retry_on: an exception class, or a tuple of them. A *condition* that raises one of them has found nothing:
                it is called again after the next check, or after a pause. Pauses grow from 0.1 to 10 seconds; half of
                each is random. One such exception a minute is logged. With it, this task also calls a function.
                Default: none; the first exception is raised.
            every: seconds. *condition* is called at least so often: for changes that nobody checks for, such as a lease
                that runs out. Up to a quarter less is random. With it, this task also calls a function. Default: None;
                only checks lead to calls.
            default: returned at the deadline. Left out (default): DeadlineError is raised.

        Returns: the first true value; with *on_undelivered*, the first that is neither None nor False.

        Raises:
            DeadlineError: *condition* was false to the end, or its last call raised one of *retry_on*, which is the
                ``__cause__``. It is a TimeoutError; one that *condition* raises is no DeadlineError.
            TypeError: *condition* is not a function, or returned an awaitable later than at its first call;
                *on_undelivered* is not a function, or is an ``async def``; *retry_on* or *every* is something else.
            ValueError: *every* is not > 0; or as watch().
            Exception: from *condition* or watch(), or the argument of fail_for_key().
        """
        if on_undelivered is not None:
            require_plain_function("on_undelivered", on_undelivered)
        pauses = pauses_of(retry_on, every, self.timeout) if retry_on != () or every is not None else None
        op = ConditionWait(self._core, condition, timeout, on_undelivered)
        awaiter = None
        if pauses is not None:
            op.read()
        try:
            awaiter = op.park(keys)
            if not op.is_reading:
                while awaiter is not None and awaiter.block():
                    await awaiter  # not op: its generator would take as long as all else here
                value, awaiter = take(op), None
                if op.is_found:
                    return value
            else:
                value = await read_until(op, read_condition, pauses)
                if value is not None:
                    op.is_found = False  # this task has it
                    return value
            return op.without_value(default, timeout, None if pauses is None else pauses.error)
        finally:
            if awaiter is not None:
                awaiter.leave()
            elif op.is_reading:
                op.end_reads()
            del op, awaiter  # the exception keeps this frame, and the operation keeps the exception

    @overload
    def follow(
        self,
        keys: Items[Hashable],
        read: Callable[[S | None], Awaitable[tuple[S, R] | None]],
        since: S | None = None,
        *,
        idle: None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        timeout: SupportsFloat | None = None,
    ) -> Following[R]: ...

    @overload
    def follow(
        self,
        keys: Items[Hashable],
        read: Callable[[S | None], Awaitable[tuple[S, R] | None]],
        since: S | None = None,
        *,
        idle: float,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        timeout: SupportsFloat | None = None,
    ) -> Following[R | None]: ...

    def follow(
        self,
        keys: Items[Hashable],
        read: Callable[[Any], Awaitable[tuple[Any, Any] | None]],
        since: Any = None,
        *,
        idle: float | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (),
        every: float | None = None,
        timeout: SupportsFloat | None = None,
    ) -> Following[Any]:
        """Iterate over the values of something that changes: a state, of which only the newest counts.

            async def newer(version: int | None) -> tuple[int, Job] | None:
                job = await fetch_job(7)
                return None if job.version == version else (job.version, job)

            async for job in purgatory.follow([("jobs", 7)], newer, idle=15.0):
                await websocket.send(job.text if job is not None else "still there")

        The first value is read at once. Then *read* is called after each check of one of *keys*. Checks during a read,
        or while the loop's body runs, lead to one more read: values in between are skipped. If each of them counts, it
        is an event: use ``EventLog.follow()``.

        It is a single operation, from the first value until the loop is left. It ends at once if the task is cancelled
        or aclose() is called, and on the next loop iteration after a ``break``. close() ends the iteration, and
        complete_for_key() does so after a last read. Both cancel_for_key() and fail_for_key() raise there. All but
        complete_for_key() cancel a read in progress.

        Args:
            keys: at least one hashable, as for watch().
            read: called with *since*, returns a pair when awaited: the new *since*, such as a version, and the value.
                None: there is nothing newer. Reads have no timeout of their own: give yours one.
            since: the argument of the first *read* (default: None).
            idle: seconds. After each such time without a value, it reads once more, and yields None if there is still
                none: time for a heartbeat. None (default): never.
            retry_on: as for wait_for(): exceptions of *read* after which it is called again (default: none).
            every: as for wait_for(): seconds after which *read* is called in any case (default: never).
            timeout: seconds from the first value that is asked for. Then the iteration ends as by complete_for_key():
                after a last read, without an error. None (default): it goes on.

        Returns: an asynchronous iterator, for one task at a time. It has an aclose(), also for ``async with``.

        Raises:
            TypeError: *keys* is not an iterable of hashables, *read* no function, a time no number, or *retry_on* no
                exception class. While iterating: *read* returned no awaitable, or neither a pair nor None.
            ValueError: *keys* is empty, or *idle* or *every* is not > 0.
            Exception: while iterating: from *read* or watch(), or the argument of fail_for_key().

        Cost: a value takes a check, a call of *read*, and one loop iteration if the task waits. *idle* costs a clock
        reading for each wait, and at most two timers in that time.
        """
        require_function("read", read)
        require_positive("idle", idle)
        timeout_seconds(timeout)
        pauses = pauses_of(retry_on, every, self.timeout)
        return Following(self, checked_keys(keys), read, since, idle or inf, pauses, timeout)

    def notify_threadsafe(self, key: Hashable) -> None:
        """Call notify() from another thread. Many calls are merged into few wake-ups of the loop.

        A handler of ``signal.signal()`` may also call it. If an exception interrupts the call, as Ctrl-C does, that key
        may be lost, but no other.

        Raises: TypeError: *key* is not hashable. RuntimeError: it was started before a fork.
        """
        require_hashable("key", key)  # here, not in the loop
        if self.is_open:
            self._handover.put(key, self._core.loop.running, self.notify)
        elif self._core.state == FORKED:
            raise self._core.refusal()
        elif self._core.loop.running is None:  # never started, and not only closed before its worker threads ended
            self._checks.miss(key)

    # the clock task

    def _clock_ended(self, clock_task: ClockTask, exc: BaseException | None) -> None:
        """Close: the clock task was cancelled from outside or has died, so nothing would ever expire (I13)."""
        if exc is not None:
            self._core.loop.report(None, exc, f"the clock task of {self!r} died; all pending operations fail")
        if clock_task is self._clock_task:  # else it was started again meanwhile
            self.close()


def _leave_to_parent() -> None:
    """I15: the child of a fork has the parent's purgatories but not its loop."""
    for purgatory in _started:
        if purgatory.is_open:
            core_of(purgatory).leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
