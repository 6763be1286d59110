"""python benchmarks/fleet.py --compiled build/compiled --json fleet.json: how many workers and machines a fleet takes.

Measures 1, 2, 4 and 8 workers on a bus that share the polls and the events: CPU time of a worker and of the server, and
memory of a parked poll. A model (buses/model.py) is fitted to the runs of 1, 2 and 4 and to a busier run of 2, and
checked against the run of 8. A table then gives fleets for 1, 10 and 100 million polls; each assumption has an option.

Prints a line of JSON for each run, round by round, then the tables. The memory measured here is an operation's.
The table uses a poll's over HTTP, measured by ``bench_http.py memory``. Keep --events low: all workers and the
server share this machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from statistics import mean
from typing import Any

from buses.awake import cores_awake
from buses.model import Assumptions
from buses.processes import Fleet
from buses.servers import ENGINES, Server, about, installed
from rounds import chosen, parser_of
from tables import fleets
from tables.machine import Printer
from tables.results import Results

Line = dict[str, Any]


@dataclass(frozen=True)
class Size:
    rounds: int = 3
    workers: tuple[int, ...] = (1, 2, 4, 8)
    polls: int = 10_000
    #: Per second, of all workers together; None: EVENTS.
    events: float | None = None
    seconds: float = 8.0
    #: Events per second of one more run with two workers: each costs less on busy cores.
    busy: float = 1_500.0
    #: Seconds without events, to measure a worker and the server by themselves.
    idle_seconds: float = 4.0


#: With these, 8 workers and the server take 30 to 40 % of two cores. With more, messages gather on PostgreSQL, and each
#: costs less than the model says: 20 % at 500, 35 % at 800. With less, Redis takes too little to be measured.
EVENTS = {"postgres": 300.0, "redis": 500.0}
QUICK = Size(rounds=1, seconds=3.0, idle_seconds=2.0)
SMOKE = Size(rounds=1, workers=(1, 2), polls=100, events=100.0, seconds=0.5, busy=200.0, idle_seconds=0.3)


def measure(server: Server, workers: int, size: Size) -> Iterator[Line]:
    with Fleet(server, workers, size.polls) as fleet:
        memory = mean(each["bytes_per_poll"] for each in fleet.ask_all("report"))
        rate = size.events or EVENTS[server.kind]
        rates = [(0.0, size.idle_seconds), (rate, size.seconds), *[(size.busy, size.seconds)] * (workers == 2)]
        for events, seconds in rates:
            found = fleet.watch(events, seconds)
            shares = {name: found[name] for name in ("events_per_second", "worker_share", "server_share")}
            asked = {
                "cores": os.cpu_count(),
                "workers": workers,
                "events": events,
                "heartbeat": fleet.config["heartbeat"],
            }
            yield {"engine": server.kind, "form": found["form"], **asked, **shares, "bytes_per_poll": memory}


def arguments() -> tuple[argparse.Namespace, dict[str, float]]:
    """Return the arguments, and the assumptions that were given."""
    parser = parser_of(__doc__, Size.rounds)
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--events", type=float, help="events per second of all workers together; default: 300 or 500")
    assumed = parser.add_argument_group("assumptions of the table")
    for field in fields(Assumptions):
        default = fleets.OF_ENGINE.get(field.name, field.default)
        assumed.add_argument(f"--{field.name.replace('_', '-')}", type=float, help=f"default: {default}")
    args = parser.parse_args()
    given = {field.name: getattr(args, field.name) for field in fields(Assumptions)}
    return args, {name: value for name, value in given.items() if value is not None}


def main() -> None:
    args, assumed = arguments()
    if args.compiled:
        os.environ["PYTHONPATH"] = os.path.abspath(args.compiled)
    size = chosen(args, Size(), QUICK, SMOKE, "events")
    engines = installed(args.engine)
    with cores_awake(), Printer("fleets", args.json) as told:
        told.machine(*about(engines))
        for number in range(size.rounds):
            for engine in engines:
                for workers in size.workers:
                    with ENGINES[engine]() as server:
                        told.lines({"round": number, **line} for line in measure(server, workers, size))
    if not args.lines:
        print(fleets.markdown(Results(told.found).where(table="fleets"), assumed))


if __name__ == "__main__":
    main()
