"""What is to be reached, and what is said beside the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results import Results


@dataclass(frozen=True)
class Figure:
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

FIGURES = [
    Figure("sustained rate, many time-outs, requests/s", 120_000, 300_000, sustained("many"), True),
    Figure("sustained rate, few time-outs, requests/s", 200_000, 450_000, sustained("few"), True),
    Figure("CPU s per 1M requests at 100,000/s, few", 6, 3.7, cpu("few")),
    Figure("CPU s per 1M requests at 100,000/s, many", 6, 4.8, cpu("many")),
    Figure("sustained rate, ours / the best old purgatory, many", 3, 8, against_old("many"), True),
    Figure("sustained rate, ours / the best old purgatory, few", 3, 8, against_old("few"), True),
    Figure(
        "the same, few, with 100,000 others parked: at least", 3, 8, against_old("few, 100,000 others parked"), True
    ),
    *(
        Figure(
            f"timer add + cancel / {loop}'s `call_later()` + `cancel()`, 1M pending",
            0.05,
            0.025,
            lambda found, loop=loop: ratio(timer(found, "ours", MANY), timer(found, loop, MANY)),  # type: ignore[misc]
        )
        for loop in ("asyncio", "uvloop")
    ),
    *(
        Figure(
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
    Figure(
        "timer add + cancel, 5M pending / 1k pending",
        1.3,
        1.1,
        lambda found: ratio(timer(found, "ours", 5_000_000), timer(found, "ours", 1_000)),
    ),
    Figure(
        "10 keys, one request: ours, awaited / Ray Serve's shape",
        1 / 8,
        1 / 20,
        lambda found: ratio(
            operation(found, "watch", "ours, awaited", "10 keys"), operation(found, "watch", "ray", "10 keys")
        ),
    ),
    Figure(
        "longest loop turn, 1M timers, ms",
        20,
        8,
        lambda found: operation(found, "million", "ours", "longest turn, ms"),
    ),
    Figure(
        "longest loop turn, 100k waiters of one key, `..._soon`, ms",
        20,
        8,
        lambda found: operation(found, "herd", "ours, soon", "longest turn, frozen, ms"),
    ),
]

HEAD = ["what", "must reach", "aim", "measured", ""]


def rows(found: Results) -> list[list[str]]:
    return list(_rows(found))


def _rows(found: Results) -> Iterable[list[str]]:
    for figure in FIGURES:
        value = figure.measured(found)
        if value is None:
            continue
        sign = 1 if figure.more_is_better else -1
        verdict = "aim" if value * sign >= figure.aim * sign else "reached"
        if value * sign < figure.must_reach * sign:
            verdict = "missed"
        yield [
            figure.what,
            *(f"{each:,.3g}" if each < 1000 else f"{each:,.0f}" for each in (figure.must_reach, figure.aim, value)),
            verdict,
        ]


INTRODUCTION = """\
CPU time unless said otherwise; medians (and ranges) of the rounds. Every competitor runs in a process of its own, and
in a round each runs once. *compiled* is our library as built by mypyc, against competitors that are built by it, too,
where they are data structures of their own (timers, the old purgatory); what users write around asyncio is
interpreted on either side.
"""
NOTES = """\
Sustained: at least 98 % of the rate asked for, and time-outs late by 20 ms at most in 99 % of cases. The highest of
the rates tried for which that holds in most rounds.
"""
TEXTS = {
    "requests": """\
Requests come in exponential gaps, each under 3 of 100 keys with a timeout of 200 ms, and would complete after a log-
normal time: few time-outs p50 = 20 ms, p75 = 60 ms (8 % run out of time), many p50 = 200 ms, p75 = 400 ms (50 %). The
driver is open loop, on the same event loop, and its cost counts: about 0.5 s per 1M. An operation that completes does
so by `force_complete()`, as in Kafka's own benchmark. The last row of each asks for 5M/s, which nothing here can do.

Nobody awaits an operation of *ours* or a request of the *old purgatory*: they answer from a callback, as Kafka's do.
*ours, awaited* has a task for each, as have all that follow. The third workload has 100,000 requests parked for ten
minutes beside those of few time-outs, as a long-poll server has, and `gc.freeze()` is called when they are.""",
    "survivors": """\
105,000 requests per second, many time-outs, with RLIMIT_DATA so much above what the interpreter and the trace take.""",
    "ablations": """\
Each is one change of the defaults of *ours*; then what the garbage collector does to requests that are awaited.""",
    "timers": """\
CPU ns per pair. add + cancel: others pending with timeouts of 30 to 60 s; the loops' own timers pay for the turn in
which they drop what was cancelled. add + expire: per operation one is added with a timeout of up to 60 s, and one
expires. *hashed* is Netty's wheel (512 buckets with rounds), *linux* the kernel's since 4.8 (8 levels of 64, no
cascades, late by up to an eighth of the timeout).""",
    "precision": "Timers of 1 ms ticks. Virtual time where time is handed in, real time for what runs on a loop.",
    "micro": "Each is completed before the next one comes; 100,000 others pending.",
    "operations": """\
CPU ns per operation unless said otherwise. At full size (`--full`) 100,000 others are pending in *watch* and *nobody*,
40,000 are cancelled, 100,000 make a herd and 50,000 time out in one instant; the normal size is a tenth of it.""",
}
