"""The clock task: sleeps until something is due, processes it, and sleeps again (I2, I3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from .clock import Clock, ClockHandle
from .core.core import Core
from .core.deadlines import AWAKE


class ClockTask:
    """The event-loop task of a purgatory.

    All its work runs in an empty context: start(), or the watch() that arms the clock, may be called in a request. Its
    variables concern no other operation, and its objects must not live as long as the purgatory.

    Args: ended: called if the task dies or ends without stop(), with this object and the exception (or None).
    """

    __slots__ = ("__weakref__", "_clock", "_core", "_ended", "_sleep", "_stopped", "_task")

    def __init__(self, core: Core, clock: Clock, ended: Callable[[ClockTask, BaseException | None], object]) -> None:
        self._core = core
        self._clock = clock
        self._ended: Callable[[ClockTask, BaseException | None], object] | None = ended
        self._stopped = False
        self._sleep: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        core.alarm.connect(self._call_at, self.ring, self.wake)
        run = self._run(loop)
        try:
            # Not by context=, which older task factories refuse.
            self._task = Context().run(loop.create_task, run, name=f"aiopurgatory-clock-{core.loop.name}")
        except BaseException:
            run.close()
            raise
        # However it ends: even cancelled before its first step.
        self._task.add_done_callback(self._done, context=Context())

    def ring(self) -> None:
        """Called by the alarm: do the task's work now. Waking the task instead would take two loop iterations."""
        alarm, sleep = self._core.alarm, self._sleep
        alarm.rang()
        if sleep is None or sleep.done():
            return
        try:
            more = self._work()
        except BaseException as exc:
            if not sleep.done():
                sleep.set_exception(exc)
            return
        if more:
            self.wake()
        elif not sleep.done():
            self._core.deadlines.sleep()

    def wake(self) -> None:
        """Make the task run on the next loop iteration."""
        sleep = self._sleep
        if sleep is not None and not sleep.done() and not sleep.get_loop().is_closed():
            sleep.set_result(None)

    def stop(self) -> None:
        """Do no more work; the task itself ends on the next loop iteration."""
        self._stopped = True
        self._core.alarm.disconnect()
        self.wake()

    async def wait(self) -> None:
        """Wait until the task has ended."""
        task = self._task
        # A task of a closed loop, or of the parent process, would never be done.
        if not task.done() and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])

    def is_idle(self) -> bool:
        """Return True if there is nothing left to do now. Raises: RuntimeError: it runs in another loop."""
        if not (self._stopped or self._core.loop.is_here() or self._task.get_loop().is_closed()):
            raise RuntimeError(
                f"await this in the loop of purgatory {self._core.loop.name!r}, from another one for instance by "
                "client.portal.call(clock.advance, 30.0)"
            )
        asleep = self._sleep is not None and not self._sleep.done()
        return self._stopped or (asleep and self._core.alarm.until != AWAKE)

    def _work(self) -> bool:
        # A new context each time: what a hook sets there concerns no later one.
        return Context().run(self._core.work)

    def _call_at(self, when: float, callback: Callable[[], object]) -> ClockHandle:
        return Context().run(self._clock.call_at, when, callback)

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped:
            if self._work():
                await asyncio.sleep(0)  # I8: let the loop run
            elif not self._stopped:
                self._sleep = sleep = loop.create_future()
                self._core.deadlines.sleep()
                await sleep

    def _done(self, task: asyncio.Task[None]) -> None:
        exc = None if task.cancelled() else task.exception()
        ended, self._ended = self._ended, None  # holds on to nothing
        if ended is not None and (exc is not None or not self._stopped):
            ended(self, exc)
