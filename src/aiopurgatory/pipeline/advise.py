"""Simulations -> the settings to use, and what each alternative would cost, in OUT/advice.md.

What is advised is the setting with the least CPU time of those that end operations no later after their deadline than
is tolerated, and leave each its own timeout: how long to wait is not for the library to say. CPU time follows from
what the simulation counted and from what each such step takes on the machine that the benchmarks ran on; take it for
a comparison, not for a promise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .replay.settings import NEW, OLD, Setting
from .spark.session import session

#: ns of CPU time per step, compiled: of the library, and of the old purgatory. They give what benchmarks/RESULTS.md has
#: for the seeds' workloads at 100,000 requests per second, but for the driver's share, to about a fifth.
COSTS_NS: Final = {
    NEW: {"operations": 3_000, "expired": 1_500, "cascades": 150, "heap_operations": 500, "purge_visits": 100},
    OLD: {"operations": 2_400, "expired": 1_500, "cascades": 0, "heap_operations": 600, "purge_visits": 70},
}
WAKEUP_NS: Final = 30_000
#: Of two settings whose cost differs by less, the one nearer to the defaults is better.
NEAR: Final = 1.03
#: Of the table.
COLUMNS: Final = (
    "setting",
    "CPU s per 1M",
    "against the advised",
    "wake-ups/s",
    "cascades each",
    "heap each",
    "purge visits each",
    "late p99 ms",
    "expired",
    "peak pending",
    "peak MB",
)


class AdviceError(PurgatoryError):
    """Nothing can be advised."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("simulations", help="folder that simulate has made")
    parser.add_argument("out", type=Path, help="folder of the advice")
    parser.add_argument("--late-ms", type=float, default=20.0, help="so late 99 %% of time-outs may be (default: 20)")


def run(args: argparse.Namespace) -> None:
    """Advise, in words and as a table."""
    with session("advise", scratch=args.out, master=args.master, memory=args.memory) as spark:
        text = advise(spark.read.parquet(args.simulations), late_ms=args.late_ms)
    (args.out / "advice.md").write_text(text)
    print(text)


def advise(simulations: DataFrame, *, late_ms: float = 20.0) -> str:
    """The settings to use, and what the others would cost, as Markdown.

    Args:
        simulations: what simulate() returns.
        late_ms: how late after their deadline 99 % of those that expire may do so.

    Raises: AdviceError: there is no setting to choose from.
    """
    options = [Option(row) for row in summed(simulations).collect()]
    best = choose(options, late_ms)
    sentences = "\n".join(f"- {sentence}" for sentence in _sentences(best, options, late_ms))
    return f"# Advice\n\n{_headline(best)}\n\n{sentences}\n\n{_table(best, options)}"


def summed(simulations: DataFrame) -> DataFrame:
    """A row per setting: sums over the shards; of lateness, and of the time that the trace takes, the largest.

    Sums of peaks are upper bounds: not all shards need have theirs at the same time.
    """
    setting = list(Setting.__dataclass_fields__)
    sums = ["operations", "completed", "expired", "left", "cascades", "wakeups", "wakeups_in_trace", "heap_operations"]
    sums += ["purges", "purge_visits", "peak_pending", "peak_listed", "peak_bytes"]
    most = ["span_us", "late_p99_us", "late_max_us"]
    found = simulations.groupBy(*setting).agg(
        F.count(F.lit(1)).alias("shards"),
        *(F.sum(name).alias(name) for name in sums),
        *(F.max(name).alias(name) for name in most),
    )
    return found.select(*setting, "shards", *sums, *most).orderBy(*setting)


@dataclass(frozen=True)
class Option:
    """One setting, and what became of the trace with it."""

    row: Row

    @property
    def setting(self) -> Setting:
        return Setting(**{name: self.row[name] for name in Setting.__dataclass_fields__})

    @property
    def name(self) -> str:
        setting = self.setting
        words = ["old purgatory"] if setting.design == OLD else [f"tick={(setting.tick_ms or 0) / 1000:g}"]
        if setting.design == NEW:
            words.append(f"wheel_size={setting.wheel_size}")
        words.append(f"purge_interval={setting.purge_interval}")
        if setting.timeout_ms is not None:
            words.append(f"timeout {setting.timeout_ms:g} ms")
        return ", ".join(words)

    @property
    def cpu_seconds(self) -> float:
        """Per million operations."""
        costs = COSTS_NS[self.setting.design]
        steps = sum(self.row[step] * ns for step, ns in costs.items()) + self.row.wakeups * WAKEUP_NS
        return float(steps / 1e3 / self.row.operations)

    @property
    def wakeups_per_second(self) -> float:
        """Of one process, on average."""
        return float(self.row.wakeups_in_trace / self.row.shards / max(self.row.span_us / 1e6, 1e-6))

    @property
    def late_ms(self) -> float:
        return float(self.row.late_p99_us / 1000)

    @property
    def expired(self) -> float:
        """The share."""
        return float(self.row.expired / self.row.operations)

    @property
    def peak_mb(self) -> float:
        return float(self.row.peak_bytes / 1e6)

    def each(self, step: str) -> float:
        return float(self.row[step] / self.row.operations)

    def from_defaults(self) -> int:
        """How many settings are not the default."""
        default, own = Setting(), self.setting
        return sum(getattr(default, name) != getattr(own, name) for name in Setting.__dataclass_fields__)


def choose(options: Sequence[Option], late_ms: float) -> Option:
    """The best of *options*. Raises: AdviceError: none is on time, or none is there."""
    ours = [each for each in options if each.setting.design == NEW and each.setting.timeout_ms is None]
    if not ours:
        raise AdviceError("simulations must have a setting of the library with each operation's own timeout, got none")
    on_time = [each for each in ours if each.late_ms <= late_ms]
    if not on_time:
        best = min(each.late_ms for each in ours)
        raise AdviceError(f"late_ms must be at least what the finest tick gives ({best:g} ms), got {late_ms:g} ms")
    least = min(each.cpu_seconds for each in on_time)
    near = [each for each in on_time if each.cpu_seconds <= least * NEAR]
    return min(near, key=lambda each: (each.from_defaults(), each.peak_mb, each.cpu_seconds))


# In words


def _headline(best: Option) -> str:
    setting = best.setting
    given = f"tick={(setting.tick_ms or 0) / 1000:g}, wheel_size={setting.wheel_size}"
    return f"Use `Purgatory({given}, purge_interval={setting.purge_interval})`."


def _sentences(best: Option, options: Sequence[Option], late_ms: float) -> Iterator[str]:
    row = best.row
    shards = f" on {row.shards} processes" if row.shards > 1 else ""
    yield (
        f"That is about {best.cpu_seconds:.1f} s of CPU time per million operations{shards}, {best.expired:.1%} of "
        f"which run out of time, {best.late_ms:.3g} ms late at most in 99 % of cases; {best.wakeups_per_second:,.0f} "
        f"wake-ups a second, {best.peak_mb:,.1f} MB at the most for {row.peak_pending:,} pending."
    )
    if row.left:
        yield f"{row.left:,} operations never end: they have no deadline, and the trace does not complete them."
    for name, what in (("tick_ms", "tick"), ("wheel_size", "wheel"), ("purge_interval", "purge interval")):
        for other in _differing(best, options, name):
            yield f"Another {what}, {other.name}: {_compared(best, other, late_ms)}."
    for other in options:
        if other.setting.design == OLD and other.setting.timeout_ms is None:
            yield f"The {other.name}: {_compared(best, other, late_ms)}."
    for other in _differing(best, options, "timeout_ms"):
        yield (
            f"With a timeout of {other.setting.timeout_ms:g} ms for all, {other.expired:.1%} instead of "
            f"{best.expired:.1%} would run out of time, and {other.row.peak_pending:,} instead of "
            f"{row.peak_pending:,} be pending at most."
        )


def _differing(best: Option, options: Sequence[Option], name: str) -> list[Option]:
    """Those that differ from *best* in *name* alone."""
    names = Setting.__dataclass_fields__
    return [
        each
        for each in options
        if [other for other in names if getattr(each.setting, other) != getattr(best.setting, other)] == [name]
    ]


def _compared(best: Option, other: Option, late_ms: float) -> str:
    said = [_factor(other.cpu_seconds / best.cpu_seconds, "CPU time")]
    pairs = [
        ("wake-ups", best.wakeups_per_second, other.wakeups_per_second),
        ("memory", best.peak_mb, other.peak_mb),
    ]
    said += [_factor(theirs / ours, what) for what, ours, theirs in pairs if ours and abs(theirs / ours - 1) > 0.05]
    if other.row.purge_visits:
        said.append(f"purges ({other.row.purges:,}) look at {other.each('purge_visits'):,.1f} entries per operation")
    if abs(other.late_ms - best.late_ms) > 0.1:
        verdict = ", which is too late" if other.late_ms > late_ms else ""
        said.append(f"time-outs {other.late_ms:.3g} ms late{verdict}")
    return ", ".join(said)


def _factor(factor: float, what: str) -> str:
    if abs(factor - 1) < 0.01:
        return f"the same {what}"
    return (
        f"{factor:.2g} times the {what}"
        if factor >= 2
        else f"{abs(factor - 1):.0%} {'more' if factor > 1 else 'less'} {what}"
    )


def _table(best: Option, options: Sequence[Option]) -> str:
    ordered = sorted(options, key=lambda each: (each.row.design != NEW, each.cpu_seconds, each.name))
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(_cells(best, each) for each in ordered)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _cells(best: Option, option: Option) -> tuple[str, ...]:
    name = f"**{option.name}**" if option.setting == best.setting else option.name
    numbers: list[tuple[Any, str]] = [
        (option.cpu_seconds, ".2f"),
        (option.cpu_seconds / best.cpu_seconds, ".2f"),
        (option.wakeups_per_second, ",.0f"),
        (option.each("cascades"), ".3f"),
        (option.each("heap_operations"), ".3f"),
        (option.each("purge_visits"), ".2f"),
        (option.late_ms, ".3g"),
        (option.expired, ".1%"),
        (option.row.peak_pending, ",d"),
        (option.peak_mb, ",.1f"),
    ]
    return (name, *(format(value, how) for value, how in numbers))
