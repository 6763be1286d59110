"""Promises: limits that each minute keeps or breaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .wording import count, duration, share

Verdict: TypeAlias = Literal["kept", "broken", "unknown"]

#: A model expects the share of an average minute. The limit is MARGIN times that share, plus 0.01.
MARGIN: Final = 1.5
#: By promise: the attribute of Limits, how values are shown, and what to do about a broken one.
PROMISES: Final[dict[str, tuple[str, Any, str]]] = {
    "share expired": (
        "max_expired_share",
        share,
        "The events did not come in time. See that whatever makes news checks its keys, and that the timeout is longer "
        "than the usual wait.",
    ),
    "late p99": (
        "max_lateness_ms",
        lambda milliseconds: duration(milliseconds * 1e3),
        "Something blocked the event loop, or the machine had no CPU left. PYTHONASYNCIODEBUG=1 logs callbacks that "
        "take over 100 ms: move them to a thread. Lateness of about one tick needs a finer tick.",
    ),
    "missed triggers": (
        "max_missed_share",
        share,
        "Some code changes what operations wait for and does not call check_and_complete() or notify() with their key. "
        "They completed only at their deadline.",
    ),
    "dropped rows": (
        "max_dropped_rows",
        count,
        "A journal was full because its disk is slow or full. Write to a faster disk, record a share of the operations "
        "with Journal(share=), or give it more memory with rows_per_file=.",
    ),
}
_FLEET: Final = "dropped rows"


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
    fewest: int = 100
    expected_shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_expired_share", "max_lateness_ms", "max_missed_share", "max_dropped_rows", "fewest"):
            if not getattr(self, name) >= 0:
                raise PurgatoryError(f"{name} must be >= 0, got {getattr(self, name):g}")

    def of(self, promise: str, purgatory: str | None) -> tuple[float, str]:
        """The limit of a *promise* of one purgatory, and where it comes from."""
        name = PROMISES[promise][0]
        given: float = getattr(self, name)
        source = "default" if given == Limits.__dataclass_fields__[name].default else "given"
        expected = self.expected_shares.get(purgatory or "")
        if promise != "share expired" or expected is None or source == "given":
            return given, source
        return self.by_model(expected), f"model: {share(expected)} expected"

    @staticmethod
    def by_model(expected: float) -> float:
        return min(1.0, expected * MARGIN + 0.01)


@dataclass(frozen=True)
class Promise:
    """One promise, and its state in the last minute that can be judged."""

    #: None: the promise is for the whole fleet.
    purgatory: str | None
    name: str
    verdict: Verdict
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

    @property
    def remedy(self) -> str:
        return PROMISES[self.name][2]


def judged(minutes: DataFrame, lost: DataFrame, limits: Limits) -> DataFrame:
    """Minutes, lost rows -> a row per purgatory and promise: its state in the last minute that can be judged.

    The purgatory is null for promises of the fleet. A purgatory without enough operations in any minute has a row with
    ``judged`` 0.
    """
    by = ("purgatory", "name")
    order = Window.partitionBy(*by).orderBy("minute")
    values = _values(minutes, limits).unionByName(_dropped(minutes, lost))
    bad = F.coalesce(F.col("value") > _limit(limits), F.lit(False))  # nothing expired: nothing was late
    rows = values.withColumn("bad", bad).withColumn("next", F.lead("minute").over(order))
    known = rows.groupBy(*by).agg(
        F.count("minute").alias("judged"),
        F.count_if("bad").alias("broken"),
        F.max_by(F.struct("value", "bad"), "minute").alias("last"),
        F.max("value").alias("worst"),
        F.max("minute").alias("at"),
        F.max(F.when(F.col("bad"), F.col("next"))).alias("after_bad"),
        F.max(F.when(~F.col("bad"), F.col("next"))).alias("after_good"),
    )
    since = F.when(F.col("last.bad"), F.col("after_good")).otherwise(F.col("after_bad"))
    last = F.col("last.value").alias("now"), F.col("last.bad").alias("is_broken")
    return known.select(*by, "judged", "broken", *last, "worst", "at", since.alias("since"))


def _values(minutes: DataFrame, limits: Limits) -> DataFrame:
    """Minutes -> purgatory, name, minute, value; minute is null where there are too few operations."""
    pooled = minutes.groupBy("purgatory", "minute").agg(
        *(F.sum(name).alias(name) for name in ("operations", "expired", "missed_triggers")),
        (F.max("lateness_p99_us") / 1e3).alias("late"),
    )
    enough = (F.col("operations") >= limits.fewest) & (F.col("operations") > 0)
    shares = {"expired": "'share expired'", "missed_triggers": "'missed triggers'"}
    parts = [*chain(*((name, f"{column} / operations") for column, name in shares.items())), "'late p99'", "late"]
    values = F.expr(f"stack(3, {', '.join(parts)}) AS (name, value)")
    some = pooled.where(enough).select("purgatory", "minute", values)
    empty = F.expr(f"stack(3, {', '.join(name for name in parts[::2])}) AS (name)")
    none = pooled.groupBy("purgatory").agg(F.count_if(enough).alias("enough")).where("enough = 0")
    nothing = none.select("purgatory", F.lit(None).cast("timestamp").alias("minute"), empty)
    return some.unionByName(nothing.withColumn("value", F.lit(None).cast("double")))


def _dropped(minutes: DataFrame, lost: DataFrame) -> DataFrame:
    seen = minutes.groupBy("minute").agg(F.lit(0.0).alias("value"))
    dropped = lost.where("what = 'dropped' AND minute IS NOT NULL").groupBy("minute")
    both = seen.unionByName(dropped.agg(F.sum("rows").cast("double").alias("value")))
    fleet = F.lit(None).cast("string").alias("purgatory")
    return (
        both.groupBy("minute")
        .agg(F.sum("value").alias("value"))
        .select(fleet, F.lit(_FLEET).alias("name"), "minute", "value")
    )


def _limit(limits: Limits) -> Any:
    """The limit of the promise in the column ``name``."""
    found = F.lit(None).cast("double")
    for name in PROMISES:
        limit, _ = limits.of(name, None)
        found = F.when(F.col("name") == name, F.lit(float(limit))).otherwise(found)
    expected = {each: limits.of("share expired", each)[0] for each in limits.expected_shares}
    if not expected:
        return found
    own = F.create_map(*(F.lit(each) for pair in expected.items() for each in pair))[F.col("purgatory")]
    return F.coalesce(F.when(F.col("name") == "share expired", own), found)


def promises(rows: Iterable[Mapping[str, Any]], limits: Limits) -> list[Promise]:
    """Rows of judged() -> promises, purgatory by purgatory, the fleet's last."""
    found = {(row["purgatory"], row["name"]): row for row in rows}
    purgatories = sorted({purgatory for purgatory, _ in found if purgatory is not None})
    wanted = [(each, name) for each in purgatories for name in PROMISES if name != _FLEET]
    return [_promise(*each, found.get(each), limits) for each in [*wanted, (None, _FLEET)]]


def _promise(purgatory: str | None, name: str, row: Mapping[str, Any] | None, limits: Limits) -> Promise:
    limit, source = limits.of(name, purgatory)
    if not row or not row["judged"]:
        return Promise(purgatory, name, "unknown", limit, source)
    verdict: Verdict = "broken" if row["is_broken"] else "kept"
    rest = {each: row[each] for each in ("judged", "broken", "now", "worst", "at", "since")}
    return Promise(purgatory, name, verdict, limit, source, **rest)


def headline(stand: Sequence[Promise]) -> str:
    """Sum up the verdicts in one sentence. It names broken promises, if they are few."""
    broken = [each for each in stand if each.verdict == "broken"]
    unknown = sum(each.verdict == "unknown" for each in stand)
    if unknown == len(stand):
        return "Too few operations to judge any promise"
    verdict = f"{len(broken)} of {len(stand)} promises broken" if broken else "No promise broken"
    if not broken and not unknown:
        verdict = "All promises kept"
    if 0 < len(broken) <= 3:
        verdict += ": " + ", ".join(f"{each.name} of {each.purgatory or 'the fleet'}" for each in broken)
    return f"{verdict}; too few operations to judge {unknown} of {len(stand)}" if unknown else verdict
