"""Clean table -> a model of the workload for each purgatory and kind of operation, in OUT/model.json.

Arrivals per second by hour of the day, a log-normal time to completion, and the popularity of a purgatory's keys. All
are estimated from the sums that ingest has written. Operations that were cancelled or failed count as completed then:
they ended before their deadline. Those that expired are right-censored. Those completed by the last try at their
deadline are left-censored. Findings tell how well each part fits, and name extrapolated numbers. A day without a row
of the purgatory counts as not recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

from .cleaning.versions import Manifest, published
from .minutes import sums
from .minutes.hot_keys import counted, shares_of
from .minutes.measures import series_of
from .minutes.units import DAY, EPOCH, SECOND
from .page.wording import duration, share
from .spark.folders import absolute
from .spark.session import stage_session
from .spark.tasks import Spark, spread
from .workload.completion import CONFIDENCE, PERCENTILES, Array, Binned, Interval, LogNormal, log_normal
from .workload.model import HOURS, Workload, expired_share, write_model
from .workload.popularity import Popularity, popularity

_HOUR_US = 3_600_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("clean", help="folder written by ingest")
    parser.add_argument("out", type=Path, help="folder for the model")


def run(args: argparse.Namespace) -> None:
    """Fit, and print how well the models fit."""
    with stage_session("fit", args) as spark:
        workloads = fit(spark, args.clean)
    write_model(workloads, args.out / "model.json")
    for workload in workloads:
        print(f"{workload.purgatory}, {workload.kind}:", *workload.findings, sep="\n  ")
    print(f"The model is in {args.out / 'model.json'}")


def fit(spark: Spark, clean: str) -> list[Workload]:
    """Fit a model to each purgatory and kind in the folder *clean*.

    Raises: PurgatoryError: there is no clean table, or no operation in it.
    """
    manifest, out = published(clean), absolute(clean)
    files = manifest.files(out, "shapes")
    if not files:
        raise PurgatoryError(f"no operations in {clean}")
    shapes = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    by = ["purgatory", "kind", "what", "number"]
    summed = shapes.group_by(by, use_threads=False).aggregate(
        [(name, "sum") for name in ("operations", "squares", "total")]
    )
    keys = key_popularity(spark, manifest, out)
    covered = {name: _covered(manifest, name) for name in keys}
    kinds = _by_kind(summed.sort_by([(name, "ascending") for name in by]))
    return [_Kind(rows, keys[name[0]], covered[name[0]]).workload(*name) for name, rows in kinds.items()]


def _by_kind(ordered: pa.Table) -> dict[tuple[str, str], dict[int, Binned]]:
    """Rows of shapes in order -> the sums of each purgatory and kind, by ``what``."""
    pairs: dict[tuple[str, str], int] = {}
    place = series_of(ordered, pairs) * sums.WHATS + ordered["what"].to_numpy()
    names = ("number", "operations_sum", "squares_sum", "total_sum")
    number, weights, squares, totals = (ordered[name].to_numpy() for name in names)
    columns = number, totals / weights, weights, squares
    bounds = np.searchsorted(place, np.arange(len(pairs) * sums.WHATS + 1))
    parts = [Binned(*(column[a:b] for column in columns)) for a, b in pairwise(bounds)]
    return {name: dict(enumerate(parts[n * sums.WHATS :][: sums.WHATS])) for name, n in pairs.items()}


def key_popularity(spark: Spark, manifest: Manifest, out: str) -> dict[str, Popularity]:
    """Return the popularity of the keys of each purgatory."""
    files = [
        (f"{out}/{path}", rows) for _, day in manifest.between(None, None) for path, rows in day.files.get("keys", [])
    ]
    shares = shares_of(files)
    found: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    for each in spread(spark, partial(counted, [path for path, _ in files], shares=shares), range(shares)):
        for purgatory, count, keys in each:
            found[purgatory][count] += keys
    return {name: popularity(list(counts.items())) for name, counts in found.items()}


def _covered(manifest: Manifest, purgatory: str) -> Mapping[int, float]:
    """Return the seconds that the journal covers, by hour of the day.

    A day is covered from its first end to its last, and from or to midnight if the day beside it has rows, too.
    """
    days = {(day - EPOCH).days: files.spans.get(purgatory) for day, files in manifest.between(None, None)}
    found: dict[int, float] = defaultdict(float)
    for number, span in days.items():
        if span is None:
            continue
        midnight = number * DAY
        begin = midnight if days.get(number - 1) else span[0]
        end = midnight + DAY if days.get(number + 1) else span[1] + 1
        for hour in range(HOURS):
            start = midnight + hour * _HOUR_US
            seconds = (min(end, start + _HOUR_US) - max(begin, start)) / SECOND
            if seconds > 0:
                found[hour] += seconds
    return found


@dataclass
class _Kind:
    """The sums of one kind of operation, and the estimates made from them."""

    rows: Mapping[int, Binned]
    keys: Popularity
    covered: Mapping[int, float]

    def workload(self, purgatory: str, kind: str) -> Workload:
        known, completion = self.rates, self.completion
        typical = sum(known.values()) / len(known)
        timeouts, key_counts = self.rows[sums.TIMEOUTS], self.rows[sums.KEY_COUNTS]
        bins = zip(timeouts.bins.tolist(), timeouts.means.tolist(), strict=True)
        workload = Workload(
            purgatory=purgatory,
            kind=kind,
            arrivals_per_second=tuple(known.get(hour, typical) for hour in range(HOURS)),
            first_hour=int(self.rows[sums.BY_HOUR].bins.min()) % HOURS,
            p50_ms=completion.p50_ms if completion else None,
            sigma=completion.sigma if completion else 0.0,
            timeouts_ms=_shares(
                [None if number < 0 else round(mean) / 1000 for number, mean in bins], timeouts.weights
            ),
            key_counts=_shares(key_counts.bins.tolist(), key_counts.weights),
            key_space=self.keys.keys,
            zipf=self.keys.zipf,
            at_once=self.share(sums.AT_ONCE),
            evidence=self._evidence(),
        )
        return replace(workload, findings=tuple(_findings(self, workload)))

    def share(self, *what: int) -> float:
        return float(sum(self.rows[each].weights.sum() for each in what)) / self.weight

    @cached_property
    def weight(self) -> float:
        """The number of operations."""
        return float(self.rows[sums.BY_HOUR].weights.sum())

    @cached_property
    def completion(self) -> LogNormal | None:
        return log_normal(*(self.rows[what] for what in (sums.ENDED, sums.EXPIRED, sums.LAST_TRY)))

    @cached_property
    def rates(self) -> dict[int, float]:
        """Arrivals per second by hour of the day, for the hours covered."""
        rows = self.rows[sums.BY_HOUR]
        counts = np.bincount(rows.bins % HOURS, rows.weights, HOURS).tolist()
        # A journal of less than a second says nothing about a second.
        return {hour: counts[hour] / max(seconds, 1.0) for hour, seconds in sorted(self.covered.items())}

    def _evidence(self) -> dict[str, Any]:
        completion = self.completion
        ends = {"at once": sums.AT_ONCE, "ended": sums.ENDED, "last try": sums.LAST_TRY, "expired": sums.EXPIRED}
        return {
            "operations": self.weight,
            "seconds_covered": sum(self.covered.values()),
            "shares": {name: self.share(what) for name, what in ends.items()},
            "confidence": CONFIDENCE,
            "extrapolated_percentiles": _extrapolated(completion) if completion else [],
            "hours_seen": sorted(self.rates),
            "completion": asdict(completion) | {"fits": completion.fits} if completion else None,
            "popularity": asdict(self.keys) | {"fits": self.keys.fits},
        }


def _extrapolated(completion: LogNormal) -> list[int]:
    return [percent for percent in PERCENTILES if completion.extrapolated(percent)]


def _shares(values: Sequence[Any], weights: Array) -> tuple[tuple[Any, float], ...]:
    """The values in order, None last, each with its share."""
    pairs = zip(values, (weights / weights.sum()).tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0)))


# In words


def _findings(kind: _Kind, workload: Workload) -> Iterator[str]:
    rates = kind.rates.values()
    yield f"{kind.weight:,.0f} operations in {duration(sum(kind.covered.values()) * 1e6)}."
    if len(rates) == 1:
        yield f"Arrivals: {max(rates):,.3g} per second."
    else:
        low, high = min(rates), max(rates)
        yield f"Arrivals: {low:,.3g} per second in the quietest hour of the day, {high:,.3g} in the busiest."
    if len(rates) < HOURS:
        yield f"Extrapolated: {HOURS - len(rates)} of the 24 hours of the day were not seen. They get the others' mean."
    yield from _about_completion(kind)
    yield f"In the model, {share(expired_share(workload))} of operations expire."
    keys = kind.keys
    law = "equally popular" if keys.zipf == 0 else f"popularity falls with rank to the power of -{keys.zipf:.3g}"
    yield f"{keys.keys:,} first keys, {law}. {share(keys.hottest)} of operations wait under the hottest."
    if not keys.fits:
        yield f"KEY POPULARITY IS NOT ZIPF: up to some rank, the keys' share is off by {share(keys.largest_gap)}."


def _about_completion(kind: _Kind) -> Iterator[str]:
    completion = kind.completion
    yield (
        f"{share(kind.share(sums.AT_ONCE))} never had to wait, {share(kind.share(sums.ENDED, sums.LAST_TRY))} "
        f"ended after a wait before their deadline, {share(kind.share(sums.EXPIRED))} expired."
    )
    if completion is None:
        yield "NOTHING ENDED BETWEEN ITS BEGINNING AND ITS DEADLINE: in a trace, waits never complete."
        return
    model = ", ".join(_percentile(completion, percent) for percent in PERCENTILES)
    sigma = _between(completion.intervals["sigma"], lambda value: f"{value:.3g}")
    yield f"Time to completion, log-normal: {model}; sigma {completion.sigma:.3g}{sigma}."
    seen = [f"p{percent} {duration(ms * 1000)}" for percent, ms in completion.seen_ms.items() if ms is not None]
    yield f"Seen (Kaplan-Meier): {', '.join(seen) or 'less than half completed in time'}."
    if _extrapolated(completion):
        yield f"Extrapolated: times over {duration(completion.followed_ms * 1000)}, the longest that was seen."
    gap = (
        f"by {duration(completion.gap_at_ms * 1000)}, {share(completion.gap_seen)} had completed, "
        f"{share(completion.gap_model)} in the model"
    )
    if completion.fits:
        yield f"The model fits. Largest gap: {gap}."
    else:
        yield f"TIMES TO COMPLETION ARE NOT LOG-NORMAL: {gap}. Do not trust the model near such times."
    if kind.share(sums.LAST_TRY) > 0.01:
        missed = share(kind.share(sums.LAST_TRY))
        yield f"{missed} were completed only by the last try at their deadline: missed triggers."


def _percentile(completion: LogNormal, percent: int) -> str:
    between = _between(completion.intervals.get(f"p{percent}_ms"), lambda ms: duration(ms * 1000))
    mark = " (extrapolated)" if completion.extrapolated(percent) else ""
    return f"p{percent} {duration(completion.percentile_ms(percent) * 1000)}{between}{mark}"


def _between(interval: Interval | None, shown: Any) -> str:
    return f" (95 %: {shown(interval[0])} to {shown(interval[1])})" if interval else ""
