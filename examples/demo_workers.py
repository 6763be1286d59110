"""Long polls in three worker processes that share a bus, for about 40 s: make demo-workers.

    python examples/demo_workers.py [--engine postgres|redis] [--seconds 30] [--polls 300]

demo_workers_server.py starts a private PostgreSQL or Redis, and ``uvicorn --workers 3`` with longpoll_postgres.py or
longpoll_redis.py. This process runs the clients, and publishers that post to any worker. It exits with 0 if every
figure is as expected.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # Ctrl-C while the rest is imported

import argparse
import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from demo_display import (
    Progress,
    Row,
    allow_open_files,
    console,
    exit_code,
    form,
    in_ms,
    quantile,
    under_load,
    verdict,
)
from demo_load import Connection
from demo_workers_load import Worker, WorkersLoad, connect_to_all
from demo_workers_server import ENGINES, WORKERS, Engine
from private_servers import free_port
from rich.table import Table

PATIENCE = 60.0  # seconds for the server and its workers to start
#: Seconds. Without a bus, half of the answers in other workers come a second or more after the event, by timeout.
WOKEN = 0.5


@contextlib.contextmanager
def server_process(script: str, engine: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run *script*, which starts a database, and workers on *port*, within the block."""
    # Ctrl-C does not reach their process group. They stop when the stdin of the first one is closed.
    command = [sys.executable, str(Path(__file__).with_name(script)), engine, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0) as process:
        yield process


async def until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for the server. Raises: ConnectionError: it has ended, or does not start."""
    end = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionError):
            async with Connection(port):
                return
        if process.poll() is not None or time.monotonic() > end:
            raise ConnectionError(f"there is no server on port {port}; the output above may say why")
        await asyncio.sleep(0.05)


async def run(engine: Engine, name: str, polls: int, seconds: float) -> bool:
    """Run the demo. Returns: whether every figure is as expected."""
    port = free_port()
    console.print(f"Starting a private {engine.name} and {WORKERS} workers. Ctrl-C ends them.")
    async with AsyncExitStack() as stack:
        process = stack.enter_context(server_process("demo_workers_server.py", name, port))
        await until_served(port, process)
        async with asyncio.timeout(PATIENCE):
            publishers = await connect_to_all(stack, port, WORKERS)
        console.print(f"{polls:,} clients long-poll http://127.0.0.1:{port}/topics/0 and others for {seconds:g} s.")
        load = WorkersLoad(port, polls, seconds, publishers)

        async def waiting() -> int:
            return load.waiting

        progress = Progress(load, waiting)
        await under_load(load, progress)
    show_workers(load.workers)
    return report(load, progress.peak, f"{form()}, {engine.name}, uvicorn --workers {WORKERS}")


def show_workers(workers: dict[int, Worker]) -> None:
    table = Table(caption="which process answered, and which one published")
    table.add_column("worker")
    for heading in (
        "polls answered\nby events",
        "of these woken\nby other workers",
        "timed out",
        "published\nhere",
    ):
        table.add_column(heading, justify="right")
    for process, did in sorted(workers.items()):
        figures = (did.answered, did.woken, did.timed_out, did.published)
        table.add_row(f"process {process}", *(f"{figure:,}" for figure in figures))
    console.print(table)


def report(load: WorkersLoad, peak: int, runs: str) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    tally = load.tally
    all_did = sum(bool(did.answered and did.woken and did.timed_out and did.published) for did in load.workers.values())
    received, events = sum(map(len, load.seen)), sum(map(len, load.published))
    lost, doubled, out_of_order = load.lost(), load.doubled(), load.out_of_order()
    woken_p50 = quantile(load.woken_after, 0.5)
    rows: list[Row] = [
        ("polls at once, at peak", f"{peak:,}", f"about {load.polls:,}", peak >= 0.95 * load.polls),
        ("workers that did each of the above", f"{all_did} of {len(load.workers)}", f"{WORKERS}", all_did == WORKERS),
        ("hung up, and resumed anywhere", f"{tally.hung_up:,}", "some", tally.hung_up > 0),
        ("publish to answer in the same worker", in_ms(tally.latency, 0.5, 0.99), "", True),
        ("in another worker, p50", in_ms(load.woken_after, 0.5), f"< {WOKEN * 1e3:.0f} ms", woken_p50 < WOKEN),
        ("in another worker, p99", in_ms(load.woken_after, 0.99), "", True),
        ("events published", f"{events:,}", "some", events > 0),
        ("lost", f"{lost:,} of {received + lost:,}", "0", lost == 0),
        ("doubled", f"{doubled:,}", "0", doubled == 0),
        ("out of order", f"{out_of_order:,}", "0", out_of_order == 0),
    ]
    return verdict(rows, runs)


def installed(wanted: list[str]) -> str:
    """Return the first engine of *wanted* that is installed. Exits if there is none."""
    for name in wanted:
        if ENGINES[name].is_installed:
            return name
    names = " nor ".join(ENGINES[name].name for name in wanted)
    sys.exit(
        f"{'neither ' if len(wanted) > 1 else 'no '}{names} is installed; `make programs` does that, by apt as root"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Long polls in several worker processes.")
    parser.add_argument("--engine", choices=ENGINES, help="default: postgres if it is installed, else redis")
    parser.add_argument("--polls", type=int, default=300, help="polls at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="duration of the load (default: %(default)s)")
    options = parser.parse_args()
    name = installed([options.engine] if options.engine else list(ENGINES))
    allow_open_files(options.polls + 100)
    return exit_code(partial(run, ENGINES[name], name, options.polls, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
