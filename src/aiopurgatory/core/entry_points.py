"""The methods of a purgatory that need no event loop."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

from mypy_extensions import mypyc_attr

from ..arguments import Items, require, require_error, unhashable
from ..statistics import Statistics
from .checks import EVERY_KEY
from .core import OPEN, Core
from .endings import publish_cancelled, publish_completed, publish_failure
from .nanoseconds import timeout_seconds
from .operation import CANCELLED, COMPLETED, FAILED, NOT_GIVEN
from .outcome import AnyOperation
from .timeouts import Timeout
from .watchers import ALL, checked_keys

OpT = TypeVar("OpT", bound=AnyOperation)

#: A timeout in seconds, None for no deadline, or the one that the operation was given by its constructor.
OwnOrGiven: TypeAlias = SupportsFloat | Literal["own"] | None


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryPoints:
    """The methods of Purgatory that need no event loop; see Purgatory.

    They only call the core: a method of a class that interpreted code subclasses is looked up by name at each call,
    even from compiled code.
    """

    # Without a __dict__ to search first, Python 3.13 calls the entry points faster: a check by a fifth.
    __slots__ = ("_by_key", "_checks", "_core")

    def __init__(self, core: Core) -> None:
        self._core: Final = core
        self._by_key: Final = core.watchers.by_key
        self._checks: Final = core.checks

    @property
    def name(self) -> str:
        """The name shown in messages and metrics."""
        return self._core.loop.name

    @property
    def is_open(self) -> bool:
        """True if it was started and has not been closed since."""
        return self._core.state == OPEN

    @property
    def num_delayed(self) -> int:
        """The number of pending operations."""
        return self._core.watchers.pending

    @property
    def watched_entries(self) -> int:
        """The number of watch entries, one per operation and key. Entries of ended operations count until purged."""
        return self._core.watchers.entries

    def statistics(self) -> Statistics:
        """Take a snapshot. Cost: O(buckets), for any number of operations."""
        return self._core.statistics()

    def watch(self, op: OpT, keys: Items[Hashable], *, timeout: OwnOrGiven = NOT_GIVEN) -> OpT:
        """Register *op* and return it: ``result = await purgatory.watch(op, keys)``.

        The operation is registered when this returns, awaited or not. If the task may be cancelled before it awaits
        *op*, await in the same statement or cancel *op* yourself: otherwise it stays until its deadline.

        Args:
            op: a DelayedOperation that was not watched before.
            keys: a list, tuple or other iterable of at least one hashable, but no single str. Duplicates count once.
                ``watch(op, ("orders", 0))`` watches the two keys "orders" and 0. For that one key, pass
                ``[("orders", 0)]``.
            timeout: seconds, or None for no deadline, as DelayedOperation takes it. Left out (default): the operation
                was given one by its constructor.

        Returns: *op*, for ``await``.
        Raises: as try_complete_else_watch().
        """
        self._core.park(op, keys, timeout)
        return op

    def try_complete_else_watch(
        self, op: AnyOperation, keys: Items[Hashable], *, timeout: OwnOrGiven = NOT_GIVEN
    ) -> bool:
        """End *op* if its condition holds, else park it under every key until it does or its time is up.

        No event can be missed: *op* is tried, registered, and tried again.

        If this raises, *op* may be watched later.

        Args:
            op: a DelayedOperation that was not watched before.
            keys: an iterable of at least one hashable, as for watch().
            timeout: seconds or None, as for watch().

        Returns: a bool: True iff this call ended it.

        Raises:
            TypeError: *op* is not an operation, or has no timeout; or *keys* is not an iterable of hashables, or is a
                bare str or bytes; or *timeout* is not a number.
            ValueError: *keys* is empty, or *timeout* is NaN.
            RuntimeError: *op* was watched before; or the purgatory is not started, or belongs to another event loop,
                thread or process.
            PurgatoryClosedError: the purgatory is closed.
            PurgatoryFullError: *op* has to wait, and max_pending operations are already pending.

        Cost: two try_complete(), O(1) per key, O(levels) for the timeout.
        """
        # Source: Kafka DelayedOperationPurgatory.tryCompleteElseWatch. (I1, I4, I12, I15)
        return self._core.park(op, keys, timeout)

    def check_and_complete(self, key: Hashable, *, limit: SupportsIndex | None = None) -> int:
        """Call this when the state behind *key* changes: try every operation waiting under it, oldest first.

        Called from a hook during another check, it is queued until that check finishes, and returns 0.

        Args:
            key: any hashable. Its state has changed.
            limit: an int; wake this many, the oldest first, as ``limit=1`` wakes one of many idle workers. None
                (default): no limit. An operation counts if it completes and waits under *key* alone, since under
                several keys it may have taken what belongs to another one. An awaited condition counts when it is
                called to read, and passes the call on if it finds nothing, fails, or loses its task. A hand-out
                (``on_undelivered=``) that finds nothing keeps the call, because another wait was faster. So with a
                limit, let only conditions that want the same wait under one key.

        Returns: an int: how many operations this call ended, completed or failed; 0 for a key that nothing watches.

        Raises:
            TypeError: *key* is not hashable.
            RuntimeError: called from another thread, while something waits for the key. While nothing does, that is
                logged as a warning, as is a key if only its twin is watched ("7" for 7).

        Cost: one dict look-up if nothing waits, else a try_complete() for each that does.
        """
        # Source: Kafka DelayedOperationPurgatory.checkAndComplete; differs: an exception ends one operation only.
        # Invariants: I7, I11, I12.
        most = ALL if limit is None else checked_limit(limit)
        try:
            entry = self._by_key.get(key)
        except TypeError as exc:
            raise unhashable("key", key, exc) from None
        if entry is not None:
            return self._checks.check(key, entry, most)
        self._checks.miss(key)
        return 0

    def notify(self, key: Hashable, *, limit: SupportsIndex | None = None) -> None:
        """Same as check_and_complete(), but on the next loop iteration, in slices of at most ``turn_budget``.

        Use it for hot keys: repeated calls for a key are merged into one check, and their limits add up. A call for a
        key that is being checked has it checked once more. A bus calls it for each published key.

        Raises: RuntimeError: called from another thread.
        """
        # Invariants: I8.
        self._checks.mark(key, checked_limit(limit))

    def check_each(self, keys: Items[Hashable], *, limit: SupportsIndex | None = None) -> int:
        """Check several keys as one step, as after a transaction: in their order, each as by check_and_complete().

        What hooks check meanwhile is checked after all of *keys*.

        Args:
            keys: a list, tuple or other iterable of hashables, as for watch(); duplicates count once.
            limit: as for check_and_complete(), for each key.

        Returns: an int: how many operations this call ended. Called from a hook during another check: 0.
        Raises: TypeError, ValueError: as watch() for *keys*. RuntimeError: called from another thread.
        """
        # Invariants: I7.
        return self._checks.check_each(checked_keys(keys), checked_limit(limit))

    def check_all(self) -> int:
        """Check every key, trying each operation once. Use it when notifications may have been lost.

        Returns: how many operations this call ended.
        Raises: RuntimeError: called from another thread.
        """
        return self._checks.check_all()

    def notify_all(self) -> None:
        """Same as check_all(), but on the next loop iterations, in slices of at most ``turn_budget``.

        A bus calls it after a gap.

        Raises: RuntimeError: called from another thread.
        """
        self._checks.mark(EVERY_KEY, ALL)

    def waiting(self, key: Hashable) -> list[Any]:
        """Return the pending operations under *key*, oldest first: a snapshot. Cost: O(waiters)."""
        return self._core.waiting(key)

    def complete_for_key(self, key: Hashable) -> list[Any]:
        """Call force_complete() of every operation waiting under *key*, whether its condition holds or not.

        Each ends COMPLETED with the result of its on_complete(), or FAILED if that raises.

        Returns: the operations, in the order in which they were watched.
        Raises: RuntimeError: called from another thread.
        """
        return self._core.end_for_key(key, COMPLETED, lambda op: publish_completed(op, COMPLETED))

    def cancel_for_key(self, key: Hashable) -> list[Any]:
        """Cancel every operation waiting under *key*, and remove each from all its keys at once.

        Returns: the operations, in the order in which they were watched.
        Raises: RuntimeError: called from another thread.
        """
        return self._core.end_for_key(key, CANCELLED, lambda op: publish_cancelled(op, None))

    def fail_for_key(self, key: Hashable, exc: Exception) -> list[Any]:
        """End every operation waiting under *key* as FAILED, for instance when leadership is lost.

        Args: exc: the exception that awaiting tasks get.

        Returns: the operations, in the order in which they were watched.

        Raises:
            TypeError: *exc* is not an instance of Exception, or is a StopIteration.
            RuntimeError: called from another thread.
        """
        require_error(exc)
        return self._core.end_for_key(key, FAILED, lambda op: publish_failure(op, exc))

    def reschedule(self, op: AnyOperation, timeout: SupportsFloat | None) -> bool:
        """Restart the timeout of *op*, from now.

        Called from the final try_complete(), it keeps the operation alive instead of expiring it.

        Args:
            op: an operation that is pending here.
            timeout: seconds, or None for no deadline. 0 or less: it expires on a later loop iteration.

        Returns: False if *op* has ended.

        Raises:
            TypeError: *op* is not an operation, or *timeout* is not a number.
            ValueError: *timeout* is NaN, or *op* is not watched here.
            RuntimeError: called from another thread.

        Cost: O(levels).
        """
        return self._core.reschedule(op, timeout_seconds(timeout))

    def timeout(self, delay: SupportsFloat | None) -> Timeout:
        """Limit the time of a block of code, as ``asyncio.timeout()`` does, but on the timing wheel.

            async with purgatory.timeout(30.0):
                await handle(request)

        When the time is up, the task is cancelled, and the block raises TimeoutError. A timeout that does not fire
        costs a fraction of asyncio's. Blocks may be nested. The result has ``when()``, ``reschedule(when)`` and
        ``expired()``. The task must run in the purgatory's loop. ``max_pending`` does not count timeouts.

        Args:
            delay: seconds from now. None: no limit. 0 or less: the task is cancelled at its next await.

        Raises:
            TypeError: *delay* is not a number.
            ValueError: *delay* is NaN.
            RuntimeError: the purgatory was never started. Raised by the block: it belongs to another loop.
            PurgatoryClosedError: raised by the block if the purgatory is closed, or closes during it. If the block then
                waits in a follow(), it ends quietly instead.

        Cost: O(levels) to enter, O(1) to leave.
        """
        return Timeout(self._core, delay, False)

    def timeout_at(self, when: SupportsFloat | None) -> Timeout:
        """Same as timeout(), with an absolute deadline.

        Args: when: the deadline in seconds, by the purgatory's clock, which is ``time.monotonic()`` unless it was given
            another. None: no limit.

        Raises: as timeout().
        """
        return Timeout(self._core, when, True)

    def expire_all(self) -> int:
        """Expire every pending operation now, even before its deadline. Nothing else does that.

        Awaited conditions (an ``async def``, an awaited Source) stay pending until their last read is done, and are not
        in the result. ``follow()`` goes on: with *idle*, it yields its value or None now. So do listeners of a log. An
        operation that puts its expiry off stays pending, as at its deadline.

        Returns: how many ended.
        Raises: RuntimeError: called from another thread.
        """
        self._core.loop.check_thread()
        return self._core.deadlines.expire_all()

    def purge(self) -> int:
        """Drop all entries of ended operations now, instead of in the next sweep (see ``purge_interval``).

        Returns: how many entries were dropped.
        Raises: RuntimeError: called from another thread.
        """
        self._core.loop.check_thread()
        return self._core.purging.purge()


def core_of(purgatory: EntryPoints) -> Core:
    """The core of *purgatory*, for code that is built on it or inspects it."""
    return purgatory._core


def checked_limit(limit: Any) -> int:
    """Return *limit*; ALL for None."""
    if limit is None:
        return ALL
    rule = "an int >= 1, or None"
    require(isinstance(limit, int) and not isinstance(limit, bool), "limit", rule, limit, TypeError)
    require(limit >= 1, "limit", rule, limit)
    return min(int(limit), ALL)
