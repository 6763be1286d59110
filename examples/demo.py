"""2,000 long polls at once against a real server, for about 30 s: make demo, or python examples/demo.py

Two processes on 127.0.0.1. demo_server.py runs the app of longpoll_server.py under uvicorn. This one runs the clients,
and the publisher, over HTTP, too. It exits with 0 if every figure is as expected.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # Ctrl-C while the rest is imported

import argparse
import asyncio
import contextlib
import math
import resource
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_load import Connection, Load, tame_collector
from longpoll_server import new_event_loop
from pyarrow import dataset
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from aiopurgatory import Outcome

console = Console(highlight=False)


@contextlib.contextmanager
def server_process(journal: str) -> Iterator[int]:
    """A server that lives as long as this block, and writes a *journal* in that folder. Yields: its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        # Ctrl-C does not reach its process group; it stops when its stdin is closed.
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("demo_server.py")), str(listener.fileno()), journal],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            process_group=0,
        )
        port = listener.getsockname()[1]
    with process:
        yield port


class Progress:
    """The display while it runs: updated in place or, without a terminal, a line now and then."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.parked = self.peak = 0
        self.started = math.inf  # when all have parked
        self.second: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=6)

    async def show(self) -> None:
        line_due = 0.0
        live = Live(console=console, auto_refresh=False, transient=True)
        async with Connection(self.load.port) as connection:
            with live if console.is_interactive else contextlib.nullcontext():
                while True:
                    self.parked = (await connection.request("GET /statistics", expected=(200,)))["pending"]
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


async def run(polls: int, seconds: float, journal: str) -> bool:
    """Returns: whether every figure is as expected."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    with server_process(journal) as port:
        console.print(f"See it live: http://127.0.0.1:{port}/purgatory/, and for Prometheus: /metrics/")
        console.print(f"{polls:,} clients long-poll a server for {seconds:g} s, and a publisher posts; Ctrl-C ends it.")
        load = Load(port, polls, seconds)
        progress = Progress(load)
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(progress.show())
            clients = [group.create_task(load.follow(client)) for client in range(polls)]
            await soon(lambda: progress.parked >= 0.99 * polls)
            progress.started = time.monotonic()
            await load.publish()
            await soon(lambda: load.lost() == 0)
            for client in clients:
                client.cancel()
                await asyncio.sleep(0.001)
            await soon(lambda: progress.parked == 0)
            showing.cancel()
        async with Connection(port) as connection:
            server = await connection.request("GET /report", expected=(200,))
    server["journal"] = dataset.dataset(f"{journal}/operations", format="parquet").count_rows()
    return report(load, progress.peak, server)


async def soon(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds, but not for long: the report tells whether it did."""
    for _ in range(500):
        if condition():
            break
        await asyncio.sleep(0.02)


def report(load: Load, peak: int, server: dict[str, Any]) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    tally = load.tally
    early, pending = server["early"], server["statistics"]["pending"]
    wrong = load.lost() + tally.out_of_order
    ended = sum(server["statistics"][outcome.value] for outcome in Outcome)
    rows = [
        ("parked at peak", f"{peak:,}", f"about {load.polls:,}", peak >= 0.95 * load.polls),
        ("answered by data", f"{tally.answered:,}", "some", tally.answered > 0),
        ("timed out", f"{tally.timed_out:,}", "some", tally.timed_out > 0),
        ("hung up", f"{tally.hung_up:,}", "some", tally.hung_up > 0),
        ("publish to answer, p50 / p99", in_ms(tally.latency, 0.5, 0.99), "", True),
        ("timeouts late, p50 / p99 / max", in_ms(server["lateness"], 0.5, 0.99, 1.0), "", True),
        ("early", f"{early:,}", "0", early == 0),
        ("lost, doubled or out of order", f"{wrong:,} of {sum(load.seen):,}", "0", wrong == 0),
        ("pending at the end", f"{pending:,}", "0", pending == 0),
        ("rows in the journal", f"{server['journal']:,}", f"{ended:,}", server["journal"] == ended),
    ]
    table = Table(caption=server["runs"])
    for heading in ("", "figure", "must be", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for what, figure, rule, holds in rows:
        table.add_row(what, figure, rule, "" if not rule else "[green]ok" if holds else "[bold red]NO")
    console.print(table)
    return all(holds for *_, holds in rows)


def in_ms(seconds: list[float], *quantiles: float) -> str:
    ranked = sorted(seconds) or [float("nan")]
    return " / ".join(f"{ranked[round(q * (len(ranked) - 1))] * 1e3:.1f}" for q in quantiles) + " ms"


def allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count and soft != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        except ValueError:
            sys.exit(f"{count} open files are needed, and the limit is {hard}; ask for fewer --polls")


def main() -> int:
    parser = argparse.ArgumentParser(description="Long polls against a real server.")
    parser.add_argument("--polls", type=int, default=2000, help="how many at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=25, help="how long (default: %(default)s)")
    parser.add_argument("--journal", metavar="FOLDER", help="where to leave the journal (default: nowhere)")
    options = parser.parse_args()
    allow_open_files(options.polls + 100)
    tame_collector()
    try:
        with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=new_event_loop) as runner:
            journal = options.journal or folder
            return 0 if runner.run(run(options.polls, options.seconds, journal)) else 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print("interrupted")
        return 130
    except (ExceptionGroup, OSError, EOFError) as exc:
        first = exc.exceptions[0] if isinstance(exc, ExceptionGroup) else exc
        console.print(f"failed: {first!r}", style="bold red", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
