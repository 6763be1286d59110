"""The one hook for code that only observes, such as metrics and the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from .outcome import Outcome


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Is told of every operation that ends and every poll that is refused. Subclass it and override what you need.

    Calls are synchronous and happen for every operation: keep them short. An exception goes to the event loop's
    exception handler and changes nothing else.
    """

    def opened(self, purgatory: Any) -> None:
        """*purgatory* has started, in the running event loop."""

    def ended(self, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        """The operation *op* has ended. It still has its keys.

        Do not call its result() or exception() here: that counts as retrieving it, and would hide a failure or an
        undelivered result that no task receives.

        Args:
            waited: seconds since it was watched; 0 if it never had to wait.
            lateness: seconds between its deadline and now if it expired, else None. For an awaited condition, without
                the time of its last read: that is part of *waited* alone.
        """

    def closed(self, purgatory: Any) -> None:
        """*purgatory* has closed; every operation has been reported."""

    def poll_refused(self, purgatory: Any, reason: str) -> None:
        """A long poll over HTTP that would have waited in *purgatory* was answered 503.

        Args:
            reason: ``full`` (the purgatory is), ``group`` (its share is used up), ``source`` (an AsyncSource raised)
                or ``closed``, which may come after closed().
        """
