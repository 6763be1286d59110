"""Shows the progress of a run: on a terminal all stages and Spark's tasks, elsewhere a line for each stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, TaskID

#: Seconds between two polls of Spark.
EVERY: Final = 0.25


class Display(Protocol):
    """The events of a run that a display shows."""

    def begin(self, stage: str) -> None: ...
    def end(self, stage: str, seconds: float) -> None: ...
    def skip(self, stage: str) -> None: ...
    def watch(self, spark: SparkSession) -> None: ...


_CURRENT: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def display(stages: Sequence[str]) -> Iterator[None]:
    """Show the progress of *stages* on stderr while the block runs."""
    if sys.stderr.isatty():
        with _on_terminal(stages) as shown, _current(shown):
            yield
    else:
        with _current(_Lines()):
            yield


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show that the stage *name* runs during the block. Does nothing if there is no display."""
    shown = _CURRENT.get()
    begun = time.monotonic()
    if shown:
        shown.begin(name)
    yield
    if shown:
        shown.end(name, time.monotonic() - begun)


def skip(name: str) -> None:
    """Show that the stage *name* need not run."""
    if shown := _CURRENT.get():
        shown.skip(name)


def watch(spark: SparkSession) -> None:
    """Show the tasks of *spark*, until it stops."""
    if shown := _CURRENT.get():
        shown.watch(spark)


@contextmanager
def _current(shown: Display) -> Iterator[None]:
    token = _CURRENT.set(shown)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class _Lines:
    """For logs: one line for each stage, when it has ended or was skipped."""

    def begin(self, stage: str) -> None:
        pass

    def end(self, stage: str, seconds: float) -> None:
        print(f"{stage}: done in {seconds:.1f} s", file=sys.stderr, flush=True)

    def skip(self, stage: str) -> None:
        print(f"{stage}: skipped, its inputs have not changed since the last run", file=sys.stderr, flush=True)

    def watch(self, spark: SparkSession) -> None:
        pass


@contextmanager
def _on_terminal(stages: Sequence[str]) -> Iterator[Display]:
    from rich.console import Console  # here: a stage that logs to a file does not need it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}"),
        TextColumn("{task.fields[state]}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
    ]
    # A stage's own output to the same terminal is shown above the bars. Redirected output is left alone.
    bars = Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty())
    with bars:
        rows = {name: bars.add_task(name, start=False, total=None, state="to come", tasks="") for name in stages}
        shown = _Bars(bars, rows)
        try:
            yield shown
        finally:
            shown.close()


class _Bars:
    """For a terminal: a row for each stage; a thread polls Spark."""

    def __init__(self, bars: Progress, rows: dict[str, TaskID]) -> None:
        self._bars = bars
        self._rows = rows
        self._running: str | None = None
        self._tasks = _Tasks()
        self._spark: SparkSession | None = None
        self._closed = Event()
        self._thread = Thread(target=self._poll, daemon=True)
        self._thread.start()

    def begin(self, stage: str) -> None:
        self._tasks = _Tasks()
        self._running = stage
        self._bars.start_task(self._rows[stage])
        self._bars.update(self._rows[stage], state="running")

    def end(self, stage: str, seconds: float) -> None:
        self._running = None
        self._bars.update(self._rows[stage], state="done", total=1, completed=1)
        self._bars.stop_task(self._rows[stage])

    def skip(self, stage: str) -> None:
        self._bars.update(self._rows[stage], state="as before", total=1, completed=1)

    def watch(self, spark: SparkSession) -> None:
        self._spark = spark

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._closed.wait(EVERY):
            stage, spark = self._running, self._spark
            if stage is None or spark is None:
                continue
            try:
                done, all_tasks = self._tasks.poll(spark)
            except Exception:  # Spark is stopping: there is nothing more to show
                self._spark = None
                continue
            if all_tasks and stage == self._running:
                shown = f"{done:,} of {all_tasks:,} tasks"
                self._bars.update(self._rows[stage], completed=done, total=all_tasks, tasks=shown)


class _Tasks:
    """Spark's tasks since a stage of the pipeline began."""

    def __init__(self) -> None:
        #: By Spark's stage: its tasks that are done, and all of them.
        self._seen: dict[int, tuple[int, int]] = {}

    def poll(self, spark: SparkSession) -> tuple[int, int]:
        """Return how many are done, and how many are known so far."""
        tracker = spark.sparkContext.statusTracker()
        active = set()
        for number in tracker.getActiveJobsIds():
            job = tracker.getJobInfo(number)
            active |= set(job.stageIds) if job else set()
        for number in active | {number for number, (done, tasks) in self._seen.items() if done < tasks}:
            info = tracker.getStageInfo(number)
            done = info.numCompletedTasks if info else 0
            # Spark skips a stage if it still has its output.
            self._seen[number] = (done, info.numTasks if info and number in active else done)
        return sum(done for done, _ in self._seen.values()), sum(tasks for _, tasks in self._seen.values())
