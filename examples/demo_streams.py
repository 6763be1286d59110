"""Runs, streamed to listeners by three worker processes, while a worker and the server are killed: make demo-streams.

    python examples/demo_streams.py [--store redis|postgres] [--seconds 24] [--listeners 200]

demo_streams_server.py starts a private Redis, which keeps all acknowledged data, or a PostgreSQL, and
``uvicorn --workers 3``. Ten runs at a time have 20 tokens a second. This process listens to them over HTTP. It closes
connections and resumes, kills a worker by SIGKILL, and has the server killed and started again. At the end, it compares
each listener's events with those stored. It exits with 0 if every figure is as expected.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # Ctrl-C while the rest is imported

import argparse
import asyncio
import os
import subprocess
import time
from contextlib import AsyncExitStack
from functools import partial

from demo_display import Progress, Row, allow_open_files, console, exit_code, form, in_ms, soon, verdict
from demo_streams_load import RUNS, StreamsLoad, Worker
from demo_workers import PATIENCE, installed, server_process, until_served
from demo_workers_load import connect_to_all
from demo_workers_server import ENGINES, WORKERS
from private_servers import free_port
from rich.table import Table

#: Seconds for the listeners to learn the end of the last runs.
LAST_ENDS = 30.0


class StreamsProgress(Progress):
    def line(self) -> str:
        tally = self.load.tally
        return (
            f"{self.elapsed():4.0f} s: {self.parked:,} listeners, {tally.answered:,} tokens delivered "
            f"({self.answered_per_second():.0f}/s), {tally.hung_up:,} hung up"
        )

    def display(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=18)
        grid.add_column(justify="right")
        grid.add_row("listeners now", f"[bold]{self.parked:,}")
        grid.add_row(
            "tokens delivered", f"[bold green]{self.load.tally.answered:,}", f"{self.answered_per_second():.0f}/s"
        )
        grid.add_row("hung up", f"[bold magenta]{self.load.tally.hung_up:,}")
        grid.add_row("elapsed", f"{max(self.elapsed(), 0.0):.0f} s of {self.load.seconds:g}")
        return grid


async def run(store: str, listeners: int, seconds: float) -> bool:
    """Run the demo. Returns: whether every figure is as expected."""
    port = free_port()
    console.print(f"Starting a private {ENGINES[store].name} and {WORKERS} workers. Ctrl-C ends them.")
    async with AsyncExitStack() as stack:
        process = stack.enter_context(server_process("demo_streams_server.py", store, port))
        await until_served(port, process)
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as connections:
            await connect_to_all(connections, port, WORKERS, "GET /")
        load = StreamsLoad(port, listeners, seconds)
        console.print(f"{listeners:,} clients listen to {RUNS} runs of http://127.0.0.1:{port}/runs for {seconds:g} s.")

        async def listening() -> int:
            return load.listening

        progress = StreamsProgress(load, listening)
        await under_faults(load, progress, process)
    show_workers(load.workers, load.killed)
    return report(load, progress.peak, f"{form()}, {ENGINES[store].name}, uvicorn --workers {WORKERS}")


async def under_faults(load: StreamsLoad, progress: Progress, process: subprocess.Popen[bytes]) -> None:
    """Listen, kill a worker after a third of the time, and the server after two thirds. Then read the stored events."""
    assert process.stdin is not None
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(progress.show())
        tasks = [group.create_task(load.produce(place)) for place in range(RUNS)]
        tasks += [group.create_task(load.follow(listener)) for listener in range(load.polls)]
        await soon(lambda: load.listening >= 0.9 * load.polls)
        progress.started = time.monotonic()
        await asyncio.sleep(load.seconds / 3)
        load.killed = max(load.workers, key=lambda worker: load.workers[worker].streams)
        console.print(f"      kill -9 {load.killed}, a worker")
        os.kill(load.killed, signal.SIGKILL)
        await asyncio.sleep(load.seconds / 3)
        console.print("      kill -9 the server, and start it again")
        process.stdin.write(b"r")
        process.stdin.flush()
        await asyncio.sleep(load.seconds / 3)
        load.is_over = True
        _, late = await asyncio.wait(tasks, timeout=LAST_ENDS)
        for task in late:
            task.cancel()
        async with asyncio.timeout(PATIENCE):
            await load.read_stored()
        showing.cancel()


def show_workers(workers: dict[int, Worker], killed: int | None) -> None:
    table = Table(caption="which process produced, and which one delivered")
    table.add_column("worker")
    for heading in ("runs", "streams", "tokens\ndelivered", "of these, of\nother workers"):
        table.add_column(heading, justify="right")
    for process, did in sorted(workers.items()):
        figures = (did.runs, did.streams, did.delivered, did.of_others)
        note = ", killed" if process == killed else ""
        table.add_row(f"process {process}{note}", *(f"{figure:,}" for figure in figures))
    console.print(table)


def report(load: StreamsLoad, peak: int, runs: str) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    tally, ends = load.tally, load.ends()
    did = sum(bool(each.runs and each.of_others) for each in load.workers.values())
    other = load.ended_otherwise()
    lost, doubled, out_of_order, hanging = load.lost(), load.doubled(), load.out_of_order(), load.hanging()
    gone = sum(heard.gone for heard in load.heard)
    rows: list[Row] = [
        ("listeners at once, at peak", f"{peak:,}", f"about {load.polls:,}", peak >= 0.8 * load.polls),
        ("workers that produced and delivered", f"{did}", f"at least {WORKERS}", did >= WORKERS),
        ("runs done", f"{ends['done']:,}", "some", ends["done"] > 0),
        ("runs abandoned, of the killed worker", f"{ends['abandoned']:,}", "some", ends["abandoned"] > 0),
        ("runs that ended otherwise", f"{other}", "0", other == 0),
        ("runs stored with a gap", f"{load.incomplete()}", "0", load.incomplete() == 0),
        ("hung up, and resumed anywhere", f"{tally.hung_up:,}", "some", tally.hung_up > 0),
        ("append to client, p50 / p99", in_ms(tally.latency, 0.5, 0.99), "", True),
        ("tokens delivered", f"{tally.answered:,}", "some", tally.answered > 0),
        ("lost", f"{lost:,}", "0", lost == 0),
        ("doubled", f"{doubled:,}", "0", doubled == 0),
        ("out of order", f"{out_of_order:,}", "0", out_of_order == 0),
        ("told that events are gone", f"{gone:,}", "0", gone == 0),
        ("hanging", f"{hanging:,}", "0", hanging == 0),
    ]
    return verdict(rows, runs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Event streams in several worker processes, under faults.")
    parser.add_argument(
        "--store", choices=("redis", "postgres"), help="default: redis if it is installed, else postgres"
    )
    parser.add_argument("--listeners", type=int, default=200, help="listeners at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=24, help="duration of the load (default: %(default)s)")
    options = parser.parse_args()
    store = installed([options.store] if options.store else ["redis", "postgres"])
    allow_open_files(2 * options.listeners + 100)
    return exit_code(partial(run, store, options.listeners, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
