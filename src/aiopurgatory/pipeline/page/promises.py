"""Promises: limits that each minute keeps or breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aiopurgatory.errors import PurgatoryError

from .reading import Floats, Ints, Pool, epoch
from .wording import count, duration, share

Verdict: TypeAlias = Literal["kept", "broken", "unknown"]

#: A model expects the share of an average minute. The limit is MARGIN times that share, plus 0.01.
MARGIN: Final = 1.5
_FORMATS: Final = {
    "share expired": share,
    "late p99": lambda milliseconds: duration(milliseconds * 1e3),
    "missed triggers": share,
    "dropped rows": count,
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
    fewest: int = 100
    expected_shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_expired_share", "max_lateness_ms", "max_missed_share", "max_dropped_rows", "fewest"):
            if not getattr(self, name) >= 0:
                raise PurgatoryError(f"{name} must be >= 0, got {getattr(self, name):g}")

    def expired_share(self, purgatory: str) -> tuple[float, str]:
        """The limit of one purgatory, and where it comes from."""
        expected = self.expected_shares.get(purgatory)
        if expected is None or self.source("max_expired_share") == "given":
            return self.max_expired_share, self.source("max_expired_share")
        return min(1.0, expected * MARGIN + 0.01), f"model: {share(expected)} expected"

    def source(self, limit: str) -> str:
        """Where the attribute *limit* comes from."""
        return "default" if getattr(self, limit) == Limits.__dataclass_fields__[limit].default else "given"


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
    #: At the last judged minute; NaN where nothing expired.
    now: float = float("nan")
    worst: float = float("nan")
    at: datetime | None = None
    #: The first minute with the current verdict; None: all minutes had it.
    since: datetime | None = None

    def shown(self, value: float) -> str:
        """*value* in the unit of this promise."""
        return _FORMATS[self.name](value)


def promises(minutes: Mapping[str, Pool], lost: pa.Table, limits: Limits) -> list[Promise]:
    """Judge all promises: purgatory by purgatory, the fleet's last."""
    found = [promise for name, rows in sorted(minutes.items()) for promise in _of_purgatory(name, rows, limits)]
    return [*found, _dropped(minutes, lost, limits)]


def headline(stand: list[Promise]) -> str:
    """Sum up the verdicts in one sentence."""
    broken, unknown = (sum(each.verdict == verdict for each in stand) for verdict in ("broken", "unknown"))
    if unknown == len(stand):
        return "Too few operations to judge any promise"
    if not unknown:
        return f"{broken} of {len(stand)} promises broken" if broken else "All promises kept"
    verdict = f"{broken} of {len(stand)} promises broken" if broken else "No promise broken"
    return f"{verdict}; too few operations to judge {unknown} of {len(stand)}"


def _of_purgatory(purgatory: str, rows: Pool, limits: Limits) -> Iterator[Promise]:
    enough = (rows.values["operations"] >= limits.fewest) & (rows.values["operations"] > 0)
    at, values = rows.at[enough], {name: column[enough] for name, column in rows.values.items()}
    limit, source = limits.expired_share(purgatory)
    yield _judged(purgatory, "share expired", limit, source, at, values["expired"] / values["operations"])
    milliseconds = values["lateness_p99_us"] / 1e3  # NaN where nothing expired: nothing was late
    source = limits.source("max_lateness_ms")
    yield _judged(purgatory, "late p99", limits.max_lateness_ms, source, at, milliseconds)
    source = limits.source("max_missed_share")
    missed = values["missed_triggers"] / values["operations"]
    yield _judged(purgatory, "missed triggers", limits.max_missed_share, source, at, missed)


def _dropped(minutes: Mapping[str, Pool], lost: pa.Table, limits: Limits) -> Promise:
    dropped = lost.filter(pc.field("what") == "dropped")
    at = epoch(dropped["minute"])
    seen = np.unique(np.concatenate([*(rows.at for rows in minutes.values()), at]))
    values = np.zeros(len(seen))
    np.add.at(values, np.searchsorted(seen, at), dropped["rows"].to_numpy())
    source = limits.source("max_dropped_rows")
    return _judged(None, "dropped rows", limits.max_dropped_rows, source, seen, values)


def _judged(purgatory: str | None, name: str, limit: float, source: str, at: Ints, values: Floats) -> Promise:
    if not len(values):
        return Promise(purgatory, name, "unknown", limit, source)
    bad = values > limit
    others = np.flatnonzero(bad != bad[-1])
    return Promise(
        purgatory,
        name,
        "broken" if bad[-1] else "kept",
        limit,
        source,
        judged=len(values),
        broken=int(bad.sum()),
        now=float(values[-1]),
        worst=float(np.fmax.reduce(values)),
        at=_moment(at[-1]),
        since=_moment(at[others[-1] + 1]) if len(others) else None,
    )


def _moment(seconds: Any) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
