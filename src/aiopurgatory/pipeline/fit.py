"""Clean table -> a model of the workload for each purgatory and kind of operation, in OUT/model.json.

Estimated by maximum likelihood: arrivals per second by hour of the day, a log-normal time to completion, and the
popularity of keys. Operations that expired, were cancelled or failed are right-censored. Those completed by the last
try at their deadline are left-censored. Each estimate has a 95 % interval, which holds if operations are independent of
each other. Findings tell how well each part fits, and name extrapolated numbers.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from aiopurgatory.errors import PurgatoryError

from .cleaning.clean_table import read_clean
from .cleaning.journal_tables import OPERATIONS
from .page.wording import duration
from .spark.session import stage_session
from .workload import aggregates
from .workload.arrivals import HOUR, Hour, Poisson, Rate, poisson, rates
from .workload.completion import PERCENTILES, Binned, LogNormal, Times, log_normal
from .workload.estimate import CONFIDENCE, Interval
from .workload.model import HOURS, Workload, expired_share, write_model
from .workload.popularity import Popularity, popularity

#: Operations of a kind, by how they ended, and their names in the model's evidence.
ENDS: Final = {
    aggregates.COMPLETED: "completed",
    aggregates.LONGER: "longer",
    aggregates.SHORTER: "shorter",
    aggregates.AT_ONCE: "at once",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("clean", help="folder written by ingest")
    parser.add_argument("out", type=Path, help="folder for the model")


def run(args: argparse.Namespace) -> None:
    """Fit, and print how well the models fit."""
    with stage_session("fit", args) as spark:
        workloads = fit(read_clean(spark, args.clean, OPERATIONS))
    if not workloads:
        raise PurgatoryError(f"no operations in {args.clean}")
    write_model(workloads, args.out / "model.json")
    for workload in workloads:
        print(f"{workload.purgatory}, {workload.kind}:", *workload.findings, sep="\n  ")
    print(f"The model is in {args.out / 'model.json'}")


def fit(operations: DataFrame) -> list[Workload]:
    """Fit a model to each purgatory and kind in *operations*, a clean table. Cost: two passes over it."""
    kinds: dict[tuple[str, str], _Kind] = defaultdict(_Kind)
    for row in aggregates.aggregates(operations).collect():
        kinds[row.purgatory, row.kind].rows[row.what].append(row)
    for row in aggregates.keys_by_count(operations).collect():
        kinds[row.purgatory, row.kind].keys.append((row["count"], row["keys"]))
    return [kind.workload(*name) for name, kind in sorted(kinds.items())]


@dataclass
class _Kind:
    """The aggregates of one kind of operation, and the estimates made from them."""

    rows: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    keys: list[tuple[float, int]] = field(default_factory=list)

    def workload(self, purgatory: str, kind: str) -> Workload:
        known, completion, keys = self.rates, self.completion, self.popularity
        typical = sum(rate.per_second for rate in known.values()) / len(known)
        workload = Workload(
            purgatory=purgatory,
            kind=kind,
            arrivals_per_second=tuple(known[hour].per_second if hour in known else typical for hour in range(HOURS)),
            first_hour=self._bounds[0] // HOUR % HOURS,
            p50_ms=completion.p50_ms if completion else None,
            sigma=completion.sigma if completion else 0.0,
            timeouts_ms=_shares(
                (None if row.number is None else round(row.total / row.weight) / 1000, row.weight)
                for row in self.rows[aggregates.TIMEOUTS]
            ),
            key_counts=_shares((row.number, row.weight) for row in self.rows[aggregates.KEY_COUNTS]),
            key_space=keys.exist if keys.fits else keys.keys,
            zipf=keys.zipf,
            at_once=self.shares["at once"],
            evidence=self._evidence(),
        )
        return replace(workload, findings=tuple(_findings(self, workload)))

    @cached_property
    def weight(self) -> float:
        """The number of operations."""
        return float(sum(row.weight for what in ENDS for row in self.rows[what]))

    @cached_property
    def shares(self) -> dict[str, float]:
        """The shares of operations, by how they ended."""
        return {name: float(sum(row.weight for row in self.rows[what])) / self.weight for what, name in ENDS.items()}

    @cached_property
    def completion(self) -> LogNormal | None:
        parts = (Binned.of(self.rows[what]) for what in (aggregates.COMPLETED, aggregates.LONGER, aggregates.SHORTER))
        return log_normal(Times(*parts))

    @cached_property
    def popularity(self) -> Popularity:
        squares = float(sum(row.squares for what in ENDS for row in self.rows[what]))
        return popularity(self.keys, squares / self.weight)

    @cached_property
    def rates(self) -> dict[int, Rate]:
        """Arrival rates by hour of the day, for the hours seen."""
        first, last = self._bounds
        if not self._hours:  # the journal holds no whole second
            return {first // HOUR % HOURS: Rate(self.weight / (last - first + 1), None)}
        dispersion = 1.0 if self.poisson.fits else self.poisson.index or 1.0
        return rates(self._hours, first, last, dispersion)

    @cached_property
    def poisson(self) -> Poisson:
        return poisson(self._hours, *self._bounds)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The first and the last second with arrivals. The journal may begin and end inside them."""
        arrivals = self.rows[aggregates.ARRIVALS]
        return min(row["first"].second for row in arrivals), max(row["last"].second for row in arrivals)

    @cached_property
    def _hours(self) -> list[Hour]:
        """Arrivals between the first and the last second, by hour."""
        hours = []
        for row in self.rows[aggregates.ARRIVALS]:
            ends = {row[name].second: row[name] for name in ("first", "last") if row[name].second in self._bounds}
            weight = row.weight - sum(end.weight for end in ends.values())
            if weight > 1e-9 * row.weight:
                squares = row.squares - sum(end.squares for end in ends.values())
                squares_of_seconds = row.squares_of_seconds - sum(end.weight**2 for end in ends.values())
                hours.append(Hour(row.number, weight, squares, squares_of_seconds))
        return hours

    def _evidence(self) -> dict[str, Any]:
        completion, keys = self.completion, self.popularity
        intervals: dict[str, Any] = dict(completion.intervals) if completion else {}
        intervals["zipf"] = keys.interval
        intervals["arrivals_per_second"] = {str(hour): rate.interval for hour, rate in sorted(self.rates.items())}
        return {
            "operations": self.weight,
            "shares": self.shares,
            "confidence": CONFIDENCE,
            "intervals": intervals,
            "extrapolated_beyond_ms": completion.followed_ms if completion else None,
            "extrapolated_percentiles": _extrapolated(completion) if completion else [],
            "extrapolated_hours": [hour for hour in range(HOURS) if hour not in self.rates],
            "hours_seen": sorted(self.rates),
            "poisson": asdict(self.poisson) | {"fits": self.poisson.fits},
            "completion": asdict(completion) | {"fits": completion.fits} if completion else None,
            "popularity": asdict(keys) | {"fits": keys.fits},
        }


def _extrapolated(completion: LogNormal) -> list[int]:
    return [percent for percent in PERCENTILES if completion.extrapolated(percent)]


def _shares(pairs: Iterator[tuple[Any, float]]) -> tuple[tuple[Any, float], ...]:
    """The values in order, None last, each with its share."""
    ordered = sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0))
    total = sum(weight for _, weight in ordered)
    return tuple((value, weight / total) for value, weight in ordered)


# In words


def _findings(kind: _Kind, workload: Workload) -> Iterator[str]:
    yield from _about_arrivals(kind)
    yield from _about_completion(kind.completion, kind.shares)
    yield f"The model expects {_percent(expired_share(workload))} of operations to expire."
    yield from _about_keys(kind.popularity)


def _about_arrivals(kind: _Kind) -> Iterator[str]:
    known = kind.rates
    slow, fast = (choose(known.values(), key=lambda rate: rate.per_second) for choose in (min, max))
    yield f"{kind.weight:,.0f} operations."
    if len(known) == 1:
        yield f"Arrivals: {_rate(fast)}."
    else:
        yield f"Arrivals by hour of the day: {_rate(slow)} in the quietest hour, {_rate(fast)} in the busiest."
    if len(known) < HOURS:
        yield f"Extrapolated: {HOURS - len(known)} of the 24 hours of the day were not seen. They get the others' mean."
    yield _about_poisson(kind.poisson)


def _rate(rate: Rate) -> str:
    return f"{rate.per_second:,.3g} per second{_between(rate.interval, lambda value: f'{value:,.3g}')}"


def _about_poisson(poisson: Poisson) -> str:
    if poisson.index is None or poisson.p is None:
        return "The test whether arrivals are Poisson needs more than one whole second."
    what = f"their variance per second is {poisson.index:.2f} times that of a Poisson process (p = {poisson.p:.2g})"
    if poisson.fits:
        return f"Arrivals are Poisson, as far as can be seen: {what}."
    how = "in bursts" if poisson.index > 1 else "more evenly"
    return f"ARRIVALS ARE NOT POISSON: they come {how}, {what}. A trace made from this model is Poisson."


def _about_completion(completion: LogNormal | None, shares: dict[str, float]) -> Iterator[str]:
    after_wait = shares["completed"] + shares["shorter"]
    yield (
        f"{_percent(shares['at once'])} never had to wait, {_percent(after_wait)} completed after a wait, "
        f"{_percent(shares['longer'])} expired, were cancelled or failed."
    )
    if completion is None:
        yield "NOTHING COMPLETED AFTER A WAIT: the time to completion is unknown. In a trace, waits never complete."
        return
    model = ", ".join(_percentile(completion, percent) for percent in PERCENTILES)
    sigma = f"sigma {completion.sigma:.4g}{_between(completion.intervals['sigma'], lambda value: f'{value:.4g}')}"
    yield f"Time to completion, log-normal: {model}; {sigma}."
    seen = [f"p{percent} {duration(ms * 1000)}" for percent, ms in completion.seen_ms.items() if ms is not None]
    yield f"Seen (Kaplan-Meier): {', '.join(seen) or 'less than half completed in time'}."
    if beyond := _extrapolated(completion):
        names = ", ".join(f"p{percent}" for percent in beyond)
        yield f"Extrapolated: {names}. No operation was seen for longer than {duration(completion.followed_ms * 1000)}."
    gap = (
        f"by {duration(completion.gap_at_ms * 1000)}, {_percent(completion.gap_seen)} had completed, "
        f"{_percent(completion.gap_model)} in the model"
    )
    if completion.fits:
        yield f"The model fits. Largest gap: {gap}."
    else:
        yield f"TIMES TO COMPLETION ARE NOT LOG-NORMAL: {gap}. Do not trust the model near such times."
    if shares["shorter"] > 0.01:
        yield f"{_percent(shares['shorter'])} were completed only by the last try at their deadline: missed triggers."


def _percentile(completion: LogNormal, percent: int) -> str:
    between = _between(completion.intervals.get(f"p{percent}_ms"), lambda ms: duration(ms * 1000))
    mark = ", extrapolated" if completion.extrapolated(percent) else ""
    value = f"p{percent} {duration(completion.percentile_ms(percent) * 1000)}"
    return f"{value}{between[:-1]}{mark})" if between else f"{value}{mark and ' (extrapolated)'}"


def _about_keys(keys: Popularity) -> Iterator[str]:
    between = _between(keys.interval, lambda value: f"{value:.4g}")
    law = "equally popular" if keys.zipf == 0 else f"popularity falls with rank to the power of -{keys.zipf:.4g}"
    yield f"{keys.keys:,} first keys, {law}{between}. {_percent(keys.hottest)} of operations wait under the hottest."
    if not keys.fits:
        yield f"KEY POPULARITY IS NOT ZIPF: up to some rank, the keys' share is off by {_percent(keys.largest_gap)}."
    elif keys.exist > 1.01 * keys.keys:
        yield f"Extrapolated: about {keys.exist:,} keys exist, most of the others too rare to be seen yet."


def _between(interval: Interval | None, shown: Any) -> str:
    return f" (95 %: {shown(interval[0])} to {shown(interval[1])})" if interval else ""


def _percent(share: float) -> str:
    return f"{share:.1%}"
