"""Simulations -> the settings to use, and the cost of each alternative, in advice.md.

The advice is the setting with the least CPU time of all that expire operations on time, or the defaults, if nobody
would notice the gain: less than 1 % of a core at the load of the trace, and less than 10 MB. CPU time is computed from
the steps that the simulation counted and from the time that each step takes on the machine of the benchmarks. Use it to
compare settings, not to predict a load.

Lateness is the rounding of timeouts up to the tick, on an idle machine. A busy event loop adds its own delays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.target import Setting

from .attempts import ADVICE, documents, write
from .model import Workload
from .page.figures import count, duration, share
from .simulate import SCHEMA

#: ns of CPU time per step, compiled. For Kafka's two workloads at 100,000 requests per second they agree with
#: benchmarks/RESULTS.md, less the share of the driver, to about a fifth.
COSTS_NS: Final = {
    "operations": 3_000,
    "expired": 1_500,
    "cascades": 150,
    "heap_operations": 500,
    "purge_visits": 100,
    "wakeups": 30_000,
}
#: A setting that saves a smaller share of a core and less memory than these is not worth a change of the defaults.
NOTICED_CORES: Final = 0.01
NOTICED_MB: Final = 10.0
#: If two costs differ by less, the setting nearer to the defaults is better.
NEAR: Final = 1.03
#: Fewer expirations say nothing about the 99th percentile of lateness: with 300, the latest of them is above it with a
#: probability of 95 %, as 0.99 ** 300 = 0.05.
ENOUGH_EXPIRED: Final = 300
#: A trace of fewer operations allows no advice.
FEWEST: Final = 1_000


class AdviceError(PurgatoryError):
    """The simulations allow no advice."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder in which simulate has written")
    parser.set_defaults(needs={"out": ("simulations", "there are no simulations in {}: run simulate with it first")})
    about = "99 %% of expirations must be at most this late (default: 20)"
    parser.add_argument("--max-lateness-ms", type=float, default=20.0, metavar="MS", help=about)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Write the advice, and print it. Raises: AdviceError: no advice can be given."""
    simulations = spark.read.schema(SCHEMA).parquet(f"{args.out}/simulations").toArrow().to_pylist()
    advice = advise(simulations, args.max_lateness_ms).markdown()
    write(documents(args.out) / ADVICE, advice)
    print(advice)


def advise(
    simulations: Sequence[Mapping[str, Any]], max_lateness_ms: float = 20.0, *, workloads: Sequence[Workload] = ()
) -> Advice:
    """Choose the settings to use.

    Args:
        simulations: rows of simulate.SCHEMA.
        max_lateness_ms: 99 % of expirations must be at most this late, in ms (default: 20).
        workloads: the model that the trace was made from, which knows what was recorded (default: unknown).

    Raises: AdviceError: no setting can be chosen; the message has the remedy.
    """
    options = [Option(Setting(*(row[name] for name in Setting.__dataclass_fields__)), row) for row in simulations]
    best, reason = choose(options, max_lateness_ms)
    use = f"Use `Purgatory({best.name})`" if best.changes else "Keep the defaults"
    rows = [each.cells(best) for each in sorted(options, key=lambda each: (each.cpu_seconds, each.name))]
    return Advice(best, f"{use}: {reason}.", [*_about(best, workloads)], rows)


@dataclass(frozen=True)
class Advice:
    """The setting to use, with the reason in one line, more about it, and a row per setting: its cells by column."""

    best: Option
    headline: str
    sentences: Sequence[str]
    rows: Sequence[Mapping[str, str]]

    def markdown(self) -> str:
        items = "\n".join(f"- {sentence}" for sentence in self.sentences)
        lines = [self.rows[0], ["---"] * len(self.rows[0]), *(row.values() for row in self.rows)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"# Advice\n\n{self.headline}\n\n{items}\n\n{table}\n"


@dataclass(frozen=True)
class Option:
    """One setting, and the result of its simulation: the columns of the results by name."""

    setting: Setting
    totals: Mapping[str, int]

    @property
    def name(self) -> str:
        own = self.setting
        return f"tick={own.tick:g}, wheel_size={own.wheel_size}, purge_interval={own.purge_interval}"

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds per million operations."""
        return sum(self.each(step) * ns for step, ns in COSTS_NS.items()) / 1e3

    @property
    def cores(self) -> float:
        """The share of a core that it takes at the load of the trace."""
        return self.cpu_seconds * self.totals["operations"] / max(self.totals["span_us"], 1)

    @property
    def is_measured(self) -> bool:
        return self.totals["expired"] >= ENOUGH_EXPIRED

    @property
    def late_ms(self) -> float:
        """The 99th percentile of lateness; one tick, the worst case, if too few expired to measure it."""
        return self.totals["late_p99_us"] / 1000 if self.is_measured else self.setting.tick_ms

    @property
    def peak_mb(self) -> float:
        return self.totals["peak_bytes"] / 1e6

    def each(self, step: str) -> float:
        """How many times *step* was taken per operation."""
        return self.totals[step] / self.totals["operations"]

    @property
    def changes(self) -> list[str]:
        """What differs from the defaults, in words."""
        own, default = asdict(self.setting), asdict(Setting())
        return [name.removesuffix("_ms").replace("_", " ") for name in own if own[name] != default[name]]

    def cells(self, best: Option) -> dict[str, str]:
        """The row of the table, by column."""
        return {
            "setting": f"{self.name} (advised)" if self is best else self.name,
            "CPU s per 1M": f"{self.cpu_seconds:.2f}",
            "share of a core": share(self.cores),
            "wake-ups/s": count(self.totals["wakeups_in_trace"] / max(self.totals["span_us"] / 1e6, 1e-6)),
            "late p99 ms": f"{'' if self.is_measured else 'up to '}{self.late_ms:.3g}",
            "expired": share(self.each("expired")),
            "peak pending": count(self.totals["peak_pending"]),
            "peak MB": count(self.peak_mb),
        }


def choose(options: Sequence[Option], max_lateness_ms: float) -> tuple[Option, str]:
    """Return the best of *options*, and why. Raises: AdviceError: too few operations, or no setting is on time."""
    seen = min((each.totals["operations"] for each in options), default=0)
    if seen < FEWEST:
        raise AdviceError(
            f"no advice from {seen:,} operations, at least {FEWEST:,} are needed: simulate a longer trace"
        )
    on_time = [each for each in options if each.late_ms <= max_lateness_ms]
    if not on_time:
        best = min(each.late_ms for each in options)
        rule = f"99 % of expirations must be at most {max_lateness_ms:g} ms late, but the best setting reaches"
        raise AdviceError(f"no advice: {rule} {best:.3g} ms: simulate finer ticks, or allow more lateness")
    least = min(each.cpu_seconds for each in on_time)
    near = [each for each in on_time if each.cpu_seconds <= least * NEAR]
    chosen = min(near, key=lambda each: (len(each.changes), each.peak_mb, each.cpu_seconds))
    default = next((each for each in on_time if not each.changes), None)
    if default is None:
        return chosen, "the defaults are too late, or were not simulated"
    if chosen is default:
        return default, "no other setting takes less CPU time"
    return _worthwhile(default, chosen)


def _worthwhile(default: Option, cheap: Option) -> tuple[Option, str]:
    """Return *cheap* if anybody would notice that it costs less, else *default*, and why."""
    cores, megabytes = default.cores - cheap.cores, default.peak_mb - cheap.peak_mb
    saving = f"{1 - cheap.cpu_seconds / default.cpu_seconds:.0%} of {share(default.cores)} of a core"
    if megabytes >= NOTICED_MB:
        saving += f", and {megabytes:,.0f} MB"
    if cores >= NOTICED_CORES or megabytes >= NOTICED_MB:
        return cheap, f"it saves {saving}"
    return default, f"another {' and '.join(cheap.changes)} would save {saving}, too little to notice"


def _of_one(workloads: Sequence[Workload]) -> str:
    """Return what a trace is of, if that is not all that was recorded."""
    fleet = max((each.instances for each in workloads), default=1.0)
    names = {each.purgatory for each in workloads}
    one = f"the load of one of {count(round(fleet, 1))} instances, " if fleet > 1 else ""
    return one + (f"the {len(names)} purgatories as one, " if len(names) > 1 else "")


def _about(best: Option, workloads: Sequence[Workload]) -> Iterator[str]:
    operations = sum(each.operations for each in workloads)
    if operations:
        expired = sum(each.operations * (each.expired or 0) for each in workloads) / operations
        seconds = max(each.seconds_covered for each in workloads)
        yield f"Recorded: {operations:,.0f} operations in {duration(seconds * 1e6)}; {share(expired)} of them expired."
    totals = best.totals
    trace = f"a trace of {totals['operations']:,} operations in {duration(totals['span_us'])}"
    yield f"Simulated: {_of_one(workloads)}{trace}."
    if not best.is_measured:
        yield f"Only {totals['expired']:,} operations expired, so the worst lateness is assumed: {best.late_ms:g} ms."
    yield "Lateness is the rounding of timeouts up to the tick. A busy event loop adds its own; the report shows both."
