"""The standing wait: one operation for a task that reads, waits to be called, and reads again.

A check does not end it, but calls for a read. Checks during a read, or while its task is busy, call for one more. All
awaited conditions, ``follow()``, event streams and listeners of logs are standing waits.

Either it is single: it ends with the first value, or after a last read at its deadline. Or it is a stream, which goes
on. The timer of a stream is set lazily: an event does not move it, and if it fires too early, it is set to the time
left.
"""

from __future__ import annotations

from asyncio.exceptions import InvalidStateError
from collections.abc import Callable, Hashable
from math import inf
from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from ..timer.ring import deadline_of, set_deadline
from .awaiter import AwaitableOperation
from .checks import EVERY_KEY, NO_CHECK
from .core import Core
from .endings import attempt, complete
from .nanoseconds import ceil_ns
from .operation import COMPLETED, DUE, EXPIRED, LAST_READ, NOT_DUE, PENDING, Operation, deadline_seconds

#: Seconds. Sums of floats are not exact, so a stream's timer is set this much earlier, or it might be a tick late. A
#: step may end twice this much earlier.
ROUNDING: Final = 1e-7


@final
class LimitedCall:
    """A call for one read, by the check *number* of *key*, which has a limit."""

    __slots__ = ("key", "number", "rest")

    def __init__(self, key: Hashable, number: i64) -> None:
        self.key: Final = key
        self.number: Final[i64] = number
        #: The operations to which it may be passed on, the next one last. None: they were not listed yet.
        self.rest: list[Operation] | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class StandingWait(AwaitableOperation):
    """Its task calls begin() again and again. If that returns True, it reads, and calls end(); else it awaits wait().

    Args:
        timeout: as for every operation; None: no deadline. A stream without *stall* ends then, after a last read.
        is_single: the first value ends it.
        hands_out: its reads take what they find. If one finds nothing, then another was faster.
        idle: of a stream: seconds of waiting without a value after which take_idle() returns True. inf: never.
        stall: of a stream: seconds that its task may be busy before it expires. inf: as long as it likes.
        has_news: whether a check calls for a read. None: each does.
    """

    __slots__ = (
        "_cancelling",
        "_check",
        "_core",
        "_due_at",
        "_ends_at",
        "_fires",
        "_hands_out",
        "_has_news",
        "_idle",
        "_idle_at",
        "_is_excused",
        "_is_free",
        "_is_idle",
        "_is_interrupted",
        "_is_last",
        "_is_single",
        "_owed",
        "_owes",
        "_seen",
        "_stall",
        "_task",
        "_until",
        "_woken",
        "check",
        "is_checked",
    )

    def __init__(
        self,
        core: Core,
        timeout: object = None,
        is_single: bool = False,
        hands_out: bool = False,
        idle: float = inf,
        stall: float = inf,
        has_news: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(timeout)
        self._core: Final = core
        self._is_single: Final = is_single
        self._hands_out: Final = hands_out
        self._idle: Final = idle
        self._stall: Final = stall
        self._has_news: Final = has_news
        #: The newest check since the last read began, or 0; and whether anything else called for a read.
        self._check: i64 = 0
        self._is_free = False
        #: Of the read under way: the newest check that called for it, or NO_CHECK if anything else did; and whether a
        #: check is among those that called.
        self.check: i64 = NO_CHECK
        self.is_checked = False
        #: Of a single one: the key and the number of a check with a limit that called for a read: for the next, and for
        #: the one under way. And the first check that its last read may have missed; 0: it does not read.
        self._owed: LimitedCall | None = None
        self._owes: LimitedCall | None = None
        self._seen: i64 = 0
        #: The task that reads; its count of cancellations when that began; and whether the end of this cancelled it.
        self._task: Any = None
        self._cancelling = 0
        self._is_interrupted = False
        #: The future that the task awaits.
        self._woken: Any = None
        #: Of a single one: the read under way began at the deadline; no check was due then; and the time of that.
        self._is_last = False
        self._is_excused = False
        self._due_at = 0.0
        #: Of a stream, by the purgatory's clock: when the step under way ends, when the timer fires, when it ends by
        #: itself, and when it is idle; and whether it is.
        end = inf if is_single or self._op_timeout == inf else core.loop.time() + self._op_timeout
        self._until = self._fires = end
        self._ends_at = end if stall == inf else inf
        self._idle_at = inf
        self._is_idle = False

    @property
    def is_called(self) -> bool:
        """Whether a read is called for."""
        return self._is_free or self._check > 0

    def try_complete(self) -> bool:
        if self._op_due == DUE:
            if self._is_single:
                begin_last_read(self)
            else:
                end_step(self)
        elif self._has_news is None or self._has_news():
            checks = self._core.checks
            if checks._tried is not self:
                call(self, NO_CHECK)
            else:
                checks._has_effect = True
                if self._is_single and self._owed is None and checks._limited is not EVERY_KEY:
                    checks._called += 1  # the read counts for its limit
                    self._owed = LimitedCall(checks._limited, checks._number)
                call(self, checks._number)
        return False

    # its task

    def read_once(self) -> None:
        """Of a single one: the first read is the last. It misses no trigger."""
        self._op_due = LAST_READ
        self._is_excused = True

    def begin(self) -> bool:
        """Begin a read if one is called for; when it is done, call end(). Returns: False if none is."""
        if not self._is_free and self._check == 0:
            return False
        take_call(self)
        enter(self)
        return True

    def take_call(self) -> int:
        """From here on, a check calls for another read. Returns: ``check``."""
        take_call(self)
        return self.check

    def end(self, is_found: bool, has_failed: bool = False) -> None:
        """The read is done. *is_found*: it has found a value."""
        leave(self)  # it is inside if the read has swallowed its cancellation
        self.count_read(is_found)
        if is_found:
            self._idle_at = inf
            self._is_idle = False
        if self._is_single and self._op_state == PENDING:
            end_single(self, is_found)
        owes, self._owes = self._owes, None
        state = self._op_state
        if not (is_found and state == COMPLETED):
            # A read that found nothing saw the change. One that was cancelled may have put back what it took.
            is_seen = state in (PENDING, EXPIRED)
            if not (is_seen and self._hands_out) or is_found or has_failed:
                pass_on(self, owes, is_seen)
        if state != PENDING:
            pass_owed(self)

    def count_read(self, is_found: bool) -> None:
        """Count the read under way, if only checks called for it."""
        if self.check != NO_CHECK:
            self.check = NO_CHECK
            self._core.reads += 1
            if not is_found:
                self._core.reads_in_vain += 1

    def wait(self, pause: float = inf) -> Any:
        """Return a future to await: done at the next call for a read, and when this ends.

        Args: pause: of a stream: seconds after which it is done in any case.
        Returns: None if it has ended.
        """
        if self._op_state != PENDING:
            return None
        if self._idle != inf or pause != inf:
            now = self._core.loop.time()
            if self._idle_at == inf:
                self._idle_at = now + self._idle
            until = min(self._idle_at, now + pause)  # of three, min() is a call
            set_step(self, min(until, self._ends_at), now)
        loop = self._core.loop
        self._woken = woken = type(loop.done)(loop=loop.running)  # half the time of loop.create_future()
        return woken

    def take_idle(self) -> bool:
        """Take the idle notice: True at most once per interval."""
        if not self._is_idle:
            return False
        self._is_idle = False
        self._idle_at = inf
        return True

    def give_up(self) -> None:
        """Its task was cancelled, or a read has failed: it neither waits nor reads."""
        self._task = self._woken = None
        self.count_read(False)
        owes, self._owes = self._owes, None
        pass_on(self, owes, False)
        pass_owed(self)

    def begin_step(self) -> None:
        """Of a stream: its task is busy from now on, and has *stall* seconds."""
        begin_busy_step(self)

    # its end

    def on_complete(self) -> Any:
        if self._stall != inf or (self._is_single and self._op_state == EXPIRED):
            interrupt(self)
        else:
            call(self, NO_CHECK)  # read once more

    def on_cancel(self) -> Any:
        interrupt(self)

    def on_failure(self, exc: BaseException) -> Any:
        interrupt(self)


# No methods: those of a class that interpreted code subclasses are looked up by name.


def take_call(wait: StandingWait) -> None:
    wait._op_retrieved = True  # its task raises its failure; while that reads, nothing awaits this
    wait.is_checked = wait._check > 0
    wait.check = NO_CHECK if wait._is_free or wait._check == 0 else wait._check
    wait._check = 0
    wait._is_free = False
    wait._is_last = wait._op_due != NOT_DUE
    wait._owes, wait._owed = wait._owed, None
    wait._seen = wait._core.checks.newest + 1


def enter(wait: StandingWait) -> None:
    """From here on, until leave(), the task is cancelled when *wait* ends."""
    loop = wait._core.loop
    wait._task = task = loop.current_task(loop.running)
    if task is not None:
        wait._cancelling = task.cancelling()


def leave(wait: StandingWait) -> bool:
    """Returns: whether the task was cancelled because *wait* ended, and for nothing else."""
    task, wait._task = wait._task, None
    if not wait._is_interrupted:
        return False
    wait._is_interrupted = False
    # Otherwise somebody has cancelled the task, too, since enter().
    return bool(task.uncancel() <= wait._cancelling)


def call(wait: StandingWait, check: i64) -> None:
    """Have the task of *wait* read. *check*: the number of the check that calls for that, or NO_CHECK."""
    if check == NO_CHECK:
        wait._is_free = True
    elif check > wait._check:
        wait._check = check
    if wait._woken is not None:
        wake(wait)


def wake(wait: StandingWait) -> None:
    woken = wait._woken
    wait._woken = None
    begin_busy_step(wait)
    try:  # noqa: SIM105 suppress() is a call
        woken.set_result(None)
    except InvalidStateError:
        pass  # its task is being cancelled


def interrupt(wait: StandingWait) -> None:
    """*wait* has ended: its task is to notice, and to read no more."""
    wait._is_free = False
    wait._check = 0
    pass_owed(wait)
    if wait._woken is not None:
        wake(wait)
    elif wait._task is not None:
        task, loop = wait._task, wait._core.loop
        if task is not loop.current_task(loop.running):  # else the read itself has ended this
            wait._is_interrupted = True
            task.cancel()


def pass_on(wait: StandingWait, owed: LimitedCall | None, is_seen: bool) -> None:
    """Pass on a call that *wait* has not used. *is_seen*: its read saw the change; else that is as new again."""
    if owed is None:
        return
    core = wait._core
    if not is_seen:
        core.checks.newest += 1
        owed = LimitedCall(owed.key, core.checks.newest)
    core.loop.call_soon(call_next, (core, owed))


def pass_owed(wait: StandingWait) -> None:
    """*wait* has ended, or its task has left: pass on a call that no read has answered."""
    owed, wait._owed = wait._owed, None
    pass_on(wait, owed, False)


def call_next(passed: tuple[Core, LimitedCall]) -> None:
    """Try the operations under the key, oldest first, until one ends or reads. Skip those that have read since.

    Operations that come meanwhile are skipped, too: their first read sees the change. So they are listed once.
    """
    core, owed = passed
    if owed.rest is None:
        owed.rest = core.watchers.waiting(owed.key)
        owed.rest.reverse()
    while owed.rest:
        op = owed.rest.pop()
        if op._op_state != PENDING:
            continue
        if not isinstance(op, StandingWait) or op._seen == 0:  # it does not read
            if attempt(op) != PENDING:
                return
        elif op._is_single and op._owed is None and (op._task is not None or op._seen <= owed.number):
            op._owed = owed
            call(op, owed.number)
            return


def begin_last_read(wait: StandingWait) -> None:
    """The deadline of the single *wait* has come: it stays pending until a last read is done."""
    wait._op_due = LAST_READ
    wait._is_last = False  # the read under way began before
    wait._is_excused = not wait._core.is_unchecked(wait)
    wait._due_at = wait._core.loop.time()
    call(wait, NO_CHECK)


def end_single(wait: StandingWait, is_found: bool) -> None:
    """End the single *wait* if its read has found something, or was the last.

    It missed a trigger if no check had called for what its last read found.
    """
    if is_found:
        if not wait._is_last or wait.is_checked or wait._check > 0 or wait._is_excused:
            wait._op_due = NOT_DUE
        complete(wait, COMPLETED)
    elif wait._is_last and wait._op_due != NOT_DUE:  # else reschedule() has set another deadline meanwhile
        if wait._op_timeout != inf:  # the time of that read is no lateness of ours
            set_deadline(wait, deadline_of(wait) + ceil_ns(max(wait._core.loop.time() - wait._due_at, 0.0)))
        complete(wait, EXPIRED)


def begin_busy_step(wait: StandingWait) -> None:
    if wait._stall == inf and wait._ends_at == inf:
        wait._until = inf
    else:
        now = wait._core.loop.time()
        set_step(wait, min(now + wait._stall, wait._ends_at), now)


def set_step(wait: StandingWait, until: float, now: float) -> None:
    """A step of the stream *wait* begins *now*, which may take *until* then."""
    wait._until = until
    if until < wait._fires:
        wait._fires = until
        wait._core.reschedule(wait, max(until - now - ROUNDING, 0.0))


def end_step(wait: StandingWait) -> None:
    """The timer of the stream *wait* has fired. If this is its end, or its task is busy for too long, it expires."""
    core = wait._core
    now = core.loop.time()
    deadline = deadline_seconds(wait)
    is_forced = deadline is None or now < deadline  # by expire_all()
    is_early = not is_forced and now + 2 * ROUNDING < wait._until
    is_stalled = wait._woken is None and wait._stall != inf
    if now + 2 * ROUNDING >= wait._ends_at or (is_stalled and not is_early):
        return
    wait._fires = inf
    core.reschedule(wait, inf)
    if is_early:
        set_step(wait, wait._until, now)
    elif wait._woken is not None:
        if now + 2 * ROUNDING >= wait._idle_at or (is_forced and wait._idle_at < inf):
            wait._is_idle = True
        call(wait, NO_CHECK)
