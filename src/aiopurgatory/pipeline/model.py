"""The model of a workload: fit estimates it, generate makes traces from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, inf, isfinite, log
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

from aiopurgatory.errors import PurgatoryError

VERSION: Final = 2
HOURS: Final = 24
#: Of the time to completion, and of the keys.
QUANTILES: Final = 1_000


class ModelError(PurgatoryError):
    """A model that cannot be used."""


@dataclass(frozen=True)
class Workload:
    """How the operations of one kind arrive and complete.

    They arrive as a Poisson process with a rate that depends on the hour of the day (UTC).

    Raises: ModelError: a parameter is out of its range.

    Attributes:
        arrivals_per_second: by hour of the day, 24 of them.
        completion_ms: times to completion, in order; each stands for an equal share of operations. 0: they complete on
            arrival. None: they never complete.
        timeouts_ms: pairs of a timeout and its share of operations; None: no timeout.
        key_counts: pairs of a number of watch keys and its share of operations (default: one key each).
        key_ranks: how many keys, the most popular first, have 0, 1/n, 2/n to n/n of all operations. In between, they
            are equally popular (default: there is one key).
        first_hour: hour of the day in which a trace begins (default: 0).
        operations: how many were recorded (default: 0).
        seconds_covered: how many seconds of them the journal covers (default: 0).
        expired: share of them that expired; None: not recorded (default).
        instances: how many instances of the purgatory share the arrivals, on average (default: 1).
        findings: how well the model fits, and what is extrapolated, in words.
    """

    purgatory: str
    kind: str
    arrivals_per_second: tuple[float, ...]
    completion_ms: tuple[float | None, ...]
    timeouts_ms: tuple[tuple[float | None, float], ...]
    key_counts: tuple[tuple[int, float], ...] = ((1, 1.0),)
    key_ranks: tuple[float, ...] = (0.0, 1.0)
    first_hour: int = 0
    operations: float = 0.0
    seconds_covered: float = 0.0
    expired: float | None = None
    instances: float = 1.0
    findings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own, pairs = self, "pairs of a {} and its share, with shares that sum to 1"
        rates, first, ranks, times = own.arrivals_per_second, own.first_hour, own.key_ranks, own.completion_ms
        for name, rule, holds in (
            ("arrivals_per_second", "24 numbers >= 0, some > 0", len(rates) == HOURS and _known(*rates) and any(rates)),
            ("completion_ms", "numbers >= 0, or null", bool(times) and _known(*(each or 0 for each in times))),
            ("key_ranks", "numbers that grow from 0", ranks[1:] and _known(*ranks) and [*ranks] == sorted({0, *ranks})),
            ("instances", "a number >= 1", _known(own.instances) and own.instances >= 1),
            ("first_hour", "from 0 to 23", isinstance(first, int) and first in range(HOURS)),
            ("timeouts_ms", pairs.format("timeout >= 0, or null"), _shared(own.timeouts_ms, 0, null=True)),
            ("key_counts", pairs.format("whole number >= 1"), _shared(own.key_counts, 1, whole=True)),
        ):
            if not holds:
                raise ModelError(f"{name} must be {rule}, got {getattr(own, name)!r}")

    def of_instance(self, hour: int) -> float:
        """Return the arrivals per second of one instance, in an hour of the day."""
        return self.arrivals_per_second[hour] / self.instances


def _known(*values: Any) -> bool:
    """Whether *values* are finite numbers >= 0."""
    return all(type(value) in (int, float) and isfinite(value) and value >= 0 for value in values)


def _shared(pairs: Any, least: float, *, null: bool = False, whole: bool = False) -> bool:
    """Whether *pairs* are values with their shares."""
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return False
    values = [value for value, _ in pairs if not (null and value is None)]
    kinds = all(_known(value) and value >= least and (isinstance(value, int) or not whole) for value in values)
    return kinds and _known(*(share for _, share in pairs)) and abs(sum(share for _, share in pairs) - 1) < 1e-6


def log_normal(p50_ms: float, p75_ms: float) -> tuple[float, ...]:
    """Return log-normal times to completion, described by two percentiles."""
    logs = NormalDist(log(p50_ms), log(p75_ms / p50_ms) / NormalDist().inv_cdf(0.75))
    return tuple(exp(logs.inv_cdf((n + 0.5) / QUANTILES)) for n in range(QUANTILES))


#: The two workloads of Kafka's TestPurgatoryPerformance: 8 and 50 % of the requests expire.
FEW: Final = Workload(
    purgatory="seed",
    kind="few",
    arrivals_per_second=(100_000.0,) * HOURS,
    completion_ms=log_normal(20, 60),
    timeouts_ms=((200.0, 1.0),),
    key_counts=((3, 1.0),),
    key_ranks=(0.0, 100.0),
)
MANY: Final = replace(FEW, kind="many", completion_ms=log_normal(200, 400))
WORKLOADS: Final = {workload.kind: workload for workload in (FEW, MANY)}


def enough(workloads: Sequence[Workload]) -> int:
    """Return how many requests show a steady state: all within four times the longest wait, from 20,000 to 100,000.

    A wait ends at its timeout, or at the time by which nearly all complete.
    """
    rate = sum(max(map(each.of_instance, range(HOURS))) for each in workloads)
    ends = [(each.completion_ms[-1], timeout_ms) for each in workloads for timeout_ms, _ in each.timeouts_ms]
    longest_ms = max(min(inf if ms is None else ms for ms in pair) for pair in ends)
    return int(min(max(4 * rate * longest_ms / 1000, 20_000), 100_000))


def to_json(workloads: Sequence[Workload]) -> str:
    model = {"version": VERSION, "workloads": [asdict(workload) for workload in workloads]}
    return json.dumps(model, indent=1, allow_nan=False) + "\n"


def read_model(path: Path) -> list[Workload]:
    """Raises: ModelError: the file is not a model, has another version, or a parameter is out of its range."""
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
        if model["version"] != VERSION:
            raise ModelError(f"version must be {VERSION}, got {model['version']!r}")
        return [Workload(**{name: _frozen(value) for name, value in each.items()}) for each in model["workloads"]]
    except (OSError, ValueError, KeyError, TypeError, ModelError) as error:
        raise ModelError(f"{path} is not a model: {error}") from None


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value
