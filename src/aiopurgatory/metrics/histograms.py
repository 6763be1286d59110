"""Histograms of how long operations wait and how late they expire. Compiled: it runs for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import i64, mypyc_attr

from ..core.kit import Observer, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


#: Upper bounds of the histograms' buckets.
WAIT_SECONDS: Final = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0]
LATENESS_SECONDS: Final = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0]

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

    def __init__(self, forward: Callable[[Outcome, float, float | None], object] | None) -> None:
        self.waits = [Histogram(WAIT_SECONDS) for _ in OUTCOMES]
        self.lateness = Histogram(LATENESS_SECONDS)
        self.forward = forward


@mypyc_attr(allow_interpreted_subclasses=True)
class HistogramObserver(Observer):
    """Counts the operations that end in open purgatories.

    Args: new_histograms: called when the first operation of a class ends in a purgatory; returns the KindHistograms.
    """

    def __init__(self, new_histograms: Callable[[Any, type], KindHistograms]) -> None:
        #: Of each open purgatory, the histograms by class of operation; none of the other objects that are open.
        self._open: dict[Any, dict[type, KindHistograms]] = {}
        self._new_histograms = new_histograms

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        of_kind = self._open.get(purgatory)
        if of_kind is None:  # closed by a hook of this operation
            return
        kind = type(op)
        found = of_kind.get(kind)
        if found is None:
            found = of_kind[kind] = self._new_histograms(purgatory, kind)
        if found.forward is not None:
            found.forward(outcome, waited, lateness)
            return
        # By identity: hashing an Outcome is a call.
        found.waits[0 if outcome is COMPLETED else OUTCOMES.index(outcome)].observe(waited)
        if lateness is not None:
            found.lateness.observe(lateness)
