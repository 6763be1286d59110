"""Define the values to reach, and compare them with those measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .results import Results


@dataclass(frozen=True)
class Target:
    what: str
    must_reach: float
    aim: float
    measured: Callable[[Results], float | None]
    more_is_better: bool = False


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def sustained(workload: str) -> Callable[[Results], float | None]:
    return lambda found: found.sustained(competitor="ours", workload=workload) or None


def against_old(workload: str) -> Callable[[Results], float | None]:
    def measured(found: Results) -> float | None:
        of = found.where(table="requests", workload=workload)
        variants = [name for name in of.each("competitor") if name.startswith("old purgatory")]
        old = max((found.sustained(competitor=name, workload=workload) for name in variants), default=0)
        # At least: the lowest rate tried was too much for it.
        lowest = min(filter(None, of.each("rate")), default=0)
        return ratio(found.sustained(competitor="ours", workload=workload), old or lowest)

    return measured


def cpu(workload: str) -> Callable[[Results], float | None]:
    return lambda found: found.where(table="ablations", setting="as it comes", workload=workload).median(
        "cpu_seconds_per_million"
    )


def timer(found: Results, design: str, pending: int, form: str = "compiled") -> float | None:
    of = found.where(table="timers", operation="add + cancel", design=design, pending=pending, form=form)
    return of.median("ns")


def operation(found: Results, what: str, competitor: str, series: str) -> float | None:
    return found.where(table="operations", what=what, competitor=competitor, series=series).median("value")


def micro(found: Results, what: str) -> float | None:
    return found.where(table="micro", operation=what, form="compiled").median("ns")


MANY = 1_000_000

TARGETS = [
    Target("sustained rate, many time-outs, requests/s", 120_000, 300_000, sustained("many"), True),
    Target("sustained rate, few time-outs, requests/s", 200_000, 450_000, sustained("few"), True),
    Target("CPU s per 1M requests at 100,000/s, few", 6, 3.7, cpu("few")),
    Target("CPU s per 1M requests at 100,000/s, many", 6, 4.8, cpu("many")),
    Target("sustained rate, ours / the best old purgatory, many", 3, 8, against_old("many"), True),
    Target("sustained rate, ours / the best old purgatory, few", 3, 8, against_old("few"), True),
    Target(
        "the same, few, with 100,000 others parked: at least", 3, 8, against_old("few, 100,000 others parked"), True
    ),
    *(
        Target(
            f"timer add + cancel / {loop}'s `call_later()` + `cancel()`, 1M pending",
            0.05,
            0.025,
            lambda found, loop=loop: ratio(timer(found, "ours", MANY), timer(found, loop, MANY)),  # type: ignore[misc]
        )
        for loop in ("asyncio", "uvloop")
    ),
    *(
        Target(
            f"{what} / asyncio's `call_later()` + `cancel()`, no others",
            must_reach,
            aim,
            lambda found, what=what: ratio(micro(found, what), micro(found, "call_later + cancel")),  # type: ignore[misc]
        )
        for what, must_reach, aim in (
            ("watch + complete, 1 key", 1.1, 0.45),
            ("watch + complete, 3 keys", 1.4, 0.65),
            ("check, nobody waits", 0.055, 0.03),
        )
    ),
    Target(
        "timer add + cancel, 5M pending / 1k pending",
        1.3,
        1.1,
        lambda found: ratio(timer(found, "ours", 5_000_000), timer(found, "ours", 1_000)),
    ),
    Target(
        "10 keys, one request: ours, awaited / Ray Serve's shape",
        1 / 8,
        1 / 20,
        lambda found: ratio(
            operation(found, "watch", "ours, awaited", "10 keys"), operation(found, "watch", "ray", "10 keys")
        ),
    ),
    Target(
        "longest loop turn, 1M timers, ms",
        20,
        8,
        lambda found: operation(found, "million", "ours", "longest turn, ms"),
    ),
    Target(
        "longest loop turn, 100k waiters of one key, `notify()`, ms",
        20,
        8,
        lambda found: operation(found, "herd", "ours, soon", "longest turn, frozen, ms"),
    ),
]

HEAD = ["what", "must reach", "aim", "measured", ""]


def rows(found: Results, targets: Iterable[Target] = TARGETS) -> list[list[str]]:
    return list(_rows(found, targets))


def _rows(found: Results, targets: Iterable[Target]) -> Iterable[list[str]]:
    for target in targets:
        value = target.measured(found)
        if value is None:
            continue
        sign = 1 if target.more_is_better else -1
        verdict = "aim" if value * sign >= target.aim * sign else "reached"
        if value * sign < target.must_reach * sign:
            verdict = "missed"
        yield [
            target.what,
            *(f"{each:,.3g}" if each < 1000 else f"{each:,.0f}" for each in (target.must_reach, target.aim, value)),
            verdict,
        ]
