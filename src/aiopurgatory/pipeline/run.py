"""Journal -> report, model, trace, simulations and advice: every stage in turn, in one session.

  JOURNAL  ->  OUT/clean        as ingest makes it
               OUT/report       as report makes it; its page shows the advice, too
               OUT/model.json   as fit makes it
               OUT/trace        as generate makes it
               OUT/simulations  as simulate makes it
               OUT/advice.md    as advise makes it
               OUT/run.json     a digest of the inputs of each stage

A second call runs only the stages with changed inputs. The trace and its simulations are kept while the model stays
near the one that they were made from. After an interruption, even by kill -9, the next call resumes.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiopurgatory
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.settings import Setting

from .cleaning.files import list_files, require_journal
from .cleaning.versions import kept_for
from .lists import counts, milliseconds
from .spark import folders
from .spark.scratch import remove_abandoned
from .spark.session import stage_session
from .spark.tasks import Spark
from .workload.model import Workload, enough, expected_shares, near, read_model, write_model

#: The stages, in their order.
PARTS: Final = ("ingest", "report", "fit", "generate", "simulate", "advise")
_WHEEL_SIZES: Final = (20, 64)


class BusyError(PurgatoryError):
    """Another run is using the same folder."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        rows: requests in the trace. More take longer and show rarer cases. Default: as many as show a steady state,
            from 20,000 to 100,000.
        ticks: ticks to simulate, in ms (default: 1 and 10).
        purge_intervals: purge intervals to simulate (default: 0 and 1,000).
        max_lateness_ms: 99 % of expirations must be at most this late, in ms (default: 20).
        keep_hours: how long ingest keeps a version after the next one is published (default: 24).
        again: run every stage, even if its inputs have not changed (default: no).
    """

    rows: int | None = None
    ticks: Sequence[float] = (1.0, 10.0)
    purge_intervals: Sequence[int] = (0, 1_000)
    max_lateness_ms: float = 20.0
    keep_hours: float = 24.0
    again: bool = False

    def require_valid(self) -> None:
        """Raises: PurgatoryError: an option is refused."""
        self.settings()
        if self.rows is not None and self.rows < 1:
            raise PurgatoryError(f"rows must be >= 1, got {self.rows}")
        if not self.max_lateness_ms > 0:
            raise PurgatoryError(f"max_lateness_ms must be > 0, got {self.max_lateness_ms:g}")
        kept_for(self.keep_hours)

    def settings(self) -> list[Setting]:
        """The settings to simulate. Raises: PurgatoryError: a setting is refused."""
        from .simulate import grid

        try:
            return grid(self.ticks, _WHEEL_SIZES, self.purge_intervals)
        except (TypeError, ValueError) as error:
            raise PurgatoryError(str(error)) from None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", type=Path, help="folder for all results")
    about = "requests in the trace (default: from 20000 to 100000, as many as show a steady state)"
    parser.add_argument("--rows", type=int, help=about)
    about = "ticks to simulate (default: 1,10)"
    parser.add_argument("--ticks", type=milliseconds, default=Options.ticks, metavar="MS,...", help=about)
    about = "purge intervals to simulate (default: 0,1000)"
    parser.add_argument("--purge-intervals", type=counts, default=Options.purge_intervals, metavar="N,...", help=about)
    about = "99 %% of expirations must be at most this late (default: 20)"
    parser.add_argument("--max-lateness-ms", type=float, default=Options.max_lateness_ms, metavar="MS", help=about)
    about = "hours to keep a version of the clean table after the next is published, for report --as-of (default: 24)"
    parser.add_argument("--keep-hours", type=float, default=Options.keep_hours, metavar="HOURS", help=about)
    parser.add_argument("--again", action="store_true", help="run every stage, even if its inputs have not changed")


def run(args: argparse.Namespace) -> None:
    """Run all stages. Print the advice in one line, and the path of the report."""
    options = Options(**{name: getattr(args, name) for name in Options.__dataclass_fields__})
    folders.refuse_overlap(args.journal, str(args.out))
    options.require_valid()
    require_journal(args.journal)
    with stage_session("run", args) as spark:
        headline = run_all(spark, args.journal, args.out, options)
    print(headline)
    print(f"The report: {args.out / 'report' / 'report.html'}")


def run_all(spark: Spark, journal: str, out: Path, options: Options | None = None) -> str:
    """Run the stages with changed inputs; return the advice in one line.

    Args: spark: called only if a stage has more work than one task.
    Raises: BusyError: another run is using *out*. PurgatoryError: a stage failed; the next call resumes at that stage.
    """
    options = options or Options()
    options.require_valid()  # before hours of work, not after
    require_journal(journal)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        remove_abandoned(out)  # a session does it, too, but the last stage needs none
        return _Run(spark, journal, out, options).all()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the lock of the folder. The system releases it when the process ends, even by SIGKILL."""
    lock = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another run is using {out}: wait for it, or choose another folder") from None
        except OSError as error:
            raise PurgatoryError(
                f"{out} cannot be locked ({error.strerror}): choose a folder on another disk"
            ) from None
        yield
    finally:
        os.close(lock)


def _read_marks(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text())["made_from"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none, or of another version: make everything
        return {}


class _Run:
    """One run. Each stage is a method; `_made` decides whether to call it."""

    def __init__(self, spark: Spark, journal: str, out: Path, options: Options) -> None:
        self._spark = spark
        self._journal = journal
        self._out = out
        self._options = options
        #: A digest of the inputs of each finished stage.
        self._marks = _read_marks(out / "run.json")
        self._incomplete: PurgatoryError | None = None

    def all(self) -> str:
        options, out = self._options, self._out
        self._made("ingest", [journal_state(self._journal)], out / "clean" / "manifests", self._ingest)
        clean = newest_manifest(out / "clean")
        self._made("report", [clean], out / "report" / "report.html", self._report)
        try:
            self._made("fit", [clean], out / "model.json", self._fit)
            workloads = self._workloads()
            rows = options.rows or enough(workloads)
            trace = self._made("generate", [workloads, rows], out / "trace", lambda: self._generate(workloads, rows))
            found = self._made("simulate", [trace, options.settings()], out / "simulations", self._simulate)
            self._made("advise", [found, clean, options.max_lateness_ms], out / "advice.md", self._advise)
        except PurgatoryError:
            if "advise" not in self._marks:  # the page may be older than its tables
                self._page_without_advice()
            raise
        if self._incomplete:
            raise self._incomplete
        return next(line for line in (out / "advice.md").read_text().splitlines() if line and not line.startswith("#"))

    def _page_without_advice(self) -> None:
        from .report import write_page

        write_page(str(self._out / "report"))

    def _made(self, name: str, inputs: list[Any], result: Path, make: Callable[[], None]) -> str:
        """Run the stage *name* unless *result* exists and was made from *inputs*; return a digest of these.

        The mark is removed before the stage begins and set when everything is written: a killed stage has none.
        """
        made_from = _digest(repr((aiopurgatory.__version__, inputs)).encode())
        if not self._options.again and result.exists() and self._marks.get(name) == made_from:
            _say(f"{name}: skipped, its inputs have not changed since the last run")
            return made_from
        self._mark(name, None)
        begun = time.monotonic()
        make()
        _say(f"{name}: done in {time.monotonic() - begun:.1f} s")
        if not (name == "ingest" and self._incomplete):
            self._mark(name, made_from)
        return made_from

    def _mark(self, name: str, made_from: str | None) -> None:
        """Note what the stage *name* was made from; None: it is not finished."""
        self._marks.pop(name, None)
        if made_from:
            self._marks[name] = made_from
        content = {"library": aiopurgatory.__version__, "made_from": self._marks}
        folders.write_bytes(self._out / "run.json", json.dumps(content, indent=1).encode())

    def _ingest(self) -> None:
        from . import ingest

        keep = kept_for(self._options.keep_hours)
        counts = ingest.ingest(self._spark, self._journal, str(self._out / "clean"), keep=keep)
        print(*ingest.summary(counts), sep="\n")
        try:
            ingest.refuse_incomplete(counts)
        except (ingest.UnreadableError, ingest.LeftOutError) as error:  # raised after the other stages have run
            self._incomplete = error

    def _report(self) -> None:
        from . import report

        self._mark("advise", None)  # it makes the page
        report.report(self._spark, str(self._out / "clean"), str(self._out / "report"))
        page = self._out / "report" / "report.html"
        if not page.exists():
            self._page_without_advice()
            print(f"A first page, without a model and advice: {page}", flush=True)

    def _fit(self) -> None:
        from . import fit

        write_model(fit.fit(self._spark, str(self._out / "clean")), self._out / "model.json")

    def _workloads(self) -> Sequence[Workload]:
        """The model's, or those of the trace if the model is near to them: then the simulations still hold."""
        model, trace = read_model(self._out / "model.json"), self._out / "trace" / "model.json"
        before = read_model(trace) if trace.exists() and not self._options.again else []
        return before if near(before, model) else model

    def _generate(self, workloads: Sequence[Workload], rows: int) -> None:
        from . import generate
        from .workload.trace import NAME

        folders.write_table(self._out / "trace" / NAME, generate.generate_table(workloads, rows))
        write_model(workloads, self._out / "trace" / "model.json")

    def _simulate(self) -> None:
        from . import simulate

        simulate.simulate_folder(self._spark, str(self._out / "trace"), str(self._out), self._options.settings())

    def _advise(self) -> None:
        from . import advise
        from .page.promises import Limits
        from .report import write_page
        from .workload import simulations

        workloads, most = read_model(self._out / "model.json"), self._options.max_lateness_ms
        found = simulations.read(str(self._out / "simulations"))
        advice = advise.advise(found, most, workloads=workloads)
        folders.write_bytes(str(self._out / "advice.md"), advice.markdown().encode())
        limits = Limits(expected_shares=expected_shares(workloads))
        if most != Options.max_lateness_ms:
            limits = replace(limits, max_lateness_ms=most)
        write_page(str(self._out / "report"), limits, advice.html())


def journal_state(journal: str) -> str:
    """Return a digest of the files of *journal*: names, sizes, times, and the folders that cannot be listed now."""
    files, unreadable = list_files(folders.absolute(journal))
    return _digest(repr([(file.path, file.size, file.changed) for file in files] + sorted(unreadable)).encode())


def newest_manifest(clean: Path) -> str:
    """Return a digest of the clean table's newest manifest, which lists its files."""
    newest = max((clean / "manifests").glob("[0-9]*.json"))
    return _digest(newest.read_bytes())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]
