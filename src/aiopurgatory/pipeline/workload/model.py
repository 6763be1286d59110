"""A model of a workload: what fit finds out, and what generate makes traces of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

from aiopurgatory.errors import PurgatoryError

VERSION: Final = 1
HOURS: Final = 24


class ModelError(PurgatoryError):
    """A model that cannot be used."""


@dataclass(frozen=True)
class Workload:
    """How the operations of one kind come and go.

    They arrive as a Poisson process whose rate depends on the hour of the day (UTC). ``at_once`` of them find their
    condition true; the others get there after a time that is log-normal, if it is known (``p50_ms``), or never. How
    popular a key is goes down with its rank to the power of ``zipf``: with 0, all are alike.
    """

    purgatory: str
    kind: str
    #: By hour of the day.
    arrivals_per_second: tuple[float, ...]
    #: Half of those that have to wait would be complete after this.
    p50_ms: float | None
    #: Of the logarithm of the time to completion.
    sigma: float
    #: How long they wait, each with its share; None: for ever.
    timeouts_ms: tuple[tuple[float | None, float], ...]
    #: How many keys they wait under, each with its share.
    key_counts: tuple[tuple[int, float], ...] = ((1, 1.0),)
    #: How many keys there are.
    key_space: int = 1
    zipf: float = 0.0
    at_once: float = 0.0
    #: The hour in which the trace begins.
    first_hour: int = 0
    #: How well that describes what was seen: the numbers, and in words.
    evidence: dict[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rates = self.arrivals_per_second
        _require(len(rates) == HOURS, "arrivals_per_second", f"a list of {HOURS}", rates)
        _require(min(rates) >= 0 and max(rates) > 0, "arrivals_per_second", ">= 0, and not all of them 0", rates)
        _require(self.p50_ms is None or self.p50_ms > 0, "p50_ms", "> 0, or null", self.p50_ms)
        _require(self.sigma >= 0, "sigma", ">= 0", self.sigma)
        _require(self.zipf >= 0, "zipf", ">= 0", self.zipf)
        _require(self.key_space >= 1, "key_space", ">= 1", self.key_space)
        _require(0 <= self.at_once <= 1, "at_once", "from 0 to 1", self.at_once)
        _require(0 <= self.first_hour < HOURS, "first_hour", "from 0 to 23", self.first_hour)
        for name, least in (("timeouts_ms", 0), ("key_counts", 1)):
            pairs = getattr(self, name)
            holds = len(pairs) > 0 and all(value is None or value >= least for value, _ in pairs)
            _require(holds, name, f"at least one pair of a value >= {least} and its share", pairs)
            shares = [share for _, share in pairs]
            _require(min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6, name, "given with shares that sum to 1", pairs)


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise ModelError(f"{name} must be {rule}, got {value!r}")


def of_seed(
    name: str, p50_ms: float, p75_ms: float, timeout_ms: float = 200, keys_each: int = 3, key_space: int = 100
) -> Workload:
    """A workload as Kafka's benchmark describes one: the log-normal distribution by two of its percentiles."""
    return Workload(
        purgatory="seed",
        kind=name,
        arrivals_per_second=(100_000.0,) * HOURS,
        p50_ms=p50_ms,
        sigma=log(p75_ms / p50_ms) / NormalDist().inv_cdf(0.75),
        timeouts_ms=((timeout_ms, 1.0),),
        key_counts=((keys_each, 1.0),),
        key_space=key_space,
    )


#: The two workloads of Kafka's benchmark: 8 and 50 % of the requests run out of time.
FEW: Final = of_seed("few", p50_ms=20, p75_ms=60)
MANY: Final = of_seed("many", p50_ms=200, p75_ms=400)
WORKLOADS: Final = {workload.kind: workload for workload in (FEW, MANY)}


def write_model(workloads: Sequence[Workload], path: Path) -> None:
    """Write *workloads* as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    model = {"version": VERSION, "workloads": [asdict(workload) for workload in workloads]}
    partial.write_text(json.dumps(model, indent=1, allow_nan=False) + "\n")
    partial.replace(path)


def read_model(path: Path) -> list[Workload]:
    """Raises: ModelError: it is none, of another version, or says what cannot be."""
    try:
        model = json.loads(path.read_text())
        if model["version"] != VERSION:
            raise ModelError(f"version must be {VERSION}, got {model['version']!r}")
        return [Workload(**{name: _frozen(value) for name, value in each.items()}) for each in model["workloads"]]
    except (ValueError, KeyError, TypeError) as exc:
        raise ModelError(f"{path} is no model: {exc}") from exc
    except ModelError as exc:
        raise ModelError(f"{path}: {exc}") from None


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value
