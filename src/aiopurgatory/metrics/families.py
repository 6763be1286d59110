"""The metrics' names, help texts and labels, and how each is read from statistics()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Any, Final, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ..bus import Bus, BusStatistics
from ..purgatory import Purgatory
from ..statistics import Statistics
from .histograms import OUTCOMES, Histogram

#: Upper bounds of the histograms' buckets.
WAIT_SECONDS: Final = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0]
LATENESS_SECONDS: Final = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0]

Values = Iterable[tuple[tuple[str, ...], float]]
Labelled = tuple[tuple[str, ...], Histogram]


class PollStatistics(Protocol):
    """The statistics of a LongPolling, as far as they are exported."""

    @property
    def name(self) -> str: ...

    @property
    def refused(self) -> Mapping[str, int]: ...


class Polling(Protocol):
    """A LongPolling."""

    def statistics(self) -> PollStatistics: ...


class LogFigures(Protocol):
    """The statistics of an EventLog, as far as they are exported."""

    @property
    def name(self) -> str: ...

    @property
    def window_bytes(self) -> int: ...

    @property
    def error(self) -> str | None: ...


class Log(Protocol):
    """An EventLog."""

    def statistics(self) -> LogFigures: ...


#: The objects with metrics, and their snapshots.
Subject = Purgatory | Bus | Polling | Log
Snapshot = Statistics | BusStatistics | PollStatistics | LogFigures


@dataclass(frozen=True, slots=True)
class Family:
    """A metric that is read from statistics().

    Args:
        values: returns each value with its additional labels.
        subject: the label of the name.
        gauge: it is no counter.
        greatest: of several with one name, show the greatest value, not the sum.
    """

    name: str
    about: str
    values: Callable[[Any], Values]
    labels: tuple[str, ...] = ()
    subject: str = "purgatory"
    gauge: bool = False
    greatest: bool = False

    @property
    def full_name(self) -> str:
        return f"aiopurgatory_{self.name}"

    @property
    def all_labels(self) -> tuple[str, ...]:
        return (self.subject, *self.labels)


def _plain(field: str) -> Callable[[Snapshot], Values]:
    return lambda statistics: [((), getattr(statistics, field))]


def _outcomes(statistics: Statistics) -> Values:
    return [((outcome.value,), getattr(statistics, outcome.value)) for outcome in OUTCOMES]


def _levels(statistics: Statistics) -> Values:
    return [((str(level),), count) for level, count in enumerate(statistics.pending_by_level)]


def _since_echo(statistics: BusStatistics) -> Values:
    return [((), inf if statistics.since_echo is None else statistics.since_echo)]


def _reasons(statistics: PollStatistics) -> Values:
    return [((reason,), count) for reason, count in statistics.refused.items()]


def _down(statistics: LogFigures) -> Values:
    return [((), float(statistics.error is not None))]


def _checks(statistics: Statistics) -> Values:
    misses = statistics.checks_without_effect
    return [(("hit",), statistics.checks - misses), (("miss",), misses)]


def _reads(statistics: Statistics) -> Values:
    misses = statistics.reads_in_vain
    return [(("hit",), statistics.reads - misses), (("miss",), misses)]


PURGATORY: Final = (
    Family("pending_operations", "Operations that wait", _plain("pending"), gauge=True),
    Family("watched_entries", "Operations under watch keys, once per key", _plain("watched_entries"), gauge=True),
    Family("watch_keys", "Keys under which operations wait", _plain("keys"), gauge=True),
    Family("level_operations", "Operations on a level of the timing wheel", _levels, ("level",), gauge=True),
    Family(
        "longest_turn_seconds",
        "Longest turn of the clock task since it started",
        _plain("longest_turn"),
        gauge=True,
        greatest=True,
    ),
    Family("operations", "Operations that ended", _outcomes, ("outcome",)),
    Family(
        "missed_triggers", "Operations completed only at their deadline, with no key checked", _plain("missed_triggers")
    ),
    Family("refused_operations", "Operations not parked, because of max_pending", _plain("refused")),
    Family("undelivered_results", "Results that no task received, because all were cancelled", _plain("undelivered")),
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
        _plain("checks_of_twins"),
    ),
    Family("cascaded_operations", "Moves to a finer level of the timing wheel", _plain("cascaded")),
    Family("wakeups", "Wake-ups of the clock task", _plain("wakeups")),
    Family("purges", "Sweeps of all watch entries", _plain("purges")),
    Family("purged_entries", "Watch entries that purges dropped", _plain("purged")),
)
BUS: Final = (
    Family(
        "bus_connected",
        "Buses connected: they receive their own messages",
        _plain("connected"),
        subject="bus",
        gauge=True,
    ),
    Family(
        "bus_since_echo_seconds",
        "Age of the newest own message that came back; infinite if none since the bus connected",
        _since_echo,
        subject="bus",
        gauge=True,
        greatest=True,
    ),
    Family("bus_outbox_keys", "Keys the server has not acknowledged", _plain("outbox"), subject="bus", gauge=True),
    Family(
        "bus_outbox_age_seconds",
        "Time since the oldest of these keys was published; 0 if there is none",
        _plain("outbox_age"),
        subject="bus",
        gauge=True,
        greatest=True,
    ),
    Family("bus_gaps", "Messages may have been lost; each time, every key was checked", _plain("gaps"), subject="bus"),
    Family("bus_published_keys", "Keys given to publish()", _plain("published"), subject="bus"),
    Family("bus_received_keys", "Keys that other processes have published", _plain("received"), subject="bus"),
    Family("bus_malformed_lines", "Lines received that are not keys", _plain("malformed"), subject="bus"),
)
POLLING: Final = (Family("refused_polls", "Long polls answered 503, by reason", _reasons, ("reason",)),)
LOG: Final = (
    Family("log_topics", "Topics of event logs that listeners follow", _plain("topics"), subject="log", gauge=True),
    Family("log_listeners", "Listeners of event logs", _plain("listeners"), subject="log", gauge=True),
    Family(
        "log_window_bytes",
        "Bytes of the newest events held for listeners",
        _plain("window_bytes"),
        subject="log",
        gauge=True,
    ),
    Family("log_store_down", "Event logs that could not use their server last", _down, subject="log", gauge=True),
    Family("log_reads", "Reads of the server for listeners", _plain("reads"), subject="log"),
    Family("log_appended_events", "Events appended, the ends of topics included", _plain("appended"), subject="log"),
    Family("log_abandoned_runs", "Runs ended because their producers were lost", _plain("abandoned"), subject="log"),
)
FAMILIES: Final = (*PURGATORY, *BUS, *POLLING, *LOG)
#: Of each: the name, the help text, and the labels.
WAIT: Final = ("aiopurgatory_wait_seconds", "Time from watch to the end", ("purgatory", "kind", "outcome"))
LATENESS: Final = ("aiopurgatory_lateness_seconds", "Time from deadline to expiration", ("purgatory", "kind"))

WORKER: Final = (
    "aiopurgatory_worker_pid",
    "Process that these metrics are of: of this worker only. PROMETHEUS_MULTIPROC_DIR adds up all workers",
)


def families_of(what: object) -> tuple[Family, ...]:
    """The metrics of this object."""
    if isinstance(what, Purgatory):
        return PURGATORY
    if isinstance(what, Bus):
        return BUS
    # Not by isinstance(): aiopurgatory.web and aiopurgatory.streams would have to be imported for that.
    statistics = getattr(what, "statistics", None)
    snapshot = None if statistics is None else statistics()
    if isinstance(getattr(snapshot, "refused", None), dict):
        return POLLING
    return LOG if isinstance(getattr(snapshot, "window_bytes", None), int) else ()


def added_up(family: Family, statistics: Iterable[Snapshot]) -> dict[tuple[str, ...], float]:
    """The values of *family* by their labels. Values with the same labels are added up."""
    found: dict[tuple[str, ...], float] = {}
    for each in statistics:
        for labels, value in family.values(each):
            before = found.get((each.name, *labels), 0)
            found[each.name, *labels] = max(before, value) if family.greatest else before + value
    return found


def metrics_of(families: Iterable[Family], statistics: Sequence[Snapshot]) -> Iterator[Metric]:
    for family in families:
        yield metric_of(family, added_up(family, statistics))


def metric_of(family: Family, values: Mapping[tuple[str, ...], float]) -> Metric:
    metric = (GaugeMetricFamily if family.gauge else CounterMetricFamily)(
        family.full_name, family.about, labels=family.all_labels
    )
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def histogram_of(about: tuple[str, str, tuple[str, ...]], labelled: Iterable[Labelled]) -> Metric:
    """Make the metric of all *labelled*: those with the same labels are added up, and empty ones left out."""
    name, documentation, labels = about
    found: dict[tuple[str, ...], Histogram] = {}
    for values, histogram in labelled:
        if any(histogram.counts):
            found.setdefault(values, Histogram(histogram.bounds)).add(histogram)
    metric = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in found.items():
        bounds = map(floatToGoString, (*histogram.bounds, inf))
        metric.add_metric(values, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return metric
