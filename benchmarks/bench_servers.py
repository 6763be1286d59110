"""python benchmarks/bench_servers.py --json build/servers.json: waits for the results of arq's and taskiq's jobs.

1,000 jobs are waited for at once, in the package's own way, which polls, and with the wait of examples/servers. Each
run is a process of its own beside a private Redis and a worker process; they take turns. Measures the ms from the end
of a job until its waiter has the result, the client's CPU seconds, and the Redis commands of all for each wait.

Prints a line of JSON for each, then medians with their ranges. arq and taskiq run in environments of their own
(``make test-servers`` makes them), with the interpreted library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from buses.servers import ENGINES
from private_servers import program
from rounds import parser_of, printing, turns

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "servers"

Line = dict[str, Any]

ROUNDS = 3


def measure(python: str, package: str, wait: str) -> Line:
    command = [python, str(HERE / "peers" / "job_results.py"), package, wait]
    with ENGINES["redis"]() as redis:
        environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
        done = subprocess.run([*command, redis.url()], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    return {"package": package, "wait": wait, **json.loads(done.stdout), "load_average": os.getloadavg()[0]}


def lines(pythons: dict[str, str], rounds: int) -> Iterator[Line]:
    for number in range(rounds):
        for package, python in pythons.items():
            for wait in turns(("theirs", "ours"), number):
                yield {"round": number, **measure(python, package, wait)}


def main() -> None:
    parser = parser_of(__doc__, ROUNDS)
    parser.add_argument("--arq", default=".venv-arq/bin/python", help="the Python with arq")
    parser.add_argument("--taskiq", default=".venv-servers/bin/python", help="the Python with taskiq")
    args = parser.parse_args()
    with printing("servers", args, ["aiopurgatory"], [program("redis-server", "valkey-server")]) as told:
        told.lines(lines({"arq": args.arq, "taskiq": args.taskiq}, args.rounds or ROUNDS))


if __name__ == "__main__":
    main()
