"""The delayed operation as users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .core.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


class DelayedOperation(Operation, Generic[T]):
    """Something that cannot be answered yet: it ends when its condition holds or its time is up, exactly once.

    Subclass it, override try_complete() and on_complete(), and pass an instance to ``Purgatory.watch()``; its result
    is of type ``T``. An operation is used once.

        class DelayedFetch(DelayedOperation[list[bytes]]):
            def __init__(self, log: Log, min_bytes: int, timeout: float) -> None:
                super().__init__(timeout)
                self.log, self.min_bytes = log, min_bytes
            def try_complete(self) -> bool:
                return self.log.readable_bytes >= self.min_bytes and self.force_complete()
            def on_complete(self) -> list[bytes]:
                return self.log.read()

    A hook that raises: from try_complete() or on_complete(), the operation ends FAILED with that exception; from
    on_expiration(), awaiters get it, and the outcome stays EXPIRED; from on_cancel() or on_undelivered(), it goes to
    the event loop's exception handler. A failure that nobody awaits goes there, too, on the turn after. A
    BaseException that is no Exception ends the operation FAILED and is passed on to the caller.

    Args:
        timeout: seconds, >= 0, from the moment it is watched. None, inf, or more than 146 years: no deadline. 0: it
            expires on a later turn of the event loop.

    Raises:
        TypeError: timeout is not a number.
        ValueError: timeout is negative or NaN.

    Cost: about 150 bytes, none of them for the timeout or an await that does not happen.
    Source: Kafka DelayedOperation; differs: it has a result, can be awaited, cancelled and failed, and is asked once
    more when its time is up.
    """

    # This class is interpreted, and all it does is to be generic: a compiled generic class with weakly referenced
    # instances of interpreted subclasses corrupts memory (mypyc 2.4.1 on CPython 3.11).
    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, timeout: float | None) -> None: ...

        def try_complete(self) -> bool:
            """To override: ``return condition and self.force_complete()``.

            Called any number of times, never after the operation has ended. Synchronous; keep it cheap. Do not call
            ``check_and_complete()`` while you hold a lock that it takes.
            """
            ...

        def on_complete(self) -> T:
            """To override: returns the result. Called exactly once, when the condition holds or the time is up.

            The operation has ended by then and is out of the timer and of its keys; ``self.expired`` tells whether
            time ran out. It may do anything, including calls to the purgatory.
            """
            ...

        def on_expiration(self) -> None:
            """To override: called after on_complete(), only if time ended it. Raise here to make awaiters raise."""
            ...

        def on_cancel(self) -> None:
            """To override: called once, when it is cancelled while pending."""
            ...

        def on_undelivered(self, result: T) -> None:
            """To override: give back what *result* grants (a lease, a popped item).

            Called once, if it completed or expired, was awaited, and every awaiter was cancelled before it got the
            result.
            """
            ...

        def force_complete(self) -> bool:
            """End it as COMPLETED. Returns: True for the one call that ended it. Invariants: I5, I6."""
            ...

        def fail(self, exc: Exception) -> bool:
            """End it as FAILED: awaiters get *exc*. Returns: True if this call ended it.

            Raises: TypeError: *exc* is no instance of Exception, or a StopIteration.
            """
            ...

        def cancel(self, msg: object = None) -> bool:
            """End it as CANCELLED, gone from every key at once: awaiters get CancelledError(*msg*).

            Returns: True if this call ended it.
            """
            ...

        def result(self) -> T:
            """The result. Raises: what an await would; asyncio.InvalidStateError while it is pending."""
            ...

        def __await__(self) -> Generator[Any, None, T]:
            """Wait for the result. Any number of tasks may.

            Cancelling an awaiting task cancels the operation in that instant, as it would a Future;
            ``asyncio.shield()`` avoids that.

            Raises: RuntimeError: it was never watched and has not ended.
            """
            ...
