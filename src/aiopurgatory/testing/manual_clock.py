"""A clock that moves only when told to, and waits until no task of the event loop can run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from weakref import WeakSet

from ..clock import ClockHandle, running_loop
from ..clock_task import ClockTask
from ..core.kit import NS, ceil_ns
from ..purgatory import Purgatory

#: Loop iterations in a row without work for a clock task: callbacks may schedule callbacks, unseen by this module.
QUIET_ITERATIONS = 10
#: The most rounds of these iterations. A task such as ``while not ready: await sleep(0)`` never stops.
ROUNDS = 100
#: Iterations in a row in which no task can run. Behind asyncio.shield(), callbacks take one or two between tasks.
LOOKS = 3


async def settle(is_idle: Callable[[], bool]) -> None:
    """Run the loop until *is_idle* and no other task can go on by itself."""
    running_loop()
    for _ in range(ROUNDS):
        quiet = 0
        while quiet < QUIET_ITERATIONS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if is_idle() else 0
        for _ in range(LOOKS):
            if any(map(_can_run, asyncio.all_tasks() - {asyncio.current_task()})):  # O(tasks): not in each iteration
                break
            await asyncio.sleep(0)
        else:
            return


def _can_run(task: asyncio.Task[object]) -> bool:
    """Return True if *task* is in the loop's queue: not started, after sleep(0), or woken."""
    # asyncio has no public way to ask; anyio's wait_all_tasks_blocked() reads the same attribute. The waiter of a
    # blocked task is not done. A task of another class, from a task factory, counts as blocked.
    waiter = getattr(task, "_fut_waiter", task)
    return waiter is None or (waiter is not task and waiter.done())


async def until_pending(purgatory: Purgatory, count: int = 1, *, timeout: float = 5.0) -> None:
    """Wait in real time until at least *count* operations of *purgatory* are pending.

    Use it for requests on their way through a thread or a socket, as ``ManualClock.settle()`` cannot see these:

        with TestClient(app) as client, ThreadPoolExecutor() as pool:
            poll = pool.submit(client.get, "/messages")
            client.portal.call(until_pending, purgatory)
            client.portal.call(clock.advance, 30.0)
            assert poll.result().status_code == 204

    Args:
        purgatory: its operations are counted.
        count: the number to wait for; default 1.
        timeout: seconds of real time; default 5.

    Raises: TimeoutError: fewer were pending after *timeout* seconds.
    """
    running_loop()
    try:
        async with asyncio.timeout(timeout):
            while purgatory.num_delayed < count:  # noqa: ASYNC110 nothing reports a new operation
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError(
            f"{purgatory!r} has {purgatory.num_delayed} of {count} pending operations after {timeout} s"
        ) from None


class ManualClock:
    """A Clock that only advance() moves.

        clock = ManualClock()
        async with Purgatory(clock=clock) as purgatory:
            op = purgatory.watch(MyOperation(timeout=30.0), ["key"])
            await clock.advance(30.0)
            assert op.expired

    As on a real clock, a callback due at an instant runs when the time reaches that instant, not before and not after.
    The clock counts whole nanoseconds, so ten advances of 0.1 s make 1.0 s.

    Args: start: the time to begin with, in seconds; default 0.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = ceil_ns(float(start))
        self._handles: list[tuple[int, int, _ManualHandle]] = []
        self._order = count()
        self._clock_tasks: WeakSet[ClockTask] = WeakSet()

    def __repr__(self) -> str:
        return f"<ManualClock {self.time()} s>"

    def time(self) -> float:
        """Return the time in seconds."""
        return self._now / NS

    def call_at(self, when: float, callback: Callable[[], object], /) -> ClockHandle:
        """Call *callback* when advance() reaches *when* (seconds), or on the next loop iteration if that has passed."""
        handle = _ManualHandle(callback)
        due = ceil_ns(when)
        heappush(self._handles, (due, next(self._order), handle))
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, ClockTask):
            self._clock_tasks.add(owner)
        if due <= self._now:
            asyncio.get_running_loop().call_soon(self._fire)
        return handle

    async def advance(self, seconds: float) -> None:
        """Move the time forward by *seconds*, stopping at every expiration on the way.

        Returns when every due callback has run, and no task can go on by itself; see settle().

        Args: seconds: 0 or more, rounded to the nearest nanosecond.
        Raises:
            ValueError: *seconds* is negative or NaN.
            RuntimeError: an open purgatory waits by this clock in another loop.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must be >= 0, got {seconds!r}")
        target = self._now + round(seconds * NS)
        await self.settle()
        while self._handles and self._handles[0][0] <= target:
            self._now = max(self._now, self._handles[0][0])
            self._fire()
            await self.settle()
        self._now = max(self._now, target)  # another task's advance() may have gone further

    async def settle(self) -> None:
        """Run the tasks of this loop until none can go on by itself. The time does not change.

            poll = asyncio.create_task(client.get("/messages"))
            await clock.settle()  # the request is parked now
            assert purgatory.num_delayed == 1

        A task that waits for a thread, a socket or real time counts as unable to go on. For such tasks, use
        until_pending(). A task that only yields, by ``sleep(0)`` in a loop, gets 1,000 loop iterations.
        """
        await settle(self._is_idle)

    def _is_idle(self) -> bool:
        return all(clock_task.is_idle() for clock_task in self._clock_tasks)

    def _fire(self) -> None:
        while self._handles and self._handles[0][0] <= self._now:
            heappop(self._handles)[2].callback()


class _ManualHandle:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = bool  # does nothing
