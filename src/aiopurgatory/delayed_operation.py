"""The delayed operation, as users subclass it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .core.awaiter import AwaitableOperation, Awaiter, begin_wait, take
from .core.outcome import Outcome

T = TypeVar("T")


def wait(op: AwaitableOperation) -> Generator[Awaiter, None, Any]:
    """Wait for the result. Any number of tasks may await one operation.

    Cancelling an awaiting task cancels the operation at once, as it would a Future; ``asyncio.shield()`` prevents that.

    Raises:
        RuntimeError: it was never watched and has not ended.
        asyncio.CancelledError: it was cancelled.
        Exception: the argument of fail(), or from a hook.
    """
    # Interpreted: a compiled generator crashes if something odd is thrown into it (mypyc 2.4).
    awaiter = begin_wait(op)
    if awaiter is not None:
        try:
            yield awaiter
            while awaiter.block():
                yield awaiter
        except BaseException:
            awaiter.leave()
            raise
    try:
        return take(op)
    finally:
        # The exception keeps this frame, and the operation keeps the exception: the frame must keep neither, or all
        # three wait for the gc.
        del op, awaiter


class LoopOf:
    """The loop of an operation. Not a property, so that an operation may have a ``_loop`` of its own."""

    def __get__(self, op: AwaitableOperation | None, kind: object) -> Any:
        return self if op is None else op.get_loop()


class DelayedOperation(AwaitableOperation, Generic[T]):
    """An operation that cannot finish yet. It ends exactly once: when its condition holds or its time is up.

    Subclass it, override try_complete() and on_complete(), and pass an instance, which can be used only once, to
    ``Purgatory.watch()``. Its result is of type ``T``.

        class DelayedFetch(DelayedOperation[list[bytes]]):
            def __init__(self, log: Log, min_bytes: int, timeout: float) -> None:
                super().__init__(timeout)
                self.log, self.min_bytes = log, min_bytes
            def try_complete(self) -> bool:
                return self.log.readable_bytes >= self.min_bytes and self.force_complete()
            def on_complete(self) -> list[bytes]:
                return self.log.read()

    Its class may leave out ``super().__init__(timeout)``, as a ``@dataclass(eq=False)`` does: then pass the timeout to
    ``watch(op, keys, timeout=30.0)``. That is also the quickest way.

    Where many of a class wait, give it ``__slots__``: it takes a third to a half of the memory then, compiled.

    It follows asyncio's future protocol: ``asyncio.wait()``, ``wait_for()``, ``gather()``, ``shield()`` and
    ``as_completed()`` accept it directly.

    If a hook raises an exception:

    - from try_complete() or on_complete(), the operation ends FAILED with it;
    - from on_expiration(), awaiting tasks get it, and the outcome stays EXPIRED;
    - from on_cancel(), on_failure(), on_end() or on_undelivered(), it goes to the event loop's exception handler.

    A failure that nothing awaits also goes to that handler, two loop iterations later. A BaseException that is not an
    Exception ends the operation FAILED and propagates to the caller.

    Args:
        timeout: seconds from the moment it is watched. None, inf, or more than 146 years: no deadline. 0 or less: it
            expires on a later loop iteration. Left out (default): ``watch()`` is given it.

    Raises:
        TypeError: timeout is not a number.
        ValueError: timeout is NaN.

    Cost: about 130 bytes, the timeout included; only an await adds to that.
    """

    # Source: Kafka DelayedOperation; differs: it has a result, can be awaited, cancelled and failed, and is tried once
    # more when its time is up.

    # This class is interpreted; it only makes the operation generic and awaitable. A compiled generic class with
    # weakly referenced instances of interpreted subclasses corrupts memory (mypyc 2.4.1 on CPython 3.11).
    __slots__ = ()

    if TYPE_CHECKING:  # the same methods, with the type of the result

        def __init__(self, timeout: float | None = ...) -> None: ...

        def try_complete(self) -> bool: ...

        def on_complete(self) -> T: ...

        def on_expiration(self) -> None: ...

        def on_cancel(self) -> None: ...

        def on_failure(self, exc: BaseException) -> None: ...

        def on_end(self, outcome: Outcome) -> None: ...

        def on_undelivered(self, result: T) -> None: ...

        def result(self) -> T: ...

        def __await__(self) -> Generator[Any, None, T]: ...

    else:
        __await__ = wait
        # asyncio.shield() reports a failure by these, from Python 3.14 on. Both yield to attributes of a subclass.
        _loop = LoopOf()
        _source_traceback = None
