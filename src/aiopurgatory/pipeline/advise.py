"""Simulations -> the settings to use, and the cost of each alternative, in advice.md.

The advice is the setting with the least CPU time of those that expire operations on time, or the defaults, if nobody
would notice the gain: less than 1 % of a core at the load of the trace, and less than 10 MB. A setting that changes the
operations' timeouts is never advised. CPU time is computed from the steps that the simulation counted and from the
time that each step takes on the machine of the benchmarks. Use it to compare settings, not to predict a load.

Lateness is the rounding of timeouts up to the tick, on an idle machine. A busy event loop adds its own delays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.settings import Setting

from . import documents
from .model import Workload, read_model
from .page.wording import count, duration, share
from .session import session_of
from .simulate import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
_WORDS: Final = ("tick", "wheel size", "purge interval", "timeout")


class AdviceError(PurgatoryError):
    """The simulations allow no advice."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder in which simulate has written")
    limit(parser)
    about = "model.json, written by fit: the advice then says what was recorded"
    parser.add_argument("--model", type=Path, metavar="FILE", help=about)
    documents.argument(parser, documents.ADVICE)


def limit(parser: argparse.ArgumentParser) -> None:
    about = "99 %% of expirations must be at most this late (default: 20)"
    parser.add_argument("--max-lateness-ms", type=float, default=None, metavar="MS", help=about)


def run(args: argparse.Namespace) -> None:
    """Write the advice, and print it. Raises: AdviceError: no advice can be given."""
    workloads = read_model(args.model) if args.model else []
    with session_of(args) as spark:
        advice = advise(simulated(spark, args.out), args.max_lateness_ms or 20.0, workloads=workloads).markdown()
    documents.write(documents.folder(args.documents, args.out) / documents.ADVICE, advice)
    print(advice)


def simulated(spark: SparkSession, out: str) -> list[dict[str, Any]]:
    """Return the rows of the simulations in *out*, one per setting."""
    return list(spark.read.schema(SCHEMA).parquet(f"{out}/simulations").toArrow().to_pylist())


def advise(
    simulations: Sequence[Mapping[str, Any]],
    max_lateness_ms: float = 20.0,
    fewest: int = 1_000,
    *,
    workloads: Sequence[Workload] = (),
) -> Advice:
    """Choose the settings to use.

    Args:
        simulations: rows of simulate.SCHEMA.
        max_lateness_ms: 99 % of expirations must be at most this late, in ms (default: 20).
        fewest: give no advice from a trace of fewer operations (default: 1,000).
        workloads: the model that the trace was made from, which knows what was recorded (default: unknown).

    Raises: AdviceError: no setting can be chosen; the message has the remedy.
    """
    options = options_of(simulations)
    best, reason = choose(options, max_lateness_ms, fewest)
    ordered = sorted(options, key=lambda each: (each.cpu_seconds, each.name))
    rows = [each.cells(best) for each in ordered]
    return Advice(best, reason, (*_recorded(workloads), *_about(best)), rows)


@dataclass(frozen=True)
class Advice:
    """The setting to use, why, more about it, and a table with a row per setting: its cells by column."""

    best: Option
    reason: str
    sentences: Sequence[str]
    rows: Sequence[Mapping[str, str]]

    @property
    def headline(self) -> str:
        """The setting to use and the reason, in one line."""
        use = "Keep the defaults" if self.best.is_default else f"Use `Purgatory({self.best.name})`"
        return f"{use}: {self.reason}."

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
        name = f"tick={own.tick:g}, wheel_size={own.wheel_size}, purge_interval={own.purge_interval}"
        return name if own.timeout_ms is None else f"{name}, timeout {own.timeout_ms:g} ms"

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds per million operations."""
        return sum(self.each(step) * ns for step, ns in COSTS_NS.items()) / 1e3

    @property
    def cores(self) -> float:
        """The share of a core that it takes at the load of the trace."""
        return self.cpu_seconds * self.totals["operations"] / max(self.totals["span_us"], 1)

    @property
    def wakeups_per_second(self) -> float:
        return self.totals["wakeups_in_trace"] / max(self.totals["span_us"] / 1e6, 1e-6)

    @property
    def late_ms(self) -> float:
        """The 99th percentile of lateness; one tick, the worst case, if too few expired to measure it."""
        measured = self.totals["expired"] >= ENOUGH_EXPIRED
        return self.totals["late_p99_us"] / 1000 if measured else self.setting.tick_ms

    @property
    def peak_mb(self) -> float:
        return self.totals["peak_bytes"] / 1e6

    @property
    def is_default(self) -> bool:
        return not self.differing(Setting())

    def each(self, step: str) -> float:
        """How many times *step* was taken per operation."""
        return self.totals[step] / self.totals["operations"]

    def saves(self, other: Option) -> bool:
        """Whether anybody would notice that *other* costs more."""
        return other.cores - self.cores >= NOTICED_CORES or other.peak_mb - self.peak_mb >= NOTICED_MB

    def differing(self, other: Setting) -> list[str]:
        """What differs from *other*, in words."""
        pairs = zip(_WORDS, astuple(self.setting), astuple(other), strict=True)
        return [word for word, own, theirs in pairs if own != theirs]

    def cells(self, best: Option) -> dict[str, str]:
        """The row of the table, by column."""
        late = ("" if self.totals["expired"] >= ENOUGH_EXPIRED else "up to ") + f"{self.late_ms:.3g}"
        return {
            "setting": f"{self.name} (advised)" if self is best else self.name,
            "CPU s per 1M": f"{self.cpu_seconds:.2f}",
            "relative to the advice": f"{self.cpu_seconds / best.cpu_seconds:.2f}",
            "share of a core": share(self.cores),
            "wake-ups/s": count(self.wakeups_per_second),
            "cascades/op": f"{self.each('cascades'):.3f}",
            "heap steps/op": f"{self.each('heap_operations'):.3f}",
            "purge visits/op": f"{self.each('purge_visits'):.2f}",
            "late p99 ms": late,
            "expired": share(self.each("expired")),
            "peak pending": count(self.totals["peak_pending"]),
            "peak MB": count(self.peak_mb),
        }


def options_of(simulations: Sequence[Mapping[str, Any]]) -> list[Option]:
    """Return the settings. Raises: AdviceError: one is refused by the library, or there are none."""
    if not simulations:
        raise AdviceError("no advice without simulations: generate a trace with rows, and simulate it")
    try:
        return [Option(Setting(*(row[name] for name in Setting.__dataclass_fields__)), row) for row in simulations]
    except (TypeError, ValueError) as error:
        raise AdviceError(f"{error}: simulate again") from None


def choose(options: Sequence[Option], max_lateness_ms: float, fewest: int) -> tuple[Option, str]:
    """Return the best of *options*, and why. Raises: AdviceError: too few operations, or no setting is on time."""
    candidates = [each for each in options if each.setting.timeout_ms is None]
    if not candidates:
        raise AdviceError("simulations must have a setting with each operation's own timeout, got none")
    seen = min(each.totals["operations"] for each in candidates)
    if seen < fewest:
        raise AdviceError(
            f"no advice from {seen:,} operations, at least {fewest:,} are needed: simulate a trace with more rows"
        )
    on_time = [each for each in candidates if each.late_ms <= max_lateness_ms]
    if not on_time:
        best = min(each.late_ms for each in candidates)
        raise AdviceError(
            f"no advice: 99 % of expirations must be at most {max_lateness_ms:g} ms late, but the best setting reaches "
            f"{best:.3g} ms: simulate finer ticks, or allow more lateness"
        )
    least = min(each.cpu_seconds for each in on_time)
    near = [each for each in on_time if each.cpu_seconds <= least * NEAR]
    chosen = min(near, key=lambda each: (len(each.differing(Setting())), each.peak_mb, each.cpu_seconds))
    default = next((each for each in on_time if each.is_default), None)
    if default is None:
        return chosen, "the defaults are too late, or were not simulated"
    if chosen is default:
        return default, "no other setting takes less CPU time"
    if chosen.saves(default):
        return chosen, f"it saves {_saving(default, chosen)}"
    words = chosen.differing(default.setting)
    what = f"another {words[0]}" if len(words) == 1 else "other settings"
    return default, f"{what} would save {_saving(default, chosen)}, too little to notice"


def _saving(default: Option, cheap: Option) -> str:
    cpu = f"{1 - cheap.cpu_seconds / default.cpu_seconds:.0%} of {share(default.cores)} of a core"
    megabytes = default.peak_mb - cheap.peak_mb
    return f"{cpu}, and {megabytes:,.0f} MB" if megabytes >= NOTICED_MB else cpu


def _recorded(workloads: Sequence[Workload]) -> Iterator[str]:
    known = [each.evidence for each in workloads if "operations" in each.evidence]
    if known:
        operations = sum(each["operations"] for each in known)
        expired = sum(each["operations"] * each["shares"]["expired"] for each in known) / operations
        seconds = max(each["seconds_covered"] for each in known)
        yield f"Recorded: {operations:,.0f} operations in {duration(seconds * 1e6)}; {share(expired)} of them expired."


def _about(best: Option) -> Iterator[str]:
    totals = best.totals
    yield (
        f"Simulated: a trace of {totals['operations']:,} operations in {duration(totals['span_us'])}; "
        f"{share(best.each('expired'))} of them expire."
    )
    yield (
        f"It takes about {best.cpu_seconds:.1f} s of CPU time per million operations, {share(best.cores)} of a core, "
        f"and {count(best.wakeups_per_second)} wake-ups a second. At most {totals['peak_pending']:,} operations are "
        f"pending, in {count(best.peak_mb)} MB."
    )
    late = f"99 % of expirations are at most {best.late_ms:.3g} ms late"
    if totals["expired"] < ENOUGH_EXPIRED:
        late = f"Only {totals['expired']:,} operations expired, so the worst lateness is assumed: {best.late_ms:g} ms"
    yield f"{late}: timeouts are rounded up to the tick. A busy event loop adds its own delays; the report shows both."
    if totals["left"]:
        yield f"{totals['left']:,} operations never end: they have no deadline, and the trace does not complete them."
