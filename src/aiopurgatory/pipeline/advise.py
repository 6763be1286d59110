"""Simulations -> the settings to use, and the cost of each alternative, in advice.md.

The advice is the setting with the least CPU time of those that expire operations on time, or the defaults, if nobody
would notice the gain: less than 1 % of a core at the load of the trace, and less than 10 MB. A setting that changes the
operations' timeouts is never advised. CPU time is computed from the steps that the simulation counted and from the
time that each step takes on the machine of the benchmarks. Use it to compare settings, not to predict a load.

Lateness is the rounding of timeouts up to the tick, on an idle machine. A busy event loop adds its own delays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.settings import Setting

from . import documents
from .model import Workload, read_model
from .page.wording import Markup, duration, share, text
from .page.wording import table as table_of
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
_WORDS: Final = {"tick_ms": "tick", "wheel_size": "wheel size", "purge_interval": "purge interval"}


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
    parser.add_argument("--max-lateness-ms", type=float, default=20.0, metavar="MS", help=about)


def run(args: argparse.Namespace) -> None:
    """Write the advice, and print it. Raises: AdviceError: no advice can be given."""
    workloads = read_model(args.model) if args.model else []
    with session_of(args) as spark:
        advice = advise(simulated(spark, args.out), args.max_lateness_ms, workloads=workloads).markdown()
    documents.write(documents.folder(args.documents, args.out) / documents.ADVICE, advice)
    print(advice)


def simulated(spark: SparkSession, out: str) -> list[dict[str, Any]]:
    """Return the rows of the simulations in *out*, one per setting."""
    return spark.read.schema(SCHEMA).parquet(f"{out}/simulations").toArrow().to_pylist()


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
    best = choose(options, max_lateness_ms, fewest)
    ordered = sorted(options, key=lambda each: (each.cpu_seconds, each.name))
    sentences = (*_recorded(workloads), *_sentences(best, options, max_lateness_ms))
    reason = _reason(best, [each for each in _candidates(options) if each.late_ms <= max_lateness_ms])
    return Advice(best, reason, sentences, tuple(_cells(best, each) for each in ordered))


@dataclass(frozen=True)
class Advice:
    """The setting to use, why, more about it, and a table with a row per setting: its cells by column."""

    best: Option
    reason: str
    sentences: tuple[str, ...]
    rows: tuple[dict[str, str], ...]

    @property
    def headline(self) -> str:
        """The setting to use and the reason, in one line."""
        return f"{self._use} `{self.call}`: {self.reason}."

    @property
    def call(self) -> str:
        """The setting to use, as code."""
        setting = self.best.setting
        given = f"tick={setting.tick:g}, wheel_size={setting.wheel_size}, purge_interval={setting.purge_interval}"
        return "Purgatory()" if self.best.is_default else f"Purgatory({given})"

    @property
    def _use(self) -> str:
        return "Keep the defaults," if self.best.is_default else "Use"

    def html(self) -> tuple[Markup, Markup]:
        """The text, and the table."""
        items = "".join(f"<li>{text(sentence)}</li>" for sentence in self.sentences)
        use = f"<p><b>{self._use} <code>{text(self.call)}</code>: {text(self.reason)}.</b></p>"
        options = table_of([*self.rows[0]], self._marked(lambda name: Markup(f"<b>{text(name)}</b>")))
        return Markup(f"{use}<ul>{items}</ul>"), options

    def markdown(self) -> str:
        items = "\n".join(f"- {sentence}" for sentence in self.sentences)
        lines = [self.rows[0], ["---"] * len(self.rows[0]), *self._marked(lambda name: f"**{name}**")]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"# Advice\n\n{self.headline}\n\n{items}\n\n{table}\n"

    def _marked(self, mark: Callable[[str], str]) -> list[tuple[str, ...]]:
        """The cells of the table, with the name of the advised setting marked."""
        return [
            (mark(name) if name == self.best.name else name, *cells) for name, *cells in map(dict.values, self.rows)
        ]


@dataclass(frozen=True)
class Option:
    """One setting, and the result of its simulation: the columns of the results by name."""

    setting: Setting
    totals: Mapping[str, int]

    @property
    def name(self) -> str:
        setting = self.setting
        words = [f"tick={setting.tick:g}", f"wheel_size={setting.wheel_size}"]
        words.append(f"purge_interval={setting.purge_interval}")
        if setting.timeout_ms is not None:
            words.append(f"timeout {setting.timeout_ms:g} ms")
        return ", ".join(words)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds per million operations."""
        return sum(self.each(step) * ns for step, ns in COSTS_NS.items()) / 1e3

    @property
    def wakeups_per_second(self) -> float:
        return self.totals["wakeups_in_trace"] / max(self.totals["span_us"] / 1e6, 1e-6)

    @property
    def lateness_is_measured(self) -> bool:
        """Did enough operations expire to measure their lateness?"""
        return self.totals["expired"] >= ENOUGH_EXPIRED

    @property
    def late_ms(self) -> float:
        """The 99th percentile of lateness; one tick, the worst case, if too few expired to measure it."""
        return self.totals["late_p99_us"] / 1000 if self.lateness_is_measured else self.setting.tick_ms

    @property
    def expired(self) -> float:
        """The share of operations that expired."""
        return self.each("expired")

    @property
    def peak_mb(self) -> float:
        return self.totals["peak_bytes"] / 1e6

    def each(self, step: str) -> float:
        """How many times *step* was taken per operation."""
        return self.totals[step] / self.totals["operations"]

    @property
    def is_default(self) -> bool:
        return self.from_defaults() == 0

    @property
    def cores(self) -> float:
        """The share of a core that it takes at the load of the trace."""
        per_second = self.totals["operations"] / max(self.totals["span_us"] / 1e6, 1e-6)
        return self.cpu_seconds * per_second / 1e6

    def saves(self, other: Option) -> bool:
        """Whether anybody would notice that *other* costs more."""
        return other.cores - self.cores >= NOTICED_CORES or other.peak_mb - self.peak_mb >= NOTICED_MB

    def from_defaults(self) -> int:
        """How many settings are not the default."""
        default, own = Setting(), self.setting
        return sum(getattr(default, name) != getattr(own, name) for name in Setting.__dataclass_fields__)


def options_of(simulations: Sequence[Mapping[str, Any]]) -> list[Option]:
    """Return the settings. Raises: AdviceError: one is refused by the library, or there are none."""
    names = Setting.__dataclass_fields__
    if not simulations:
        raise AdviceError("no advice without simulations: generate a trace with rows, and simulate it")
    try:
        return [Option(Setting(**{name: row[name] for name in names}), row) for row in simulations]
    except (TypeError, ValueError) as error:
        raise AdviceError(f"{error}: simulate again") from None


def _candidates(options: Sequence[Option]) -> list[Option]:
    """Those of *options* that leave the operations their timeouts."""
    return [each for each in options if each.setting.timeout_ms is None]


def choose(options: Sequence[Option], max_lateness_ms: float, fewest: int) -> Option:
    """The best of *options*. Raises: AdviceError: too few operations, or no setting is on time."""
    candidates = _candidates(options)
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
            f"{_ms(best)} ms: simulate finer ticks, or allow more lateness"
        )
    least = min(each.cpu_seconds for each in on_time)
    near = [each for each in on_time if each.cpu_seconds <= least * NEAR]
    chosen = min(near, key=lambda each: (each.from_defaults(), each.peak_mb, each.cpu_seconds))
    default = next((each for each in on_time if each.is_default), chosen)
    return chosen if chosen.saves(default) else default


# In words


def _reason(best: Option, on_time: Sequence[Option]) -> str:
    """Why *best* is advised: what another setting would save, or what it saves itself."""
    default = next((each for each in on_time if each.is_default), None)
    if not best.is_default:
        if default is None:
            return "the defaults would be too late"
        return _saving(default, best, "it saves")
    least = min(on_time, key=lambda each: each.cpu_seconds)
    if least.cpu_seconds * NEAR > best.cpu_seconds:
        return "no other setting takes less CPU time"
    names = Setting.__dataclass_fields__
    differing = [name for name in names if getattr(least.setting, name) != getattr(best.setting, name)]
    what = f"another {_WORDS[differing[0]]}" if len(differing) == 1 else "other settings"
    return _saving(best, least, f"{what} would save")


def _saving(dear: Option, cheap: Option, verb: str) -> str:
    if dear.cpu_seconds > cheap.cpu_seconds:
        little = "" if cheap.saves(dear) else ", too little to notice"
        return f"{verb} {1 - cheap.cpu_seconds / dear.cpu_seconds:.0%} of {share(dear.cores)} of a core{little}"
    return f"{verb} {_bytes(dear.totals['peak_bytes'] - cheap.totals['peak_bytes'])}"


def _sentences(best: Option, options: Sequence[Option], max_lateness_ms: float) -> Iterator[str]:
    yield from _about(best)
    for name, what in _WORDS.items():
        for other in _differing(best, options, name):
            yield f"Another {what}, {other.name}: {_compared(best, other, max_lateness_ms)}."
    for other in _differing(best, options, "timeout_ms"):
        yield (
            f"With a timeout of {other.setting.timeout_ms:g} ms for all operations, {other.expired:.1%} would expire "
            f"instead of {best.expired:.1%}, and at most {other.totals['peak_pending']:,} would be pending instead of "
            f"{best.totals['peak_pending']:,}."
        )


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
        f"{share(best.expired)} of them expire."
    )
    yield (
        f"It takes about {best.cpu_seconds:.1f} s of CPU time per million operations, {share(best.cores)} of a core, "
        f"and {_number(best.wakeups_per_second)} wake-ups a second. At most {totals['peak_pending']:,} operations are "
        f"pending, in {_bytes(best.totals['peak_bytes'])}."
    )
    if best.lateness_is_measured:
        yield f"99 % of expirations are at most {_ms(best.late_ms)} ms late."
    else:
        yield (
            f"Only {totals['expired']:,} operations expired. Measuring lateness takes {ENOUGH_EXPIRED}, so the worst "
            f"case is assumed: one tick, {_ms(best.late_ms)} ms."
        )
    yield (
        "This lateness is the rounding of timeouts up to the tick, on an idle machine. A busy event loop adds its own "
        "delays; the report shows both together."
    )
    if totals["left"]:
        yield f"{totals['left']:,} operations never end: they have no deadline, and the trace does not complete them."


def _ms(lateness: float) -> str:
    return f"{lateness:,.0f}" if lateness >= 100 else f"{lateness:.3g}"


def _number(value: float) -> str:
    """1,234, 12, 1.2 or 0.0012: as many digits as anybody reads."""
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.2g}" if value >= 1e-4 else "less than 0.0001"


def _bytes(value: float) -> str:
    return f"{_number(value / 1e6)} MB" if value >= 1e6 else f"{_number(value / 1e3)} kB"


def _differing(best: Option, options: Sequence[Option], name: str) -> list[Option]:
    """The options that differ from *best* in *name* alone."""
    names = Setting.__dataclass_fields__
    return [
        each
        for each in options
        if [other for other in names if getattr(each.setting, other) != getattr(best.setting, other)] == [name]
    ]


def _compared(best: Option, other: Option, max_lateness_ms: float) -> str:
    differences = [_factor(other.cpu_seconds / best.cpu_seconds, "CPU time")]
    pairs = [
        ("wake-ups", best.wakeups_per_second, other.wakeups_per_second),
        ("memory", best.peak_mb, other.peak_mb),
    ]
    differences += [
        _factor(theirs / ours, what) for what, ours, theirs in pairs if ours and abs(theirs / ours - 1) > 0.05
    ]
    if other.totals["purge_visits"]:
        visits = f"{other.each('purge_visits'):,.1f} entries per operation"
        differences.append(f"its {other.totals['purges']:,} purges visit {visits}")
    if abs(other.late_ms - best.late_ms) > 0.1:
        most = "" if other.lateness_is_measured else "up to "
        verdict = ", which is too late" if other.late_ms > max_lateness_ms else ""
        differences.append(f"expirations {most}{_ms(other.late_ms)} ms late{verdict}")
    return ", ".join(differences)


def _factor(factor: float, what: str) -> str:
    if abs(factor - 1) < 0.01:
        return f"the same {what}"
    return (
        f"{_number(factor)} times the {what}"
        if factor >= 2
        else f"{abs(factor - 1):.0%} {'more' if factor > 1 else 'less'} {what}"
    )


def _cells(best: Option, option: Option) -> dict[str, str]:
    """The row of *option* in the table, by column."""
    late = _ms(option.late_ms)
    return {
        "setting": option.name,
        "CPU s per 1M": f"{option.cpu_seconds:.2f}",
        "relative to the advice": f"{option.cpu_seconds / best.cpu_seconds:.2f}",
        "wake-ups/s": format(option.wakeups_per_second, ",.0f" if option.wakeups_per_second >= 10 else ".2g"),
        "cascades/op": f"{option.each('cascades'):.3f}",
        "heap steps/op": f"{option.each('heap_operations'):.3f}",
        "purge visits/op": f"{option.each('purge_visits'):.2f}",
        "late p99 ms": late if option.lateness_is_measured else f"up to {late}",
        "expired": f"{option.expired:.2%}",
        "peak pending": f"{option.totals['peak_pending']:,d}",
        "peak MB": format(option.peak_mb, ",.0f" if option.peak_mb >= 10 else ".2g"),
    }
