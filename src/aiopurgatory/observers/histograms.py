"""Histograms of how long operations wait and how late they expire. Compiled: it runs for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import i64, mypyc_attr

from ..core.kit import Observer, Operation, Outcome, Owner, owner_of, parking_of

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

    def add(self, other: Histogram) -> None:
        """Add the counts of *other*, which has the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@final
class Series:
    """The histograms of one class of operations in one purgatory.

    Args: forward: if given, called with the outcome, the wait and the lateness instead of counting them here.
    """

    __slots__ = ("forward", "kind", "lateness", "waits")

    def __init__(
        self,
        kind: str,
        wait_bounds: list[float],
        lateness_bounds: list[float],
        forward: Callable[[Outcome, float, float | None], object] | None,
    ) -> None:
        self.kind = kind
        self.waits = [Histogram(wait_bounds) for _ in OUTCOMES]
        self.lateness = Histogram(lateness_bounds)
        self.forward = forward


@mypyc_attr(allow_interpreted_subclasses=True)
class HistogramObserver(Observer):
    """Counts the operations that end in open purgatories.

    Args: make_series: called when the first operation of a class ends in a purgatory; makes their Series.
    """

    def __init__(self, make_series: Callable[[Any, type], Series]) -> None:
        #: The series of each open purgatory.
        self.open: dict[Any, dict[type, Series]] = {}
        self._purgatories: dict[Owner | None, Any] = {}
        self._make_series = make_series
        # Of the last operation that ended: the next one usually has the same.
        self._owner: Owner | None = None
        self._kind: type | None = None
        self._series: Series | None = None

    def opened(self, purgatory: Any) -> None:
        self.open[purgatory] = {}
        self._purgatories[parking_of(purgatory)] = purgatory

    def closed(self, purgatory: Any) -> None:
        self.open.pop(purgatory, None)
        self._purgatories.pop(parking_of(purgatory), None)
        self._owner = self._kind = self._series = None

    def ended(self, op: Operation, outcome: Outcome, waited: float, lateness: float | None) -> None:
        kind = type(op)
        series = self._series
        if series is None or kind is not self._kind or owner_of(op) is not self._owner:
            series = self._find(owner_of(op), kind)
            if series is None:
                return
        if series.forward is not None:
            series.forward(outcome, waited, lateness)
            return
        # By identity: hashing an Outcome is a call.
        series.waits[0 if outcome is COMPLETED else OUTCOMES.index(outcome)].observe(waited)
        if lateness is not None:
            series.lateness.observe(lateness)

    def _find(self, owner: Owner | None, kind: type) -> Series | None:
        """Return the series of *kind* in the purgatory of *owner*; None if that is closed."""
        purgatory = self._purgatories.get(owner)
        if purgatory is None:
            return None
        of_kind = self.open[purgatory]
        if kind not in of_kind:
            of_kind[kind] = self._make_series(purgatory, kind)
        self._owner, self._kind, self._series = owner, kind, of_kind[kind]
        return self._series
