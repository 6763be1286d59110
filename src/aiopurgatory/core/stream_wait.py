"""The operation of a task that reads again and again, such as a stream: it goes on from value to value.

A check does not end it, but rings its bell. As calls see it, it looks at once, and never takes anything. Its timer is
set lazily: an event does not move it, and if it fires too early, it is set to the time left.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from .awaiter import AwaitableOperation
from .bell import NO_CHECK, Bell
from .core import Core
from .operation import DUE, deadline_seconds

#: Seconds. Sums of floats are not exact, so the timer is set this much earlier, or it might be a tick late. A step may
#: end twice this much earlier.
ROUNDING: Final = 1e-7


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWait(AwaitableOperation):
    """If begin() returns True, its task reads, and calls end(); or take_call() alone. Else it awaits wait().

    Args:
        timeout: None: no deadline. Without *stall*, it ends then, after a last read.
        idle: seconds of waiting without a value after which take_idle() returns True. inf: never.
        stall: seconds that its task may be busy before it expires. inf: as long as it likes.
        has_news: whether a check calls for a read. None: each does.
        idle_at: when it is idle for the first time. inf: *idle* after its first wait.
    """

    __slots__ = ("_core", "_ends_at", "_fires", "_has_news", "_idle", "_stall", "_until", "bell", "idle_at", "is_idle")

    def __init__(
        self,
        core: Core,
        timeout: object = None,
        idle: float = inf,
        stall: float = inf,
        has_news: Callable[[], bool] | None = None,
        idle_at: float = inf,
    ) -> None:
        super().__init__(timeout)
        self._core: Final = core
        self._idle: Final = idle
        self._stall: Final = stall
        self._has_news: Final = has_news
        self.bell: Final = Bell(core)
        #: By the purgatory's clock: when the step under way ends, when the timer fires, when it ends by itself, and
        #: when it is idle; and whether it is.
        end = inf if self._op_timeout == inf else core.loop.time() + self._op_timeout
        self._until = self._fires = end
        self._ends_at = end if stall == inf else inf
        self.idle_at = idle_at
        self.is_idle = False

    def try_complete(self) -> bool:
        if self._op_due == DUE:
            end_step(self)
        elif self._has_news is None or self._has_news():
            ring(self, self._core.checks.read_call(self))
        return False

    # its task

    def begin(self) -> bool:
        """Begin a read if one is called for. Returns: False if none is."""
        if not (self.bell._is_free or self.bell._newest > 0):
            return False
        self._op_retrieved = True  # its task raises its failure; while that reads, nothing awaits this
        self.bell.take(True)
        return True

    def take_call(self) -> int:
        """From here on, a check calls for another read. Returns: the newest check that called for this one."""
        self._op_retrieved = True  # as for every operation that its task reads for
        self.bell.take()
        return self.bell.check

    def end(self, is_found: bool) -> None:
        """The read is done. *is_found*: it has found a value."""
        self.bell.end(is_found)
        if is_found:
            self.idle_at = inf
            self.is_idle = False

    def wait(self, pause: float = inf) -> Any:
        """Return a future to await: done at the next call for a read, when this ends, and after *pause* seconds.

        Returns: None if it has ended.
        """
        if self._idle != inf or pause != inf:
            now = self._core.loop.time()
            if self.idle_at == inf:
                self.idle_at = now + self._idle
            until = min(self.idle_at, now + pause)  # of three, min() is a call
            set_step(self, min(until, self._ends_at), now)
        return self.bell.wait(self)

    def take_idle(self) -> bool:
        """Take the idle notice: True at most once per interval."""
        if not self.is_idle:
            return False
        self.is_idle = False
        self.idle_at = inf
        return True

    def begin_step(self) -> None:
        """Its task is busy from now on, and has *stall* seconds."""
        begin_busy_step(self)

    # its end

    def on_complete(self) -> Any:
        if self._stall == inf:
            self.bell.ring(NO_CHECK)  # read once more
        else:
            self.bell.interrupt()

    def on_cancel(self) -> Any:
        self.bell.interrupt()

    def on_failure(self, exc: BaseException) -> Any:
        self.bell.interrupt()


# No methods: interpreted code subclasses this, so they would be looked up by name.


def ring(wait: StreamWait, check: i64) -> None:
    if (wait._stall != inf or wait._ends_at != inf) and wait.bell.woken is not None:
        begin_busy_step(wait)
    wait.bell.ring(check)


def begin_busy_step(wait: StreamWait) -> None:
    now = wait._core.loop.time()
    set_step(wait, min(now + wait._stall, wait._ends_at), now)


def set_step(wait: StreamWait, until: float, now: float) -> None:
    """A step of *wait* begins *now*, which may take *until* then."""
    wait._until = until
    if until < wait._fires:
        wait._fires = until
        wait._core.reschedule(wait, max(until - now - ROUNDING, 0.0))


def end_step(wait: StreamWait) -> None:
    """The timer of *wait* has fired. If this is its end, or its task is busy for too long, it expires."""
    core, woken = wait._core, wait.bell.woken
    now = core.loop.time()
    deadline = deadline_seconds(wait)
    is_forced = deadline is None or now < deadline  # by expire_all()
    is_early = not is_forced and now + 2 * ROUNDING < wait._until
    is_stalled = woken is None and wait._stall != inf
    if now + 2 * ROUNDING >= wait._ends_at or (is_stalled and not is_early):
        return
    wait._fires = inf
    core.reschedule(wait, inf)
    if is_early:
        set_step(wait, wait._until, now)
    elif woken is not None:
        if now + 2 * ROUNDING >= wait.idle_at or (is_forced and wait.idle_at < inf):
            wait.is_idle = True
        ring(wait, NO_CHECK)
