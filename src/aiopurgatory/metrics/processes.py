"""The same metrics for many processes that are scraped as one.

prometheus_client shares its own instruments between processes, through files, but no custom collectors. So the values
are moved to such instruments: histograms at each operation, all else once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client import Histogram as PrometheusHistogram

from ..core.kit import Outcome
from .families import (
    FAMILIES,
    LATENESS,
    LATENESS_SECONDS,
    WAIT,
    WAIT_SECONDS,
    Changes,
    Family,
    families_of,
)
from .histograms import OUTCOMES

#: Seconds between two readings of statistics().
PUBLISH_INTERVAL: Final = 1.0


class SharedMetrics:
    """Publishes the metrics of this process in instruments that PROMETHEUS_MULTIPROC_DIR shares."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._instruments = {family: _instrument(family, registry) for family in FAMILIES}
        self._waits = PrometheusHistogram(*WAIT, buckets=WAIT_SECONDS, registry=registry)
        self._lateness = PrometheusHistogram(*LATENESS, buckets=LATENESS_SECONDS, registry=registry)
        self._changes = Changes()
        self._timers: dict[Any, asyncio.TimerHandle] = {}

    def forward(self, purgatory: str, kind: str) -> Callable[[Outcome, float, float | None], object]:
        """Return the function that counts the operations of class *kind*."""
        waits = {outcome: self._waits.labels(purgatory, kind, outcome.value) for outcome in OUTCOMES}
        late = self._lateness.labels(purgatory, kind)

        def observe(outcome: Outcome, waited: float, lateness: float | None) -> None:
            waits[outcome].observe(waited)
            if lateness is not None:
                late.observe(lateness)

        return observe

    def opened(self, subject: Any) -> None:
        """Publish the values of *subject* now, and then regularly."""
        if subject in self._timers:
            self._timers.pop(subject).cancel()
        self._publish(subject)

    def closed(self, subject: Any) -> None:
        """Publish the last counts, and set the gauges back to 0: a shared one cannot be removed."""
        if subject not in self._timers:
            return
        self._timers.pop(subject).cancel()
        self._move(subject)
        for family, labels, value in self._changes.forget_gauges(subject):
            if family.greatest:
                cast(Gauge, self._instruments[family].labels(*labels)).set(0)
            else:
                self._instruments[family].labels(*labels).inc(-value)

    def _publish(self, subject: Any) -> None:
        loop = asyncio.get_running_loop()
        # In an empty context: a request may open the subject, which lives longer.
        self._timers[subject] = loop.call_later(PUBLISH_INTERVAL, self._publish, subject, context=Context())
        self._move(subject)  # it may raise, as when the disk is full

    def _move(self, subject: Any) -> None:
        """Move each instrument by the change since the last time."""
        for family, labels, change in self._changes.look(subject, families_of(subject)):
            instrument = self._instruments[family].labels(*labels)
            if family.greatest:
                cast(Gauge, instrument).set(self._changes.greatest(family, labels))
            else:
                instrument.inc(change)


def _instrument(family: Family, registry: CollectorRegistry) -> Counter | Gauge:
    if not family.gauge:
        return Counter(family.full_name, family.about, family.all_labels, registry=registry)
    make = partial(Gauge, family.full_name, family.about, family.all_labels, registry=registry)
    return make(multiprocess_mode="livemax") if family.greatest else make(multiprocess_mode="livesum")
