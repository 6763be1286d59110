"""The observer that a Prometheus registry collects from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from threading import Lock
from typing import Any, Final, final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from ..core.kit import Outcome
from ..purgatory import Purgatory
from .families import LATENESS, WAIT, WORKER, Instruments, Labels, histogram_of
from .histograms import LATENESS_SECONDS, OUTCOMES, WAIT_SECONDS, Histogram, HistogramObserver, KindHistograms

#: Classes of operations that get histograms of their own; later ones share one, OTHER.
MAX_KINDS: Final = 100
OTHER: Final = "other"
#: Seconds between two readings of statistics() for metrics that processes share.
PUBLISH_INTERVAL: Final = 1.0

#: No Metrics refers to its registry, so the entry goes when the registry does.
_made: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()
_making: Final = Lock()


@final
class Metrics(HistogramObserver):
    """Exports any number of purgatories, buses and event logs; equal names are added up.

        metrics = Metrics()
        async with Purgatory("polls", observers=[metrics]) as polls, PostgresBus(dsn, [polls], observers=[metrics]):

    A LongPolling is exported by the observers of its purgatory. Counters and histograms stay when what they count has
    closed; gauges do not. So give purgatories few names, not one for each request.

    There is one per registry: a second call returns the same object.

    The metrics are of this process only; aiopurgatory_worker_pid tells which. With several workers behind one port,
    each scrape reaches another one.

    PROMETHEUS_MULTIPROC_DIR is for workers that are scraped as one. With it, gauges and counters are up to a second
    old, and an operation costs 2 us more. Call prometheus_client's ``multiprocess.mark_process_dead(pid)`` for a worker
    that was killed, as its documentation says.

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
        super().__init__(self._histograms_of)
        #: By the names of the purgatory and the class.
        self._histograms: dict[Labels, KindHistograms] = {}
        # prometheus_client shares its own instruments between processes, through files, but no custom collectors.
        # Otherwise this collects from the instruments: by themselves, they also export when each was created.
        shared = registry if "PROMETHEUS_MULTIPROC_DIR" in os.environ else None
        self._shared = None if shared is None else SharedHistograms(shared)
        self._instruments = Instruments(shared)
        #: Of the instruments: a scrape may come in another thread.
        self._moving = Lock()
        self._timers: dict[Any, asyncio.TimerHandle] = {}
        if self._shared is None:
            registry.register(self)

    def opened(self, what: Any) -> None:
        self._open[what] = {}
        self._cancel_timer(what)
        self._publish(what)  # now: a log that opens again counts from 0

    def closed(self, what: Any) -> None:
        if self._open.pop(what, None) is None:
            return
        self._cancel_timer(what)
        with self._moving:
            self._instruments.look(what)
            self._instruments.forget_gauges(what)

    def _cancel_timer(self, subject: Any) -> None:
        if subject in self._timers:
            self._timers.pop(subject).cancel()

    def _publish(self, subject: Any) -> None:
        """Move the instruments to the values of *subject*; shared ones regularly."""
        if self._shared is not None:
            loop = asyncio.get_running_loop()
            # In an empty context: a request may open the subject, which lives longer.
            self._timers[subject] = loop.call_later(PUBLISH_INTERVAL, self._publish, subject, context=Context())
        with self._moving:
            self._instruments.look(subject)  # it may raise, as when the disk is full

    def _histograms_of(self, purgatory: Purgatory, kind: type) -> KindHistograms:
        # A class may be named anything, but a scrape is UTF-8.
        name = kind.__qualname__.encode(errors="backslashreplace").decode()
        kinds = {kind for _, kind in self._histograms}
        if name not in kinds and len(kinds) >= MAX_KINDS:
            name = OTHER
        labels = (purgatory.name, name)
        if labels not in self._histograms:
            forward = None if self._shared is None else self._shared.forward(*labels)
            self._histograms[labels] = KindHistograms(forward)
        return self._histograms[labels]

    def describe(self) -> Iterator[Metric]:
        """Yield the same as collect(), for the registry, which reads the names."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        with self._moving:
            subjects = list(self._open)  # what closes meanwhile waits for this, and is forgotten after it
            instruments = self._instruments.by_family.values()
            for instrument in instruments:
                if isinstance(instrument, Gauge):
                    instrument.clear()  # of the closed ones
            for subject in subjects:
                self._instruments.look(subject)
            metrics = [metric for instrument in instruments for metric in instrument.collect()]
        for metric in metrics:
            metric.samples[:] = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield GaugeMetricFamily(*WORKER, os.getpid() if subjects else None)
        waits: list[tuple[Labels, Histogram]] = []
        lateness: list[tuple[Labels, Histogram]] = []
        for labels, kind in list(self._histograms.items()):  # a copy, as above
            waits += [((*labels, end.value), wait) for end, wait in zip(OUTCOMES, kind.waits, strict=True)]
            lateness.append((labels, kind.lateness))
        yield histogram_of(WAIT, waits)
        yield histogram_of(LATENESS, lateness)


class SharedHistograms:
    """The histograms that processes share by PROMETHEUS_MULTIPROC_DIR."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waits = PrometheusHistogram(*WAIT, buckets=WAIT_SECONDS, registry=registry)
        self._lateness = PrometheusHistogram(*LATENESS, buckets=LATENESS_SECONDS, registry=registry)

    def forward(self, purgatory: str, kind: str) -> Callable[[Outcome, float, float | None], object]:
        """Return the function that counts the operations of class *kind*."""
        waits = {outcome: self._waits.labels(purgatory, kind, outcome.value) for outcome in OUTCOMES}
        late = self._lateness.labels(purgatory, kind)

        def observe(outcome: Outcome, waited: float, lateness: float | None) -> None:
            waits[outcome].observe(waited)
            if lateness is not None:
                late.observe(lateness)

        return observe
