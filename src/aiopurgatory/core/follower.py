"""A follower: the operation behind Purgatory.follow(), parked for the whole stream. It tells its task when to read.

A check never ends it, but calls for a read. Checks during a read, or while its consumer is busy, call for one more.

The event streams of ``web`` have an operation of their own. Its timer covers the sending of an event, too. It ends by
age or with its client, and its reads are shared with those of other streams.
"""

from __future__ import annotations

from asyncio.exceptions import InvalidStateError
from math import inf
from typing import Any, Final, final

from .awaiter import AwaitableOperation
from .checks import NO_CHECK
from .core import Core
from .operation import NOT_DUE, PENDING, deadline_seconds


@final
class Follower(AwaitableOperation):
    """Its timer is set lazily: a value does not move it, and it fires for nothing at most once in ``idle`` seconds.

    Args: idle: seconds without a value after which the consumer is told, counted from the first wait. inf: never.
    """

    __slots__ = (
        "_cancelling",
        "_core",
        "_fires",
        "_idle",
        "_idle_at",
        "_interrupted",
        "_is_busy",
        "_is_checked",
        "_is_checked_read",
        "_is_reading",
        "_task",
        "_until",
        "_woken",
        "is_called",
        "is_idle",
    )

    def __init__(self, core: Core, idle: float) -> None:
        super().__init__(None)
        self._core: Final = core
        self._idle: Final = idle
        self._op_retrieved = True  # its task raises its failure; while that is busy, nothing awaits it
        #: A read is called for.
        self.is_called = True
        #: There was no value for so long that the consumer is told.
        self.is_idle = False
        #: A check called for the next read; and for the one under way.
        self._is_checked = False
        self._is_checked_read = False
        #: A task asks for the next value; and reads.
        self._is_busy = False
        self._is_reading = False
        #: The task that reads, or did last; its count of cancellations when that read began; and the task that was
        #: interrupted in a read.
        self._task: Any = None
        self._cancelling = 0
        self._interrupted: Any = None
        #: The future that the task awaits.
        self._woken: Any = None
        #: By the purgatory's clock: when the consumer is told that there is no value, when the wait under way ends, and
        #: when the timer fires.
        self._idle_at = inf
        self._until = inf
        self._fires = inf

    def try_complete(self) -> bool:
        if self._op_due != NOT_DUE:
            self._time_is_up()
            return False
        if self._core.call_for_read(self) != NO_CHECK:
            self._is_checked = True
        self.is_called = True
        if self._woken is not None:
            self._wake()
        return False

    # Its task: enter(), then begin() again and again; in between end() if that returned True, else wait().

    def enter(self) -> bool:
        """A task asks for the next value. Returns: as begin(). Raises: RuntimeError: another one does."""
        if self._is_busy:
            raise RuntimeError("another task waits for the next value; call follow() once for each task")
        self._is_busy = True
        return self.begin()

    def begin(self) -> bool:
        """Begin a read if one is called for; when it is done, call end(). Returns: False if none is."""
        if not self.is_called:
            return False
        self.is_called = False
        self._is_reading = True
        loop = self._core.loop
        self._task = task = loop.current_task(loop.running)
        if task is not None:
            self._cancelling = task.cancelling()
        self._is_checked_read = self._is_checked
        self._is_checked = False
        return True

    def end(self, is_news: bool) -> None:
        """The read is done. *is_news*: it has found a value."""
        self._is_reading = False
        if is_news:
            self._is_busy = False
            self._idle_at = inf
            self.is_idle = False
        self._count_read(is_news)
        if self._interrupted is not None:  # the read swallowed that
            self.was_interrupted()

    def was_interrupted(self) -> bool:
        """Was the CancelledError of the read that is done meant for the read alone, since this ended?"""
        task = self._interrupted
        self._interrupted = None
        # Otherwise somebody has cancelled the task, too, since the read began.
        return task is not None and task.uncancel() <= self._cancelling

    def wait(self, pause: float = inf) -> Any:
        """Return a future to await: done at the next check, at its end, after *pause* seconds, or when it is idle.

        Returns: None if it has ended.
        """
        if self._op_state != PENDING:
            return None
        self._until = inf
        if self._idle != inf or pause != inf:
            now = self._core.loop.time()
            if self._idle_at == inf:
                self._idle_at = now + self._idle
            self._until = min(self._idle_at, now + pause)
            if self._until < self._fires:
                self._fires = self._until
                self._core.reschedule(self, max(self._until - now, 0.0))
        loop = self._core.loop
        self._woken = woken = type(loop.done)(loop=loop.running)  # half the time of loop.create_future()
        return woken

    def take_idle(self) -> bool:
        """Is the consumer to be told that there is no value? It is told once in each interval."""
        if not self.is_idle:
            return False
        self.is_idle = self._is_busy = False
        self._idle_at = inf
        return True

    def leave(self) -> None:
        """Its task was cancelled, or left: it neither waits nor reads. End as CANCELLED."""
        self._is_busy = self._is_reading = False
        self._woken = None
        self._count_read(False)
        self.cancel()

    # its end

    def on_complete(self) -> None:
        self.is_called = True  # a last read
        if self._woken is not None:
            self._wake()

    def on_cancel(self) -> None:
        self._end()

    def on_failure(self, exc: BaseException) -> None:
        self._end()

    def _end(self) -> None:
        self.is_called = False
        if self._woken is not None:
            self._wake()
        elif self._is_reading and self._task is not None:
            task, loop = self._task, self._core.loop
            if task is not loop.current_task(loop.running):  # else the read itself has ended this
                self._interrupted = task
                task.cancel()

    def _count_read(self, found: bool) -> None:
        if self._is_checked_read:
            self._is_checked_read = False
            self._core.count_read(found)

    def _time_is_up(self) -> None:
        now = self._core.loop.time()
        deadline = deadline_seconds(self)
        is_forced = deadline is None or now < deadline  # by expire_all()
        self._fires = inf
        self._core.reschedule(self, inf)
        if self._woken is None:  # the next wait sets the timer
            return
        if now < self._until and not is_forced:
            self._fires = self._until
            self._core.reschedule(self, self._until - now)
            return
        if now >= self._idle_at or (is_forced and self._idle_at < inf):
            self.is_idle = True
        self.is_called = True
        self._wake()

    def _wake(self) -> None:
        woken = self._woken
        self._woken = None
        try:  # noqa: SIM105 suppress() is a call
            woken.set_result(None)
        except InvalidStateError:
            pass  # its task is being cancelled
