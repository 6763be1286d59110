"""Computes the measures of a minute or a day from sums: shares, percentiles, and numbers waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .percentiles import PERCENTILES, Array, least
from .sums import WAITING, numbered
from .units import DAY, INSTANT, MINUTE, OUTCOMES, SECOND

KEYS: Final = ("purgatory", "kind")
_WAITED: Final = {f"waited_{name}_us": share for name, share in PERCENTILES.items()}
_LATENESS: Final = {"lateness_p50_us": 0.5, "lateness_p99_us": 0.99, "lateness_max_us": 1.0}
MEASURES: Final = (
    "operations",
    *OUTCOMES,
    "missed_triggers",
    *(f"{name}_share" for name in OUTCOMES),
    *_WAITED,
    *_LATENESS,
)
WAITED: Final = ("pending_mean", "pending_peak")
SECONDS: Final = (*OUTCOMES, "pending")
_PER_DAY: Final = DAY // MINUTE
_PER_MINUTE: Final = MINUTE // SECOND
_SECONDS_PER_DAY: Final = DAY // SECOND
DAYS: Final = pa.schema(
    [
        ("date", pa.date32()),
        *((name, pa.string()) for name in KEYS),
        ("covered_s", pa.float64()),
        *((name, pa.float64()) for name in (*MEASURES, *WAITED)),
    ]
)
MINUTES: Final = DAYS.insert(3, pa.field("minute", INSTANT))
OF_SECONDS: Final = pa.schema(
    [*((name, pa.string()) for name in KEYS), ("second", INSTANT), *((name, pa.float64()) for name in SECONDS)]
)

Spans = Mapping[str, tuple[int, int]]


def measured(groups: int, group: Array, activity: pa.Table) -> dict[str, Array]:
    """Return MEASURES of each of *groups*. *group* holds the group of each row of *activity*.

    Percentiles are NaN where nothing has ended. Those of lateness are NaN where nothing has expired.
    """
    operations = activity.column("operations").to_numpy()
    outcome = activity.column("outcome").to_numpy()
    total = np.bincount(group, operations, groups)
    found: dict[str, Array] = {"operations": total}
    by = np.bincount(group * len(OUTCOMES) + outcome, operations, groups * len(OUTCOMES)).reshape(groups, -1)
    found |= dict(zip(OUTCOMES, by.T, strict=True))
    found["missed_triggers"] = np.bincount(group, activity.column("missed_triggers").to_numpy(), groups)
    with np.errstate(invalid="ignore"):
        found |= {f"{name}_share": found[name] / total for name in OUTCOMES}
    for column, shares in (("waited", _WAITED), ("lateness", _LATENESS)):
        values = least(group, activity.column(column).to_numpy(), operations, groups, list(shares.values()))
        found |= dict(zip(shares, values.T, strict=True))
    return found


class DaySums:
    """The sums of one day, and the number of operations waiting in each of its seconds."""

    def __init__(self, day: int, activity: pa.Table, seconds: pa.Table) -> None:
        """
        Args:
            day: the day's number since 1970.
            seconds: sums of operations that were waiting or ended on the day, with those that ended later.
        """
        self._day = day
        self._activity = activity
        numbers: dict[tuple[str, str], int] = {}
        self._series_of_activity = series_of(activity, numbers)
        series_of_seconds = series_of(seconds, numbers)
        self._names = list(numbers)
        self._waiting = self._levels(series_of_seconds, seconds)
        self._ends = series_of_seconds, seconds

    def minutes(self, spans: Spans) -> pa.Table:
        """Return MINUTES with operations that ended or waited."""
        begin = self._day * _PER_DAY
        group = self._series_of_activity * _PER_DAY + self._activity.column("minute").to_numpy() - begin
        columns = measured(len(self._names) * _PER_DAY, group, self._activity)
        waiting = self._waiting.reshape(len(self._names) * _PER_DAY, -1)
        columns["pending_peak"] = waiting.max(axis=1, initial=0.0)
        some = np.flatnonzero((columns["operations"] > 0) | (columns["pending_peak"] > 0))
        series, minute = some // _PER_DAY, begin + some % _PER_DAY
        covered = self._covered(spans, series, minute * MINUTE, MINUTE)
        columns = {name: values[some] for name, values in columns.items()}
        columns["pending_mean"] = self._means(spans, series, minute * _PER_MINUTE, waiting[some])
        return self._table(MINUTES, series, columns | {"minute": minute * MINUTE, "covered_s": covered})

    def days(self, spans: Spans, minutes: pa.Table) -> pa.Table:
        """Return DAYS. The mean number waiting is over the minutes in *minutes*."""
        columns = measured(len(self._names), self._series_of_activity, self._activity)
        numbers = {name: number for number, name in enumerate(self._names)}
        names = zip(minutes.column("purgatory").to_pylist(), minutes.column("kind").to_pylist(), strict=True)
        series = np.array([numbers[name] for name in names], np.int64)
        covered = minutes.column("covered_s").to_numpy()
        held = np.bincount(series, minutes.column("pending_mean").to_numpy() * covered, len(numbers))
        mean = held / np.maximum(np.bincount(series, covered, len(numbers)), 1)
        peak = np.zeros(len(numbers))
        np.maximum.at(peak, series, minutes.column("pending_peak").to_numpy())
        some = np.flatnonzero(columns["operations"] > 0)
        columns |= {"pending_mean": mean, "pending_peak": peak}
        columns = {name: values[some] for name, values in columns.items()}
        covered = self._covered(spans, some, np.full(len(some), self._day * DAY), DAY)
        return self._table(DAYS, some, columns | {"covered_s": covered})

    def seconds(self) -> pa.Table:
        """Return OF_SECONDS with operations that ended or waited."""
        series, table = self._ends
        second = table.column("second").to_numpy() - self._day * _SECONDS_PER_DAY
        what, operations = table.column("what").to_numpy(), table.column("operations").to_numpy()
        cells = len(self._names) * _SECONDS_PER_DAY
        inside = (second >= 0) & (second < _SECONDS_PER_DAY)
        cell = series * _SECONDS_PER_DAY + second
        columns = {"pending": self._waiting.ravel()}
        for number, name in enumerate(OUTCOMES):
            own = inside & (what == number)
            columns[name] = np.bincount(cell[own], operations[own], cells)
        some = np.flatnonzero(sum(columns.values()) > 0)
        columns = {name: values[some] for name, values in columns.items()}
        at = (self._day * _SECONDS_PER_DAY + some % _SECONDS_PER_DAY) * SECOND
        return self._table(OF_SECONDS, some // _SECONDS_PER_DAY, columns | {"second": at})

    def _levels(self, series: Array, seconds: pa.Table) -> Array:
        """Return the number waiting by series and second of the day: watched by then, and not ended."""
        what = seconds.column("what").to_numpy() == WAITING
        second = seconds.column("second").to_numpy()[what] - self._day * _SECONDS_PER_DAY
        series, change = series[what], seconds.column("operations").to_numpy()[what]
        before = second < _SECONDS_PER_DAY
        cell = series * _SECONDS_PER_DAY + np.maximum(second, 0)
        changes = np.bincount(cell[before], change[before], len(self._names) * _SECONDS_PER_DAY)
        levels = changes.reshape(len(self._names), _SECONDS_PER_DAY).cumsum(axis=1)
        waiting: Array = np.maximum(np.round(levels, 6), 0.0)
        return waiting

    def _means(self, spans: Spans, series: Array, begin: Array, waiting: Array) -> Array:
        """Return means over the seconds of each minute that the journal covers; over all seconds if it covers none."""
        first, last = (self._bounds(spans, series) // SECOND).T
        second = begin[:, None] + np.arange(_PER_MINUTE)
        seen = (second >= first[:, None]) & (second <= last[:, None])
        seen[~seen.any(axis=1)] = True
        means: Array = np.average(waiting, axis=1, weights=seen) if len(series) else np.zeros(0)
        return means

    def _bounds(self, spans: Spans, series: Array) -> Array:
        bounds = np.array([spans.get(name, (0, 0)) for name, _ in self._names], np.int64).reshape(-1, 2)
        found: Array = bounds[series]
        return found

    def _covered(self, spans: Spans, series: Array, begin: Array, length: int) -> Array:
        """Return the seconds of each stretch covered by the purgatory's journal, at least 1."""
        bounds = self._bounds(spans, series)
        overlap = np.minimum(begin + length, bounds[:, 1]) - np.maximum(begin, bounds[:, 0])
        seconds: Array = np.clip(overlap / SECOND, 1.0, length / SECOND)
        return seconds

    def _table(self, schema: pa.Schema, series: Array, columns: dict[str, Any]) -> pa.Table:
        for place, name in enumerate(KEYS):
            columns[name] = pa.array([each[place] for each in self._names], pa.string()).take(pa.array(series))
        columns["date"] = pa.array(np.full(len(series), self._day, np.int32), pa.date32())
        arrays = []
        for field in schema:
            values = columns[field.name]
            if field.type == pa.float64():
                values = pa.array(values, from_pandas=True)  # NaN is null
            elif field.type == INSTANT:
                values = pa.array(values).cast(field.type)
            arrays.append(values)
        order = [(name, "ascending") for name in (*KEYS, "minute", "second") if name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema).sort_by(order)


def series_of(table: pa.Table, numbers: dict[tuple[str, str], int]) -> Array:
    """Return for each row the number of its purgatory and kind. New ones are added to *numbers*."""
    columns = (table.column(name).dictionary_encode().unify_dictionaries().combine_chunks() for name in KEYS)
    first, second = ((each.indices.to_numpy(), each.dictionary.to_pylist()) for each in columns)
    return numbered(first, second, lambda name: numbers.setdefault(name, len(numbers)))
