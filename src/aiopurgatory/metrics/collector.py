"""The observer that a Prometheus registry collects from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from threading import Lock
from typing import Any, Final, final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ..bus import Bus
from ..purgatory import Purgatory
from ..statistics import Statistics
from .families import (
    BUS,
    FAMILIES,
    LATENESS,
    LATENESS_SECONDS,
    LOG,
    POLLING,
    PURGATORY,
    WAIT,
    WAIT_SECONDS,
    WORKER,
    Family,
    Labelled,
    Log,
    Polling,
    added_up,
    families_of,
    histogram_of,
    metric_of,
    metrics_of,
)
from .histograms import OUTCOMES, HistogramObserver, KindHistograms
from .processes import SharedMetrics

#: Classes of operations that get histograms of their own; later ones share those of OTHER.
MAX_KINDS: Final = 100
OTHER: Final = "other"

#: No Metrics refers to its registry, so the entry goes when the registry does.
_made: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()
_making: Final = Lock()


@final
class Metrics(HistogramObserver):
    """Exports any number of purgatories, buses and event logs while they are open; those of one name are added up.

        metrics = Metrics()
        async with Purgatory("polls", observers=[metrics]) as polls, PostgresBus(dsn, [polls], observers=[metrics]):

    A LongPolling is exported by the observers of its purgatory. Its counts of refused polls stay when it has closed.

    There is one per registry: a second call returns the same object.

    The metrics are of this process only; aiopurgatory_worker_pid tells which. With several workers behind one port,
    each scrape reaches another one.

    PROMETHEUS_MULTIPROC_DIR is for workers that are scraped as one. With it, gauges and counters are up to a second
    old, an operation costs 2 us more, and the counts of a closed purgatory stay. Call prometheus_client's
    ``multiprocess.mark_process_dead(pid)`` for a worker that was killed, as its documentation says.

    Args: registry: where to register. Default: prometheus_client's ``REGISTRY``.

    Raises:
        TypeError: *registry* is no CollectorRegistry.
        ValueError: *registry* already has other metrics with these names.

    Cost: less than 1 us per operation that ends. A scrape costs the same however many operations are pending.
    """

    def __new__(cls, registry: CollectorRegistry = REGISTRY) -> Metrics:
        if not isinstance(registry, CollectorRegistry):
            raise TypeError(f"registry must be a CollectorRegistry, got {registry!r}")
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
        super().__init__(self._new_kind)
        self._kinds: set[str] = set()
        self._retired: dict[str, tuple[Statistics, list[KindHistograms]]] = {}
        self._buses: dict[Bus, None] = {}
        self._logs: dict[Log, None] = {}
        self._pollings: dict[Polling, None] = {}
        #: The counts of closed LongPollings: by family, the sum, and by LongPolling, since it may open again.
        self._closed_polls: dict[Family, Counter[tuple[str, ...]]] = {family: Counter() for family in POLLING}
        self._counted: WeakKeyDictionary[Polling, dict[Family, dict[tuple[str, ...], float]]] = WeakKeyDictionary()
        self._shared = SharedMetrics(registry) if "PROMETHEUS_MULTIPROC_DIR" in os.environ else None
        if self._shared is None:
            registry.register(self)

    def opened(self, what: Any) -> None:
        families = families_of(what)
        if families is PURGATORY:
            self._begin_kinds(what)
        elif families is BUS:
            self._buses[what] = None
        elif families is LOG:
            self._logs[what] = None
        elif families is POLLING:
            self._pollings[what] = None
            for family, counts in self._counted.pop(what, {}).items():
                self._closed_polls[family].subtract(counts)
        if self._shared is not None and families:
            self._shared.opened(what)

    def closed(self, what: Any) -> None:
        if isinstance(what, Purgatory):
            kinds = self._open.get(what)
            self._end_kinds(what)
            if kinds is not None:
                self._retire(what.statistics(), list(kinds.values()))
        elif what in self._buses:
            del self._buses[what]
        elif what in self._logs:
            del self._logs[what]
        elif what in self._pollings:
            del self._pollings[what]
            self._counted[what] = {family: added_up(family, [what.statistics()]) for family in POLLING}
            for family, counts in self._counted[what].items():
                self._closed_polls[family].update(counts)
        if self._shared is not None:
            self._shared.closed(what)

    def _retire(self, statistics: Statistics, kinds: list[KindHistograms]) -> None:
        """Keep the counts of a closed purgatory while others of its name are open: no counter may go back."""
        name = statistics.name
        before, kept = self._retired.pop(name, (None, []))
        if any(purgatory.name == name for purgatory in self._open):
            self._retired[name] = (
                statistics if before is None else _together(before, statistics),
                _merged(kept + kinds),
            )

    def _new_kind(self, purgatory: Purgatory, kind: type) -> KindHistograms:
        # A class may be named anything, but a scrape is UTF-8.
        name = kind.__qualname__.encode(errors="backslashreplace").decode()
        if name not in self._kinds and len(self._kinds) >= MAX_KINDS:
            name = OTHER
        self._kinds.add(name)
        forward = None if self._shared is None else self._shared.forward(purgatory.name, name)
        return KindHistograms(name, WAIT_SECONDS, LATENESS_SECONDS, forward)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values, for the registry."""
        for family in FAMILIES:
            yield (GaugeMetricFamily if family.gauge else CounterMetricFamily)(family.full_name, family.about)
        yield GaugeMetricFamily(*WORKER)
        for name, about, _ in (WAIT, LATENESS):
            yield HistogramMetricFamily(name, about)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        # Copies: the scrape may come in another thread.
        open_ = [(purgatory.statistics(), list(kinds.values())) for purgatory, kinds in list(self._open.items())]
        open_ += list(self._retired.values())
        yield from metrics_of(PURGATORY, [statistics for statistics, _ in open_])
        yield from metrics_of(BUS, [bus.statistics() for bus in list(self._buses)])
        yield from metrics_of(LOG, [log.statistics() for log in list(self._logs)])
        polls = [polling.statistics() for polling in list(self._pollings)]
        for family in POLLING:
            counts = Counter(self._closed_polls[family])
            counts.update(added_up(family, polls))
            yield metric_of(family, counts)
        worker = GaugeMetricFamily(*WORKER, labels=())
        if open_ or self._buses or self._logs:
            worker.add_metric((), os.getpid())
        yield worker
        waits: list[Labelled] = []
        lateness: list[Labelled] = []
        for statistics, by_kind in open_:
            for of_kind in by_kind:
                labels = (statistics.name, of_kind.kind)
                waits += [
                    ((*labels, outcome.value), wait) for outcome, wait in zip(OUTCOMES, of_kind.waits, strict=True)
                ]
                lateness.append((labels, of_kind.lateness))
        yield histogram_of(WAIT, waits)
        yield histogram_of(LATENESS, lateness)


def _together(one: Statistics, other: Statistics) -> Statistics:
    """Add up the counts of two closed purgatories of one name."""
    counts = [field.name for field in fields(Statistics) if field.type == "int"]
    sums = {name: getattr(one, name) + getattr(other, name) for name in counts}
    return replace(one, **sums, longest_turn=max(one.longest_turn, other.longest_turn))


def _merged(kinds: list[KindHistograms]) -> list[KindHistograms]:
    """Add up the histograms of each class."""
    found: dict[str, KindHistograms] = {}
    for each in kinds:
        kept = found.setdefault(each.kind, KindHistograms(each.kind, WAIT_SECONDS, LATENESS_SECONDS, None))
        for mine, its in zip(kept.waits, each.waits, strict=True):
            mine.add(its)
        kept.lateness.add(each.lateness)
    return list(found.values())
