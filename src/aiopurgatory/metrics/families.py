"""The metrics' names, help texts and labels, and how each is read from statistics()."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf
from typing import Any, Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ..bus import BusStatistics
from ..statistics import Statistics
from .histograms import OUTCOMES, Histogram

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A metric that is read from statistics().

    Args:
        values: the field with the value, or a function that returns each value with its additional labels.
        subject: the label of the name.
        gauge: it is no counter.
        greatest: of several with one name, show the greatest value, not the sum.
    """

    name: str
    about: str
    values: str | Callable[[Any], Values]
    labels: Labels = ()
    subject: str = "purgatory"
    gauge: bool = False
    greatest: bool = False

    @property
    def head(self) -> tuple[str, str, Labels]:
        """The full name, the help text, and all labels."""
        return f"aiopurgatory_{self.name}", self.about, (self.subject, *self.labels)

    def read(self, statistics: Any) -> Values:
        """Return each value in *statistics*, with its additional labels."""
        if isinstance(self.values, str):
            return [((), getattr(statistics, self.values))]
        return self.values(statistics)

    def instrument(self, registry: CollectorRegistry | None) -> Counter | Gauge:
        """Return a new instrument for its values, registered in *registry*."""
        if self.gauge:
            return Gauge(*self.head, registry=registry, multiprocess_mode="livemax" if self.greatest else "livesum")
        return Counter(*self.head, registry=registry)


def _outcomes(statistics: Statistics) -> Values:
    return [((outcome.value,), getattr(statistics, outcome.value)) for outcome in OUTCOMES]


def _levels(statistics: Statistics) -> Values:
    return [((str(level),), count) for level, count in enumerate(statistics.pending_by_level)]


def _since_echo(statistics: BusStatistics) -> Values:
    return [((), inf if statistics.since_echo is None else statistics.since_echo)]


def _reasons(statistics: Any) -> Values:
    return [((reason,), count) for reason, count in statistics.refused.items()]


def _down(statistics: Any) -> Values:
    return [((), float(statistics.error is not None))]


def _missed_kinds(statistics: Statistics) -> Values:
    return [((kind, key), count) for kind, key, count in statistics.missed_kinds]


def _checks(statistics: Statistics) -> Values:
    return _hits_and_misses(statistics.checks, statistics.checks_without_effect)


def _reads(statistics: Statistics) -> Values:
    return _hits_and_misses(statistics.reads, statistics.reads_in_vain)


def _hits_and_misses(total: int, misses: int) -> Values:
    return [(("hit",), total - misses), (("miss",), misses)]


_gauge: Final = partial(Family, gauge=True)
PURGATORY: Final = (
    _gauge("pending_operations", "Operations that wait", "pending"),
    _gauge("watched_entries", "Operations under watch keys, once per key", "watched_entries"),
    _gauge("watch_keys", "Keys under which operations wait", "keys"),
    _gauge("level_operations", "Operations on a level of the timing wheel", _levels, ("level",)),
    _gauge("longest_turn_seconds", "Longest turn of the clock task since it started", "longest_turn", greatest=True),
    Family("operations", "Operations that ended", _outcomes, ("outcome",)),
    Family("missed_triggers", "Operations completed only at their deadline, with no key checked", "missed_triggers"),
    Family("missed_kinds", "The same, by class and kind of key: the first 20", _missed_kinds, ("kind", "key")),
    Family("refused_operations", "Operations not parked, because of max_pending", "refused"),
    Family("undelivered_results", "Results that no task received, because all were cancelled", "undelivered"),
    Family("checks", "Checks of a watched key, by whether they ended or woke something", _checks, ("result",)),
    Family(
        "reads",
        "Reads of awaited conditions that checks called for, by whether they found anything",
        _reads,
        ("result",),
    ),
    Family(
        "checks_of_twins",
        "Examined checks of a key that nothing watched, while something watched it with another type, as 7 and '7'",
        "checks_of_twins",
    ),
    Family("cascaded_operations", "Moves to a finer level of the timing wheel", "cascaded"),
    Family("wakeups", "Wake-ups of the clock task", "wakeups"),
    Family("purges", "Sweeps of all watch entries", "purges"),
    Family("purged_entries", "Watch entries that purges dropped", "purged"),
)
_bus: Final = partial(Family, subject="bus")
_bus_gauge: Final = partial(_bus, gauge=True)
BUS: Final = (
    _bus_gauge("bus_connected", "Buses connected: they receive their own messages", "connected"),
    _bus_gauge(
        "bus_since_echo_seconds",
        "Age of the newest own message that came back; infinite if none since the bus connected",
        _since_echo,
        greatest=True,
    ),
    _bus_gauge("bus_outbox_keys", "Keys the server has not acknowledged", "outbox"),
    _bus_gauge(
        "bus_outbox_age_seconds",
        "Time since the oldest of these keys was published; 0 if there is none",
        "outbox_age",
        greatest=True,
    ),
    _bus("bus_gaps", "Messages may have been lost; each time, every key was checked", "gaps"),
    _bus("bus_published_keys", "Keys given to publish()", "published"),
    _bus("bus_received_keys", "Keys that other processes have published", "received"),
    _bus("bus_malformed_lines", "Lines received that are not keys", "malformed"),
)
POLLING: Final = (Family("refused_polls", "Long polls answered 503, by reason", _reasons, ("reason",)),)
_log: Final = partial(Family, subject="log")
_log_gauge: Final = partial(_log, gauge=True)
LOG: Final = (
    _log_gauge("log_topics", "Topics of event logs that listeners follow", "topics"),
    _log_gauge("log_listeners", "Listeners of event logs", "listeners"),
    _log_gauge("log_window_bytes", "Bytes of the newest events held for listeners", "window_bytes"),
    _log_gauge("log_store_down", "Event logs that could not use their server last", _down),
    _log("log_reads", "Reads of the server for listeners", "reads"),
    _log("log_appended_events", "Events appended, the ends of topics included", "appended"),
    _log("log_abandoned_runs", "Runs ended because their producers were lost", "abandoned"),
)
FAMILIES: Final = (*PURGATORY, *BUS, *POLLING, *LOG)
#: By the name of the class of a snapshot: aiopurgatory.web and aiopurgatory.streams need not be imported for it.
READ_FROM: Final = {"Statistics": PURGATORY, "BusStatistics": BUS, "LongPollStatistics": POLLING, "LogStatistics": LOG}
#: The heads of the histograms, as a Family has one.
WAIT: Final = ("aiopurgatory_wait_seconds", "Time from watch to the end", ("purgatory", "kind", "outcome"))
LATENESS: Final = ("aiopurgatory_lateness_seconds", "Time from deadline to expiration", ("purgatory", "kind"))

WORKER: Final = (
    "aiopurgatory_worker_pid",
    "Process that these metrics are of: of this worker only. PROMETHEUS_MULTIPROC_DIR adds up all workers",
)


class Instruments:
    """The instruments of all metrics, and the values of all subjects at the last look at each."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.by_family: Final = {family: family.instrument(registry) for family in FAMILIES}
        self._last: WeakKeyDictionary[Any, dict[tuple[Family, Labels], float]] = WeakKeyDictionary()
        #: The gauges of all subjects, added up.
        self._sums: defaultdict[tuple[Family, Labels], float] = defaultdict(float)

    def look(self, subject: Any) -> None:
        """Move them to the values of *subject*."""
        last, statistics = self._last.setdefault(subject, {}), subject.statistics()
        for family in READ_FROM[type(statistics).__name__]:
            for more_labels, value in family.read(statistics):
                labels = (statistics.name, *more_labels)
                before = last.get((family, labels), 0)
                last[family, labels] = value
                # The counters of a bus that is started again count from 0.
                self._move(family, labels, value - before if family.gauge or value >= before else value)

    def forget_gauges(self, subject: Any) -> None:
        """Move the gauges to their values without *subject*, which has closed."""
        last = self._last[subject]
        for family, labels in [each for each in last if each[0].gauge]:
            self._move(family, labels, -last.pop((family, labels)))

    def _move(self, family: Family, labels: Labels, change: float) -> None:
        """Of all subjects with these *labels*, the value of one has changed."""
        instrument = self.by_family[family].labels(*labels)
        if not isinstance(instrument, Gauge):
            instrument.inc(change)
        elif family.greatest:
            instrument.set(max(last.get((family, labels), 0) for last in self._last.values()))
        else:
            self._sums[family, labels] += change
            instrument.set(self._sums[family, labels])


def histogram_of(about: tuple[str, str, Labels], labelled: Iterable[tuple[Labels, Histogram]]) -> Metric:
    """Make the metric of all *labelled* that are not empty."""
    name, documentation, labels = about
    metric = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in labelled:
        if any(histogram.counts):
            bounds = map(floatToGoString, (*histogram.bounds, inf))
            metric.add_metric(values, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return metric
