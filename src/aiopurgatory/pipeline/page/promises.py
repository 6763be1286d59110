"""Promises: limits that each minute keeps or breaks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from ..model import expected_shares, read_model
from .wording import count, duration, share

#: A model expects the share of an average minute. The limit is MARGIN times that share, plus 0.01.
MARGIN: Final = 1.5
#: By promise: the attribute of Limits, and how values are shown.
PROMISES: Final[dict[str, tuple[str, Any]]] = {
    "share expired": ("max_expired_share", share),
    "late p99": ("max_lateness_ms", lambda milliseconds: duration(milliseconds * 1e3)),
    "missed triggers": ("max_missed_share", share),
    "dropped rows": ("max_dropped_rows", count),
}
REMEDIES: Final = {
    "share expired": "news came too late. See that all code that makes news checks its keys, or set a longer timeout",
    "late p99": "something blocked the event loop, or there was no CPU left. PYTHONASYNCIODEBUG=1 logs slow callbacks: "
    "move them to a thread. If it is about one tick, set a finer tick",
    "missed triggers": "some code changes what operations wait for, and does not call notify() with their key",
    "dropped rows": "the journal's disk is slow or full. Use a faster one, or record less with Journal(share=)",
}
_FLEET: Final = "dropped rows"
_ABOUT: Final = {
    "max_expired_share": "share of a purgatory's operations that may expire",
    "max_lateness_ms": "99 %% of expirations must be at most this late, in ms",
    "max_missed_share": "share of operations that may be completed only by the last try, at their deadline",
    "max_dropped_rows": "rows that all journals together may drop in a minute",
    "fewest": "do not judge a purgatory by minutes with fewer operations",
}


@dataclass(frozen=True)
class Limits:
    """The promises for every minute.

    Attributes:
        max_expired_share: share of a purgatory's operations that may expire (default: 0.5).
        max_lateness_ms: the 99th percentile of lateness of expired operations (default: 100). No minute keeps a limit
            below the purgatory's tick.
        max_missed_share: share of a purgatory's operations that may be completed by the last try at their deadline
            (default: 0.001). Such an operation waited although its condition held.
        max_dropped_rows: rows per minute that all journals together may drop (default: 0).
        fewest: with fewer operations of a purgatory, a minute neither keeps nor breaks a promise (default: 100).
        expected_shares: by purgatory, the share that its model expects to expire (default: no model). The limit follows
            from it, unless max_expired_share is given.

    Raises: PurgatoryError: a limit is refused.
    """

    max_expired_share: float = 0.5
    max_lateness_ms: float = 100.0
    max_missed_share: float = 0.001
    max_dropped_rows: float = 0.0
    fewest: float = 100
    expected_shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _ABOUT:
            if not getattr(self, name) >= 0:
                raise PurgatoryError(f"{name} must be >= 0, got {getattr(self, name):g}")

    def of(self, promise: str, purgatory: str | None = None) -> tuple[float, str]:
        """The limit of a *promise* of one purgatory, and where it comes from."""
        name = PROMISES[promise][0]
        given: float = getattr(self, name)
        if given != getattr(Limits, name):
            return given, "given"
        expected = self.expected_shares.get(purgatory or "")
        if promise == "share expired" and expected is not None:
            return min(1.0, expected * MARGIN + 0.01), f"model: {share(expected)} expected"
        return given, "default"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    group = parser.add_argument_group("promises (limits that each minute keeps or breaks)")
    for name, about in _ABOUT.items():
        default = getattr(Limits, name)
        option = f"--{name.replace('_', '-')}"
        group.add_argument(option, type=float, default=default, help=f"{about} (default: {default:g})")
    about = "model.json, written by fit: sets the share that may expire, unless --max-expired-share is given"
    group.add_argument("--model", type=Path, metavar="FILE", help=about)


def limits_of(args: argparse.Namespace) -> Limits:
    """Return the limits on the command line."""
    expected = expected_shares(read_model(args.model)) if args.model else {}
    return Limits(**{name: getattr(args, name) for name in _ABOUT}, expected_shares=expected)


@dataclass(frozen=True)
class Promise:
    """One promise, and its state in the last minute that can be judged."""

    #: None: the promise is for the whole fleet.
    purgatory: str | None
    name: str
    verdict: Literal["kept", "broken", "unknown"]
    limit: float
    source: str
    #: Minutes with enough operations, and those of them that broke it.
    judged: int = 0
    broken: int = 0
    #: At the last judged minute; None where nothing expired.
    now: float | None = None
    worst: float | None = None
    at: datetime | None = None
    #: The first minute with the current verdict; None: all minutes had it.
    since: datetime | None = None

    def shown(self, value: float | None) -> str:
        """*value* in the unit of this promise."""
        return "nothing expired" if value is None else str(PROMISES[self.name][1](value))


def judged(minutes: DataFrame, lost: DataFrame, limits: Limits) -> DataFrame:
    """Minutes, lost rows -> by purgatory and promise, its state in the last minute with enough operations.

    The purgatory is null for promises of the fleet. Without such a minute, ``judged`` is 0.
    """
    order = Window.partitionBy("purgatory", "name").orderBy("minute")
    bad = F.coalesce(F.col("value") > _limit(limits), F.lit(False))  # nothing expired: nothing was late
    rows = _values(minutes, limits).unionByName(_dropped(minutes, lost)).withColumn("bad", bad)
    following = rows.withColumn("next", F.lead("minute").over(order)).withColumn("known", F.col("minute").isNotNull())
    since = F.max(F.when(F.col("bad"), F.col("next"))), F.max(F.when(~F.col("bad"), F.col("next")))
    known = following.groupBy("purgatory", "name").agg(
        *(F.count_if("known").alias("judged"), F.count_if(F.col("known") & F.col("bad")).alias("broken")),
        *(F.max_by("value", "minute").alias("now"), F.max_by("bad", "minute").alias("is_broken")),
        *(F.max("value").alias("worst"), F.max("minute").alias("at")),
        *(since[0].alias("after_bad"), since[1].alias("after_good")),
    )
    since_then = F.when(F.col("is_broken"), F.col("after_good")).otherwise(F.col("after_bad"))
    return known.withColumn("since", since_then).drop("after_bad", "after_good")


def _values(minutes: DataFrame, limits: Limits) -> DataFrame:
    """Minutes -> purgatory, name, minute, value; minute is null where there are too few operations."""
    pooled = minutes.groupBy("purgatory", "minute").agg(
        *(F.sum(name).alias(name) for name in ("operations", "expired", "missed_triggers")),
        (F.max("lateness_p99_us") / 1e3).alias("late"),
    )
    enough = (F.col("operations") >= limits.fewest) & (F.col("operations") > 0)
    values = "'share expired', expired / operations, 'missed triggers', missed_triggers / operations, 'late p99', late"
    rows = pooled.select("purgatory", enough.alias("enough"), "minute", F.expr(f"stack(3, {values}) AS (name, value)"))
    known = [F.when(F.col("enough"), F.col(name)).alias(name) for name in ("minute", "value")]
    return rows.select("purgatory", "name", *known)


def _dropped(minutes: DataFrame, lost: DataFrame) -> DataFrame:
    dropped = lost.where("what = 'dropped' AND minute IS NOT NULL").select("minute", F.col("rows").cast("double"))
    both = minutes.select("minute", F.lit(0.0).alias("rows")).unionByName(dropped)
    fleet = F.lit(None).cast("string").alias("purgatory"), F.lit(_FLEET).alias("name")
    return both.groupBy("minute").agg(F.sum("rows").alias("value")).select(*fleet, "minute", "value")


def _limit(limits: Limits) -> Column:
    """The limit of the promise in the column ``name``."""
    known: dict[tuple[str, str | None], float] = {(name, None): limits.of(name)[0] for name in PROMISES}
    known |= {("share expired", each): limits.of("share expired", each)[0] for each in limits.expected_shares}

    def more(found: Column, each: tuple[tuple[str, str | None], float]) -> Column:
        (name, purgatory), limit = each
        own = F.lit(True) if purgatory is None else F.col("purgatory") == purgatory
        return F.when((F.col("name") == name) & own, F.lit(float(limit))).otherwise(found)

    return reduce(more, known.items(), F.lit(None).cast("double"))


def promises(rows: Iterable[Mapping[str, Any]], limits: Limits) -> list[Promise]:
    """Rows of judged() -> promises, purgatory by purgatory, the fleet's last."""
    found = {(row["purgatory"], row["name"]): row for row in rows}
    purgatories: list[str | None] = sorted({purgatory for purgatory, _ in found if purgatory is not None})
    wanted = [(each, name) for each in purgatories for name in PROMISES if name != _FLEET]
    return [_promise(each, name, found.get((each, name)), limits) for each, name in [*wanted, (None, _FLEET)]]


def _promise(purgatory: str | None, name: str, row: Mapping[str, Any] | None, limits: Limits) -> Promise:
    limit = limits.of(name, purgatory)
    if not row or not row["judged"]:
        return Promise(purgatory, name, "unknown", *limit)
    rest = {each: row[each] for each in ("judged", "broken", "now", "worst", "at", "since")}
    return Promise(purgatory, name, "broken" if row["is_broken"] else "kept", *limit, **rest)


def headline(stand: Sequence[Promise]) -> str:
    """Sum up the verdicts in one sentence. It names broken promises, if they are few."""
    broken = [each for each in stand if each.verdict == "broken"]
    unknown = sum(each.verdict == "unknown" for each in stand)
    if unknown == len(stand):
        return "Too few operations to judge any promise"
    verdict = f"{len(broken)} of {len(stand)} promises broken" if broken else "No promise broken"
    if not broken and not unknown:
        return "All promises kept"
    if 0 < len(broken) <= 3:
        verdict += ": " + ", ".join(f"{each.name} of {each.purgatory or 'the fleet'}" for each in broken)
    return f"{verdict}; too few operations to judge {unknown} of {len(stand)}" if unknown else verdict
