"""Histograms of how long operations wait and how late they expire. Compiled: it runs for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import i64, mypyc_attr

from ..core.kit import Observer, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


OUTCOMES: Final = tuple(Outcome)
COMPLETED: Final = Outcome.COMPLETED


@final
class Histogram:
    """Args: bounds: upper bounds of the buckets, ascending; one more bucket counts larger values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        bounds = self.bounds
        low: i64 = 0
        high: i64 = len(bounds)
        while low < high:
            middle = (low + high) >> 1
            if bounds[middle] < value:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.total += value


@final
class KindHistograms:
    """The histograms of one class of operations, in the purgatories of one name.

    Args: forward: if given, called with the outcome, the wait and the lateness instead of counting them here.
    """

    __slots__ = ("forward", "lateness", "waits")

    def __init__(
        self,
        wait_bounds: list[float],
        lateness_bounds: list[float],
        forward: Callable[[Outcome, float, float | None], object] | None,
    ) -> None:
        self.waits = [Histogram(wait_bounds) for _ in OUTCOMES]
        self.lateness = Histogram(lateness_bounds)
        self.forward = forward


@mypyc_attr(allow_interpreted_subclasses=True)
class HistogramObserver(Observer):
    """Counts the operations that end in open purgatories.

    Args: new_histograms: called when the first operation of a class ends in a purgatory; returns the KindHistograms.
    """

    def __init__(self, new_histograms: Callable[[Any, type], KindHistograms]) -> None:
        #: The histograms of each open purgatory, by class of operation.
        self._open: dict[Any, dict[type, KindHistograms]] = {}
        self._new_histograms = new_histograms
        # Of the last operation that ended: the next one usually has the same.
        self._purgatory: Any = None
        self._kind: type | None = None
        self._last: KindHistograms | None = None

    def _begin_kinds(self, purgatory: Any) -> None:
        """Count the operations of *purgatory* from now on."""
        self._open[purgatory] = {}

    def _end_kinds(self, purgatory: Any) -> None:
        """Count no more of *purgatory*."""
        self._open.pop(purgatory, None)
        self._purgatory = self._kind = self._last = None

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        kind = type(op)
        found = self._last
        if found is None or kind is not self._kind or purgatory is not self._purgatory:
            found = self._find(purgatory, kind)
            if found is None:
                return
        if found.forward is not None:
            found.forward(outcome, waited, lateness)
            return
        # By identity: hashing an Outcome is a call.
        found.waits[0 if outcome is COMPLETED else OUTCOMES.index(outcome)].observe(waited)
        if lateness is not None:
            found.lateness.observe(lateness)

    def _find(self, purgatory: Any, kind: type) -> KindHistograms | None:
        """Return the histograms of *kind* in *purgatory*; None if that is closed."""
        of_kind = self._open.get(purgatory)
        if of_kind is None:
            return None
        if kind not in of_kind:
            of_kind[kind] = self._new_histograms(purgatory, kind)
        self._purgatory, self._kind, self._last = purgatory, kind, of_kind[kind]
        return self._last
