"""2,000 long polls at once against a real server, for about 30 s: make demo, or python examples/demo.py

Two processes on 127.0.0.1: demo_server.py runs the app of longpoll_server.py under uvicorn, and this one runs the
clients and the publisher. It exits with 0 if every figure is as expected.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # Ctrl-C while the rest is imported

import argparse
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_display import Progress, allow_open_files, console, exit_code, in_ms, under_load, verdict
from demo_load import Connection, Load
from pyarrow import dataset

from aiopurgatory import Outcome


@contextlib.contextmanager
def server_process(journal: str) -> Iterator[int]:
    """Run a server within the block. It writes its journal to the folder *journal*. Yields: its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        # Ctrl-C does not reach its process group. It stops when its stdin is closed.
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("demo_server.py")), str(listener.fileno()), journal],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            process_group=0,
        )
        port = listener.getsockname()[1]
    with process:
        yield port


async def run(polls: int, seconds: float, journal: str) -> bool:
    """Run the demo. Returns: whether every figure is as expected."""
    with server_process(journal) as port:
        console.print(f"Live page: http://127.0.0.1:{port}/purgatory/, metrics for Prometheus: /metrics/")
        console.print(f"{polls:,} clients long-poll a server for {seconds:g} s, and a publisher posts. Ctrl-C ends it.")
        load = Load(port, polls, seconds)
        async with Connection(port) as connection:

            async def parked() -> int:
                statistics = await connection.request("GET /statistics", expected=(200,))
                return int(statistics.json["pending"])

            progress = Progress(load, parked)
            await under_load(load, progress)
        async with Connection(port) as connection:
            server = (await connection.request("GET /report", expected=(200,))).json
    server["journal"] = dataset.dataset(f"{journal}/operations", format="parquet").count_rows()
    return report(load, progress.peak, server)


def report(load: Load, peak: int, server: dict[str, Any]) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    tally = load.tally
    early, pending = server["early"], server["statistics"]["pending"]
    wrong = load.lost() + load.out_of_order
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
    return verdict(rows, server["runs"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Long polls against a real server.")
    parser.add_argument("--polls", type=int, default=2000, help="polls at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=25, help="duration of the load (default: %(default)s)")
    parser.add_argument("--journal", metavar="FOLDER", help="keep the journal in this folder (default: delete it)")
    options = parser.parse_args()
    allow_open_files(options.polls + 100)
    with TemporaryDirectory() as folder:
        return exit_code(partial(run, options.polls, options.seconds, options.journal or folder))


if __name__ == "__main__":
    sys.exit(main())
