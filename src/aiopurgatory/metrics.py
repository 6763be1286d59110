"""Prometheus metrics: pip install "aiopurgatory[metrics]"

    fetches = Purgatory("fetch", observers=[Metrics()])
    joins = Purgatory("join", observers=[Metrics()])  # the same one

Kafka's own metrics by other names: PurgatorySize is aiopurgatory_watched_entries, NumDelayedOperations (before:
NumDelayedRequests) is aiopurgatory_pending_operations, and ExpiresPerSec is
``rate(aiopurgatory_operations_total{outcome="expired"}[1m])``.

Labels are bounded: the purgatory's name, the outcome, the operation's class, and why a poll was refused; never a key.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from math import inf
from threading import Lock
from typing import Any, Final, cast, final
from weakref import WeakKeyDictionary

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
    from prometheus_client import Histogram as PrometheusHistogram
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.utils import floatToGoString
except ImportError as exc:
    raise ImportError('aiopurgatory.metrics needs prometheus-client: pip install "aiopurgatory[metrics]"') from exc

from .bus import Bus, BusStatistics
from .core.kit import Outcome
from .observers.histograms import OUTCOMES, Histogram, HistogramObserver, Series
from .purgatory import Purgatory
from .statistics import Statistics

#: Upper bounds of the histograms' buckets.
WAIT_SECONDS: Final = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0]
LATENESS_SECONDS: Final = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0]
#: Classes of operations that get series of their own; later ones share the series OTHER.
MAX_KINDS: Final = 100
OTHER: Final = "other"
#: Seconds between two polls of the plain counters, where they are shared with other processes.
PUBLISH_INTERVAL: Final = 1.0

_Snapshot = Statistics | BusStatistics
_Labelled = tuple[tuple[str, ...], Histogram]
_Subject = Purgatory | Bus
_Values = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class _Family:
    """A metric read from the statistics of a purgatory or bus. *values* gives each value with its extra labels."""

    name: str
    about: str
    values: Callable[[Any], _Values]
    labels: tuple[str, ...] = ()
    subject: str = "purgatory"
    gauge: bool = False
    greatest: bool = False  # purgatories of one name: the greatest value, not the sum

    @property
    def full_name(self) -> str:
        return f"aiopurgatory_{self.name}"

    @property
    def all_labels(self) -> tuple[str, ...]:
        return (self.subject, *self.labels)


def _plain(field: str) -> Callable[[_Snapshot], _Values]:
    return lambda statistics: [((), getattr(statistics, field))]


def _outcomes(statistics: Statistics) -> _Values:
    return [((outcome.value,), getattr(statistics, outcome.value)) for outcome in OUTCOMES]


def _levels(statistics: Statistics) -> _Values:
    return [((str(level),), count) for level, count in enumerate(statistics.pending_by_level)]


def _since_echo(statistics: BusStatistics) -> _Values:
    return [((), inf if statistics.since_echo is None else statistics.since_echo)]


def _checks(statistics: Statistics) -> _Values:
    misses = statistics.checks_without_effect
    return [(("hit",), statistics.checks - misses), (("miss",), misses)]


_FAMILIES: Final = (
    _Family("pending_operations", "Operations that wait", _plain("pending"), gauge=True),
    _Family("watched_entries", "Operations under watch keys, once per key", _plain("watched"), gauge=True),
    _Family("watch_keys", "Keys under which operations wait", _plain("keys"), gauge=True),
    _Family("level_operations", "Operations on a level of the timing wheel", _levels, ("level",), gauge=True),
    _Family(
        "longest_turn_seconds",
        "Longest turn of the clock task since it started",
        _plain("longest_turn"),
        gauge=True,
        greatest=True,
    ),
    _Family("operations", "Operations that ended", _outcomes, ("outcome",)),
    _Family(
        "missed_triggers", "Operations completed only at their deadline, with no key checked", _plain("missed_triggers")
    ),
    _Family("refused_operations", "Operations not parked, because of max_pending", _plain("refused")),
    _Family("undelivered_results", "Results that no task received, because all were cancelled", _plain("undelivered")),
    _Family("checks", "Checks of a watched key, by whether they ended an operation", _checks, ("result",)),
    _Family(
        "twin_keys",
        "Examined checks of a key that nothing watched, while something watched it with another type, as 7 and '7'",
        _plain("twin_keys"),
    ),
    _Family("cascaded_operations", "Moves to a finer level of the timing wheel", _plain("cascaded")),
    _Family("wakeups", "Wake-ups of the clock task", _plain("wakeups")),
    _Family("purges", "Sweeps of all watch entries", _plain("purges")),
    _Family("purged_entries", "Watch entries that purges dropped", _plain("purged")),
)
_BUS_FAMILIES: Final = (
    _Family(
        "bus_connected",
        "Buses connected: they receive what they publish",
        _plain("connected"),
        subject="bus",
        gauge=True,
    ),
    _Family(
        "bus_since_echo_seconds",
        "Age of the newest own message that came back; infinite if none since the bus connected",
        _since_echo,
        subject="bus",
        gauge=True,
        greatest=True,
    ),
    _Family("bus_outbox_keys", "Keys the server has not acknowledged", _plain("outbox"), subject="bus", gauge=True),
    _Family(
        "bus_outbox_age_seconds",
        "Time since the oldest of these keys was published; 0 if there is none",
        _plain("outbox_age"),
        subject="bus",
        gauge=True,
        greatest=True,
    ),
    _Family("bus_gaps", "Messages may have been lost; each time, every key was checked", _plain("gaps"), subject="bus"),
    _Family("bus_published_keys", "Keys given to publish()", _plain("published"), subject="bus"),
    _Family("bus_received_keys", "Keys that other processes have published", _plain("received"), subject="bus"),
    _Family("bus_malformed_lines", "Lines received that are not keys", _plain("malformed"), subject="bus"),
)
_WAIT: Final = ("aiopurgatory_wait_seconds", "Time from watch to the end", ("purgatory", "kind", "outcome"))
_LATENESS: Final = ("aiopurgatory_lateness_seconds", "Time from deadline to expiration", ("purgatory", "kind"))
_REFUSED_POLLS: Final = ("aiopurgatory_refused_polls", "Long polls answered 503, by reason", ("purgatory", "reason"))

_WORKER: Final = (
    "aiopurgatory_worker_pid",
    "Process that these metrics are of: of this worker only. PROMETHEUS_MULTIPROC_DIR adds up all workers",
)

#: No Metrics refers to its registry, so the entry goes when the registry does.
_made: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()
_making: Final = Lock()


@final
class Metrics(HistogramObserver):
    """Exports any number of purgatories and buses while they are open; those of one name are added up.

        metrics = Metrics()
        async with Purgatory("polls", observers=[metrics]) as polls, PostgresBus(dsn, [polls], observers=[metrics]):

    Counts of refused polls stay after a purgatory has closed.

    There is one per registry: a second call returns the same object.

    The metrics are of this process only; aiopurgatory_worker_pid tells which. With several workers behind one port,
    each scrape reaches another one.

    With PROMETHEUS_MULTIPROC_DIR set, for workers that are scraped as one, gauges and counters are up to a second old,
    an operation costs 2 us more, and the counts of a closed purgatory stay. Call prometheus_client's
    ``multiprocess.mark_process_dead(pid)`` for a worker that was killed, as its documentation says.

    Args: registry: where to register. Default: prometheus_client's ``REGISTRY``.

    Raises: ValueError: *registry* already has other metrics with these names.

    Cost: less than 1 us per operation that ends. A scrape costs the same however many operations are pending.
    """

    def __new__(cls, registry: CollectorRegistry = REGISTRY) -> Metrics:
        with _making:
            metrics = _made.get(registry)
            if metrics is None:
                metrics = super().__new__(cls)
                metrics._begin(registry)
                _made[registry] = metrics
            elif metrics._shared is None:
                with suppress(ValueError):  # it is there, unless somebody has unregistered it
                    registry.register(metrics)
            return metrics

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Do nothing: this is called after every __new__()."""

    def _begin(self, registry: CollectorRegistry) -> None:
        super().__init__(self._new_series)
        self._kinds: set[str] = set()
        self._retired: dict[str, tuple[Statistics, list[Series]]] = {}
        self._buses: dict[Bus, None] = {}
        #: By purgatory and reason. They stay: a purgatory that has closed goes on refusing.
        self._refused_polls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._shared = _Shared(registry) if "PROMETHEUS_MULTIPROC_DIR" in os.environ else None
        if self._shared is None:
            registry.register(self)

    def opened(self, purgatory: Purgatory) -> None:
        super().opened(purgatory)
        if self._shared is not None:
            self._shared.opened(purgatory)

    def closed(self, purgatory: Purgatory) -> None:
        kinds = self.open.get(purgatory)
        super().closed(purgatory)
        if kinds is not None:
            self._retire(purgatory.statistics(), list(kinds.values()))
        if self._shared is not None:
            self._shared.closed(purgatory)

    def bus_opened(self, bus: Bus) -> None:
        """Collect the figures of *bus*, too. The bus calls it when it opens."""
        self._buses[bus] = None
        if self._shared is not None:
            self._shared.opened(bus)

    def bus_closed(self, bus: Bus) -> None:
        """Stop collecting them. The bus calls it when it closes."""
        self._buses.pop(bus, None)
        if self._shared is not None:
            self._shared.closed(bus)

    def poll_refused(self, purgatory: Purgatory, reason: str) -> None:
        if self._shared is not None:
            self._shared.refused_polls.labels(purgatory.name, reason).inc()
        else:
            self._refused_polls[purgatory.name, reason] += 1

    def _retire(self, statistics: Statistics, series: list[Series]) -> None:
        """Keep the counts of a closed purgatory while others of its name are open: no counter may go back."""
        name = statistics.name
        before, kept = self._retired.pop(name, (None, []))
        if any(purgatory.name == name for purgatory in self.open):
            self._retired[name] = (
                statistics if before is None else _together(before, statistics),
                _merged(kept + series),
            )

    def _new_series(self, purgatory: Purgatory, kind: type) -> Series:
        # A class may be named anything, but a scrape is UTF-8.
        name = kind.__qualname__.encode(errors="backslashreplace").decode()
        if name not in self._kinds and len(self._kinds) >= MAX_KINDS:
            name = OTHER
        self._kinds.add(name)
        forward = None if self._shared is None else self._shared.forward(purgatory.name, name)
        return Series(name, WAIT_SECONDS, LATENESS_SECONDS, forward)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values, for the registry."""
        for family in (*_FAMILIES, *_BUS_FAMILIES):
            yield (GaugeMetricFamily if family.gauge else CounterMetricFamily)(family.full_name, family.about)
        yield CounterMetricFamily(*_REFUSED_POLLS[:2])
        yield GaugeMetricFamily(*_WORKER)
        for name, about, _ in (_WAIT, _LATENESS):
            yield HistogramMetricFamily(name, about)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        # Copies: the scrape may come in another thread.
        open_ = [(purgatory.statistics(), list(kinds.values())) for purgatory, kinds in list(self.open.items())]
        open_ += list(self._retired.values())
        yield from _metrics(_FAMILIES, [statistics for statistics, _ in open_])
        yield from _metrics(_BUS_FAMILIES, [bus.statistics() for bus in list(self._buses)])
        name, about, labels = _REFUSED_POLLS
        refused = CounterMetricFamily(name, about, labels=labels)
        for labels, count in list(self._refused_polls.items()):
            refused.add_metric(labels, count)
        yield refused
        worker = GaugeMetricFamily(*_WORKER, labels=())
        if open_ or self._buses:
            worker.add_metric((), os.getpid())
        yield worker
        waits: list[_Labelled] = []
        lateness: list[_Labelled] = []
        for statistics, by_kind in open_:
            for series in by_kind:
                labels = (statistics.name, series.kind)
                waits += [
                    ((*labels, outcome.value), wait) for outcome, wait in zip(OUTCOMES, series.waits, strict=True)
                ]
                lateness.append((labels, series.lateness))
        yield _histogram(_WAIT, waits)
        yield _histogram(_LATENESS, lateness)


def _metrics(families: Iterable[_Family], statistics: Sequence[_Snapshot]) -> Iterator[Metric]:
    for family in families:
        make = GaugeMetricFamily if family.gauge else CounterMetricFamily
        metric = make(family.full_name, family.about, labels=family.all_labels)
        for labels, value in _added_up(family, statistics).items():
            metric.add_metric(labels, value)
        yield metric


def _added_up(family: _Family, statistics: Iterable[_Snapshot]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for each in statistics:
        for labels, value in family.values(each):
            before = found.get((each.name, *labels), 0)
            found[each.name, *labels] = max(before, value) if family.greatest else before + value
    return found


def _together(one: Statistics, other: Statistics) -> Statistics:
    """Add up the counts of two closed purgatories of one name."""
    counts = [field.name for field in fields(Statistics) if field.type == "int"]
    sums = {name: getattr(one, name) + getattr(other, name) for name in counts}
    return replace(one, **sums, longest_turn=max(one.longest_turn, other.longest_turn))


def _merged(series: list[Series]) -> list[Series]:
    """Add up the series of each kind."""
    found: dict[str, Series] = {}
    for each in series:
        kept = found.setdefault(each.kind, Series(each.kind, WAIT_SECONDS, LATENESS_SECONDS, None))
        for mine, its in zip(kept.waits, each.waits, strict=True):
            mine.add(its)
        kept.lateness.add(each.lateness)
    return list(found.values())


def _histogram(about: tuple[str, str, tuple[str, ...]], series: Iterable[_Labelled]) -> Metric:
    """Make the metric of all *series*: those with the same labels are added up, and empty ones left out."""
    name, documentation, labels = about
    found: dict[tuple[str, ...], Histogram] = {}
    for values, histogram in series:
        if any(histogram.counts):
            found.setdefault(values, Histogram(histogram.bounds)).add(histogram)
    metric = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in found.items():
        bounds = map(floatToGoString, (*histogram.bounds, inf))
        metric.add_metric(values, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return metric


class _Shared:
    """The same metrics in prometheus_client's own instruments: custom collectors are not shared by processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._instruments = {family: _instrument(family, registry) for family in (*_FAMILIES, *_BUS_FAMILIES)}
        self._waits = PrometheusHistogram(*_WAIT, buckets=WAIT_SECONDS, registry=registry)
        self._lateness = PrometheusHistogram(*_LATENESS, buckets=LATENESS_SECONDS, registry=registry)
        self.refused_polls = Counter(*_REFUSED_POLLS, registry=registry)
        self._published: dict[_Subject, dict[tuple[_Family, tuple[str, ...]], float]] = {}
        self._timers: dict[_Subject, asyncio.TimerHandle] = {}

    def forward(self, purgatory: str, kind: str) -> Callable[[Outcome, float, float | None], object]:
        waits = {outcome: self._waits.labels(purgatory, kind, outcome.value) for outcome in OUTCOMES}
        late = self._lateness.labels(purgatory, kind)

        def observe(outcome: Outcome, waited: float, lateness: float | None) -> None:
            waits[outcome].observe(waited)
            if lateness is not None:
                late.observe(lateness)

        return observe

    def opened(self, subject: _Subject) -> None:
        self._published[subject] = {}
        self._publish(subject)

    def closed(self, subject: _Subject) -> None:
        """Publish the last counts, and set the gauges back to 0: a shared one cannot be removed."""
        if subject not in self._published:
            return
        self._timers.pop(subject).cancel()
        self._move(subject, subject.statistics())
        for (family, labels), value in self._published.pop(subject).items():
            if family.greatest:
                cast(Gauge, self._instruments[family].labels(*labels)).set(0)
            elif family.gauge:
                self._instruments[family].labels(*labels).inc(-value)

    def _publish(self, subject: _Subject) -> None:
        self._move(subject, subject.statistics())
        loop = asyncio.get_running_loop()
        self._timers[subject] = loop.call_later(PUBLISH_INTERVAL, self._publish, subject)

    def _move(self, subject: _Subject, statistics: _Snapshot) -> None:
        """Move each instrument by the change since the last time."""
        published = self._published[subject]
        for family in _BUS_FAMILIES if isinstance(subject, Bus) else _FAMILIES:
            instrument = self._instruments[family]
            for labels, value in _added_up(family, [statistics]).items():
                moved = value - published.get((family, labels), 0)
                published[family, labels] = value
                if family.greatest:
                    of_name = (each.get((family, labels), 0) for each in self._published.values())
                    cast(Gauge, instrument.labels(*labels)).set(max(of_name))
                else:
                    instrument.labels(*labels).inc(moved)


def _instrument(family: _Family, registry: CollectorRegistry) -> Counter | Gauge:
    if not family.gauge:
        return Counter(family.full_name, family.about, family.all_labels, registry=registry)
    if family.greatest:
        return Gauge(family.full_name, family.about, family.all_labels, registry=registry, multiprocess_mode="livemax")
    return Gauge(family.full_name, family.about, family.all_labels, registry=registry, multiprocess_mode="livesum")
