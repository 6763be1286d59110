"""The delayed operation: its state and its hooks.

The state is the core's: its modules read and write it where that is clearest. Functions on it are no methods: a method
of a class that interpreted code subclasses is looked up by name at each call, even from compiled code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from math import inf
from types import CoroutineType
from typing import Any, Final

from mypy_extensions import mypyc_attr, u8

from ..arguments import described
from ..timer.ring import Entry, deadline_of
from .loop import Loop
from .nanoseconds import NS, timeout_seconds
from .outcome import Outcome

# The state of an operation: a number takes one byte of it, and is quick to compare.
PENDING: Final = 0
COMPLETED: Final = 1
EXPIRED: Final = 2
CANCELLED: Final = 3
FAILED: Final = 4
OUTCOMES: Final[tuple[Outcome | None, ...]] = (None, *Outcome)
# Whether the time of an operation is up. LAST_READ: it is, and its end waits for a last read. MISSED: it was, and the
# operation has completed, but no check had come.
NOT_DUE: Final = 0
DUE: Final = 1
LAST_READ: Final = 2
MISSED: Final = 3
#: The time at which an operation was parked, until it is. (A flag would cost 8 bytes.)
UNPARKED: Final = -inf
#: The timeout of an operation that was given none; and of a call without one.
UNSET: Final = -1.0
NOT_GIVEN: Final = "own"
#: A constant of this module: compiled code looks up an imported name at each use.
COROUTINE: Final = CoroutineType


class Awaiters:  # not ABC, with which compiled classes abort the process (mypyc 2.4); mypy refuses a missing method
    """The tasks and callbacks waiting for one operation, as the operation sees them."""

    __slots__ = ("context", "has_left", "keys", "waiting")

    #: How many have neither taken the result nor left; and whether a task has left.
    waiting: int
    has_left: bool
    #: The keys of the operation once that has ended: an undelivered result may be for others that wait there.
    keys: tuple[Hashable, ...]
    #: The contextvars context of the first that came; None if it left early.
    context: Any

    @abstractmethod
    def wake_all(self) -> None:
        """Resume the tasks and call the callbacks: the operation has ended."""


class Owner:
    """The core, as an operation waiting in it sees it."""

    def __init__(self, loop: Loop) -> None:
        self.loop: Final = loop
        #: Results that no awaiter took.
        self.undelivered = 0
        #: Reads of awaited conditions that a check called for; and how many of them found nothing.
        self.reads = 0
        self.reads_in_vain = 0
        #: The class of the newest operation that has ended, if it does not override on_end().
        self.plain_kind: Any = None

    @abstractmethod
    def detach(self, op: Operation) -> None:
        """Take the parked *op*, which has ended, out of the timer and of its keys."""

    @abstractmethod
    def ended(self, op: Operation, outcome: u8, head: Awaiters | None) -> None:
        """Count the end of *op* and tell the observers. *head*: its first awaiter; None: it never had one."""

    @abstractmethod
    def call_again(self, keys: tuple[Hashable, ...]) -> None:
        """Something was put back that may be for others under *keys*: call one of each."""

    @abstractmethod
    def left(self, op: Operation) -> None:
        """Note that every awaiter left before it received the failure of *op*."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OperationSlots(Entry):
    """The fields of Operation, in the interpreted form; see slots."""

    __slots__ = (
        *("_op_due", "_op_keys", "_op_number", "_op_owner", "_op_raises", "_op_ready", "_op_result", "_op_retrieved"),
        *("_op_state", "_op_timeout", "_op_trying", "_op_watched_at"),
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation(OperationSlots):
    """An operation that ends exactly once, when its condition holds or its time is up; see DelayedOperation.

    The prefix of the private names keeps them apart from names in users' subclasses.
    """

    __slots__ = ()

    # The fields have their defaults before ``__init__``: a constructor need not call this one.
    _op_state: u8 = PENDING
    _op_ready: bool = False  # the result is known; not yet while on_complete runs
    _op_raises: bool = False  # the result is a Failure
    _op_retrieved: bool = False  # somebody has seen the result
    _op_due: u8 = NOT_DUE
    _op_trying: bool = False  # try_complete runs
    _op_timeout: float = UNSET
    _op_watched_at: float = UNPARKED
    _op_owner: Owner | None = None  # set when it is watched, and kept
    _op_keys: tuple[Hashable, ...] = ()
    _op_number: Any = None  # an int, once it shares a key; see Watchers
    _op_result: Any = None  # the first of its Awaiters until it is ready

    def __init__(self, timeout: object = NOT_GIVEN) -> None:
        if timeout is not NOT_GIVEN:
            self._op_timeout = timeout_seconds(timeout)

    # to override

    def try_complete(self) -> Any:
        """Override this: ``return condition and self.force_complete()``.

        Called up to twice by ``watch()``, on every check of one of its keys, and a last time at the deadline; never
        after the operation has ended. Keep it synchronous and cheap. It must not acquire a lock that the caller of
        ``check_and_complete()`` holds.

        Returns: whether it ended the operation.
        """
        # No abstractmethod: instantiating a compiled class does not check those. A default of False would let an
        # operation with a misspelt override wait for its timeout, silently; this raises at the first watch().
        raise NotImplementedError(f"{type(self).__name__} must override try_complete()")

    def on_complete(self) -> Any:
        """Override this to return the result. Called exactly once, when the condition holds or the time is up.

        By then the operation has ended and left the timer and its keys. ``self.expired`` tells whether it timed out. It
        may call any method of the purgatory. The default returns None.
        """
        return None

    # These return None. Typed so, compiled code would check it, with a message that names no remedy.

    def on_expiration(self) -> Any:
        """Override this to act on a timeout. Called after on_complete(), only if the operation expired.

        Raise here, for instance TimeoutError, to make awaiting tasks raise.
        """

    def on_cancel(self) -> Any:
        """Override this to act on a cancellation. Called once if the operation is cancelled while pending."""

    def on_failure(self, exc: BaseException) -> Any:
        """Override this to act on a failure. Called once if the operation ends FAILED with *exc*, however it fails."""

    def on_undelivered(self, result: Any) -> Any:
        """Override this to release the resources of *result*, such as a lease or a popped item.

        Called once if the operation completed or expired and every task that awaited it was cancelled before it
        received the result of on_complete(). A result that result() or asyncio.gather() has fetched counts as received.
        """

    def on_end(self, outcome: Outcome) -> Any:
        """Override this to act on every end, in one place: release a lock, decrement a gauge, log.

        Called exactly once, however the operation ends, after on_complete(), on_expiration(), on_cancel() or
        on_failure(). Its result is known by then. If this raises, that goes to the event loop's exception handler, and
        the outcome stays as it is. A class that does not override this pays next to nothing for it.
        """

    # to read

    def done(self) -> bool:
        """Return True if it has ended."""
        return self._op_state != PENDING

    def cancelled(self) -> bool:
        """Return True if it ended CANCELLED."""
        return self._op_state == CANCELLED

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it is pending."""
        return OUTCOMES[self._op_state]

    @property
    def expired(self) -> bool:
        """True if it ended EXPIRED."""
        return self._op_state == EXPIRED

    @property
    def is_due(self) -> bool:
        """True during the try_complete() at its deadline, from where ``Purgatory.reschedule()`` puts the expiry off."""
        return self._op_due == DUE

    @property
    def timeout(self) -> float | None:
        """The timeout in seconds; None for no deadline, and before it is given to ``watch()``."""
        return self._op_timeout if 0.0 <= self._op_timeout < inf else None

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The keys it waits under; empty before it is watched and after it has ended."""
        return self._op_keys

    def __repr__(self) -> str:
        outcome, owner = OUTCOMES[self._op_state], self._op_owner
        state = outcome.value if outcome is not None else "new" if owner is None else "pending"
        waits = ""
        if owner is not None and self._op_keys:
            waits = f" keys={described(self._op_keys)} waited={waited(self, owner.loop.time()):.3g} s"
        return f"<{type(self).__name__} {state} timeout={self.timeout}{waits}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied: a copy would leave the timer and the keys a second time."""
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it waits once; make another")


def waited(op: Operation, now: float) -> float:
    """Seconds since *op* was parked; 0 if the first try ended it."""
    return now - op._op_watched_at if op._op_watched_at != UNPARKED else 0.0


def lateness(op: Operation, now: float) -> float:
    """Seconds since the deadline; 0 if there is none, if it never parked, or if expire_all() came before it."""
    if op._op_timeout == inf or op._op_watched_at == UNPARKED:
        return 0.0
    return max(now - deadline_of(op) / NS, 0.0)


def deadline_seconds(op: Operation) -> float | None:
    """The deadline by the purgatory's clock; None if there is none."""
    return None if op._op_timeout == inf else deadline_of(op) / NS


def no_timeout(op: Operation) -> TypeError:
    name = type(op).__name__
    return TypeError(f"{name} has no timeout; pass watch(op, keys, timeout=...), or call super().__init__(timeout)")


def require_mutable(kind: Any) -> None:
    """Raise TypeError if *kind*, a class of operations, is a frozen dataclass. (Compiled code would not notice.)"""
    if getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
        raise TypeError(
            f"op must not be a frozen dataclass: its state changes; got {kind.__name__}, make it a @dataclass(eq=False)"
        )


def not_an_operation(candidate: Any) -> TypeError:
    """Return the error that says why *candidate* cannot be watched, and how to fix it."""
    if isinstance(candidate, type):
        name = candidate.__name__
        return TypeError(f"op must be an instance of DelayedOperation, got the class {name}; make one: {name}(...)")
    if type(candidate) is COROUTINE:
        candidate.close()  # else Python also warns of it
    got = described(candidate)
    return TypeError(f"op must be an instance of DelayedOperation, got {got}; to wait for a condition, use wait_for()")
