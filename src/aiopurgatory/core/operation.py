"""The delayed operation, as far as it is compiled; the public, generic class is aiopurgatory.DelayedOperation."""

from __future__ import annotations

from asyncio.exceptions import InvalidStateError
from math import inf
from typing import TYPE_CHECKING, Any, cast

from mypy_extensions import mypyc_attr

from ..timer.ring import Entry
from .awaiter import Awaiter, wait
from .endings import CANCELLED, COMPLETED, EXPIRED, cancel, cancelled_error, complete, fail, take_result
from .moments import timeout_seconds

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable

    from .outcome import Outcome
    from .rules import Rules


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation(Entry):
    """See DelayedOperation. The prefix of the private names keeps them apart from those of users' subclasses."""

    __slots__ = (
        "_op_awaiters",
        "_op_due",
        "_op_keys",
        "_op_number",
        "_op_outcome",
        "_op_owner",
        "_op_raises",
        "_op_ready",
        "_op_result",
        "_op_retrieved",
        "_op_timeout",
        "_op_watched_at",
    )

    def __init__(self, timeout: object) -> None:
        super().__init__()
        self._op_ready = False  # the result is known; not yet while on_complete runs
        self._op_raises = False  # the result is an exception to raise
        self._op_retrieved = False  # somebody has seen the result
        self._op_due = False  # time is up, and try_complete has not put it off
        self._op_timeout = timeout_seconds(timeout)
        self._op_watched_at = -inf  # until it is parked
        self._op_keys: tuple[Hashable, ...] = ()
        self._op_number: object = None  # an int, once it shares a key; see Watchers
        self._op_outcome: Outcome | None = None
        self._op_result: object = None
        self._op_awaiters: Awaiter | None = None
        self._op_owner: Rules | None = None  # set when it is watched, and kept

    # to override

    def try_complete(self) -> object:
        # Required, and no abstractmethod: nothing looks at those when a compiled class is instantiated. A default of
        # False would let a misspelt override wait for its timeout, silently; so it says so, at the first watch().
        raise NotImplementedError(f"{type(self).__name__} must override try_complete()")

    def on_complete(self) -> object:
        return None

    def on_expiration(self) -> None:
        pass

    def on_cancel(self) -> None:
        pass

    def on_undelivered(self, result: Any) -> None:
        pass

    # to call

    def force_complete(self) -> bool:
        if self._op_outcome is not None:
            return False
        complete(self, COMPLETED)
        return True

    def fail(self, exc: Exception) -> bool:
        if not isinstance(exc, Exception) or isinstance(exc, StopIteration):
            raise TypeError(f"exc must be an instance of Exception other than StopIteration, got {exc!r}")
        if self._op_outcome is not None:
            return False
        fail(self, exc)
        return True

    def cancel(self, msg: object = None) -> bool:
        return cancel(self, msg)

    def done(self) -> bool:
        return self._op_outcome is not None

    def cancelled(self) -> bool:
        return self._op_outcome is CANCELLED

    def result(self) -> object:
        self._check_ready()
        return take_result(self)

    def exception(self) -> BaseException | None:
        self._check_ready()
        if self._op_outcome is CANCELLED:
            raise cancelled_error(self)
        if not self._op_raises:
            return None
        self._op_retrieved = True
        return cast(BaseException, self._op_result)

    @property
    def outcome(self) -> Outcome | None:
        return self._op_outcome

    @property
    def expired(self) -> bool:
        return self._op_outcome is EXPIRED

    @property
    def timeout(self) -> float | None:
        return None if self._op_timeout == inf else self._op_timeout

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return self._op_keys

    def __await__(self) -> Generator[object, None, object]:
        if self._op_owner is None and not self._op_ready:
            raise RuntimeError(f"{self!r} was never watched and would never end; pass it to Purgatory.watch() first")
        return wait(self)

    def __repr__(self) -> str:
        if self._op_outcome is not None:
            state = self._op_outcome.value
        else:
            state = "new" if self._op_owner is None else "pending"
        return f"<{type(self).__name__} {state} timeout={self.timeout}>"

    def _check_ready(self) -> None:
        if not self._op_ready:
            raise InvalidStateError(f"{self!r} has no result yet")
