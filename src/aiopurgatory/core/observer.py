"""The one hook on which everything that only looks on hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from .outcome import Outcome


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Told of every operation that ends, and of polls that are refused. Subclass it and override what you need.

    Calls are synchronous and on the way of every operation: keep them short. What they raise goes to the event loop's
    exception handler and changes nothing.
    """

    def opened(self, purgatory: Any) -> None:
        """*purgatory* has started, in the running event loop."""

    def ended(self, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        """The operation *op* has ended, and still shows the keys it was watched under.

        Do not call its result() or exception() here: that counts as having taken what may be nobody else's to take.

        Args:
            waited: seconds since it was watched; 0 if it never had to wait.
            lateness: seconds between its deadline and now if it expired, else None.
        """

    def closed(self, purgatory: Any) -> None:
        """*purgatory* has closed; every operation has been reported."""

    def poll_refused(self, purgatory: Any, reason: str) -> None:
        """A long poll over HTTP that would have waited in *purgatory* was answered 503.

        Args: reason: ``full`` (the purgatory), ``group`` (its share is taken) or ``closed``, which may come after
            closed().
        """
