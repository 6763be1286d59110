"""The display of the demos: their progress, and a final table of figures, each with its expected value."""

from __future__ import annotations

import asyncio
import contextlib
import math
import platform
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from demo_load import Clients, Tally, tame_collector
from longpoll_server import new_event_loop
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from aiopurgatory import COMPILED

#: The name of a figure, the figure, its expected value (empty: any), and whether it is as expected.
Row = tuple[str, str, str, bool]

console = Console(highlight=False)


class Shown(Protocol):
    """The view of a Progress: *polls* clients, for so many seconds."""

    polls: int
    seconds: float
    tally: Tally


class Progress:
    """The display during a run: updated in place or, without a terminal, a line now and then.

    Args: parked: returns how many polls are parked.
    """

    def __init__(self, load: Shown, parked: Callable[[], Awaitable[int]]) -> None:
        self.load = load
        self._ask_parked = parked
        self.parked = self.peak = 0
        self.started = math.inf  # the time when all polls were parked
        self.second: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=6)

    async def show(self) -> None:
        line_due = 0.0
        live = Live(console=console, auto_refresh=False, transient=True)
        with live if console.is_interactive else contextlib.nullcontext():
            while True:
                self.parked = await self._ask_parked()
                self.peak = max(self.peak, self.parked)
                self.second.append((time.monotonic(), self.load.tally.answered))
                if console.is_interactive:
                    live.update(self.display(), refresh=True)
                elif line_due <= self.elapsed() < self.load.seconds:
                    line_due += self.load.seconds / 5
                    console.print(self.line())
                await asyncio.sleep(0.2)

    def elapsed(self) -> float:
        return min(time.monotonic() - self.started, self.load.seconds)

    def answered_per_second(self) -> float:
        (start, before), (end, after) = self.second[0], self.second[-1]
        return (after - before) / (end - start)

    def line(self) -> str:
        tally = self.load.tally
        return (
            f"{self.elapsed():4.0f} s: {self.parked:,} parked, {tally.answered:,} answered "
            f"({self.answered_per_second():.0f}/s), {tally.timed_out:,} timed out, {tally.hung_up:,} hung up"
        )

    def display(self) -> Table:
        tally, elapsed = self.load.tally, max(self.elapsed(), 0.0)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=12)
        grid.add_column(justify="right", width=8)
        grid.add_column(width=40)
        grid.add_row("parked now", f"[bold]{self.parked:,}", ProgressBar(self.load.polls, self.parked))
        grid.add_row("answered", f"[bold green]{tally.answered:,}", f"{self.answered_per_second():.0f}/s")
        grid.add_row("timed out", f"[bold yellow]{tally.timed_out:,}")
        grid.add_row("hung up", f"[bold magenta]{tally.hung_up:,}")
        grid.add_row("elapsed", f"{elapsed:.0f} s", ProgressBar(self.load.seconds, elapsed))
        return grid


async def under_load(load: Clients, progress: Progress) -> None:
    """Open all polls, publish, wait until every client has received everything, and end the clients one by one."""
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(progress.show())
        clients = [group.create_task(load.follow(client)) for client in range(load.polls)]
        await soon(lambda: progress.parked >= 0.99 * load.polls)
        progress.started = time.monotonic()
        await load.publish()
        await soon(lambda: load.lost() == 0)
        for client in clients:
            client.cancel()
            await asyncio.sleep(0.001)
        await soon(lambda: progress.parked == 0)
        showing.cancel()


async def soon(condition: Callable[[], bool]) -> None:
    """Wait up to 10 s until *condition* holds. The report shows whether it did."""
    for _ in range(500):
        if condition():
            break
        await asyncio.sleep(0.02)


def verdict(rows: list[Row], caption: str) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    table = Table(caption=caption)
    for heading in ("", "figure", "expected", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for what, figure, rule, holds in rows:
        table.add_row(what, figure, rule, "" if not rule else "[green]ok" if holds else "[bold red]NO")
    console.print(table)
    return all(holds for *_, holds in rows)


def in_ms(seconds: list[float], *quantiles: float) -> str:
    return " / ".join(f"{quantile(seconds, q) * 1e3:.1f}" for q in quantiles) + " ms"


def quantile(seconds: list[float], q: float) -> float:
    ranked = sorted(seconds) or [math.nan]
    return ranked[round(q * (len(ranked) - 1))]


def form() -> str:
    return f"aiopurgatory {'compiled' if COMPILED else 'interpreted'}, Python {platform.python_version()}"


def allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count and soft != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        except ValueError:
            sys.exit(f"this needs {count} open files, but the limit is {hard}; reduce --polls")


def exit_code(run: Callable[[], Coroutine[Any, Any, bool]]) -> int:
    """Run a demo to its end or until Ctrl-C. Returns: 0 if every figure is as expected."""
    tame_collector()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return 0 if runner.run(_interruptible(run)) else 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print("interrupted")
        return 130
    except (ExceptionGroup, OSError, EOFError, RuntimeError) as exc:
        first = exc.exceptions[0] if isinstance(exc, ExceptionGroup) else exc
        console.print(f"failed: {first!r}", style="bold red", markup=False)
        return 1


async def _interruptible(run: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    return await run()
