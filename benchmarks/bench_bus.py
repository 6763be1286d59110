"""python benchmarks/bench_bus.py --compiled build/compiled --json bus.json: measure the key bus.

    wake    time from publish to the end of a poll in another process, 10,000 parked, 1,000 events per second, 2
            workers; the same within one process; and the messages alone through the client library
    flood   rate of keys that nobody watches, from one process to another at full speed, and the receiver's CPU time
    gap     time until a listening connection that no longer receives is noticed: heartbeat 1 s, timeout 1 s
    turn    the longest loop iteration when 100,000 waiting operations are checked after a gap, and all end
    fault   polls still parked although their key moved, after kill -9 of the server, twice

Prints a line of JSON for each, round by round, then the targets, and medians with their ranges. The servers are private
ones on free ports. Each process uses uvloop, if it is installed, and sets the garbage collector as the README advises.
All processes share the machine with the server: with two cores, latencies include waiting for a core. Cores are kept
awake by processes that yield to all others (buses/awake.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from buses.awake import cores_awake
from buses.processes import Fleet
from buses.servers import ENGINES, Server, about, installed
from rounds import child, chosen, parser_of, printing
from tables.machine import Printer

Line = dict[str, Any]


@dataclass(frozen=True)
class Size:
    rounds: int = 3
    polls: int = 10_000
    events: float = 1_000.0
    seconds: float = 6.0
    waiters: int = 100_000
    #: Connections made deaf; seconds of heartbeat, and of timeout.
    times: int = 6
    heartbeat: float = 1.0
    #: Kills of the server.
    kills: int = 2
    #: Keys between two flushes of a flood, and batches published ahead of their acknowledgement.
    batch: int = 4_000
    ahead: int = 1


QUICK = Size(rounds=1, seconds=2.0)
SMOKE = Size(
    rounds=1, polls=200, events=200.0, seconds=0.3, waiters=1_000, times=1, heartbeat=0.2, kills=1, batch=500, ahead=0
)


def percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return a percentile of sorted *values*."""
    return {f"{name}_p{share}_us": values[len(values) * share // 100] for share in (50, 99)}


def wake(server: Server, size: Size) -> Iterator[Line]:
    """Measure latencies of the bus, then of the client library with the same messages at the same rate."""
    with Fleet(server, 2, size.polls) as fleet:
        found = fleet.watch(size.events, size.seconds)
    line = {**percentiles("bus", found["remote"]), **percentiles("local", found["local"])}
    line["ratio"] = line["bus_p50_us"] / line["local_p50_us"]
    with Fleet(server, 2, size.polls, "buses.bare", bare=server.kind) as fleet:
        alone = fleet.watch(size.events, size.seconds)
    line |= percentiles("library", alone["remote"]) | {"library_worker_share": alone["worker_share"]}
    line["own_share_us"] = line["bus_p50_us"] - line["library_p50_us"]
    shares = {name: found[name] for name in ("worker_share", "server_share", "events_per_second")}
    yield {"what": "wake", "engine": server.kind, "form": found["form"], **line, **shares}


def flood(server: Server, size: Size) -> Iterator[Line]:
    """Measure distinct keys, each of which is decoded; then 1,000 repeated keys, which stay decoded."""
    for what, distinct, batch, ahead in (
        ("flood", sys.maxsize, size.batch, size.ahead),
        ("flood, 1,000 keys", 1_000, 1_000, 0),
    ):
        with Fleet(server, 2, size.polls) as fleet:
            sender, receiver = fleet.processes
            receiver.ask("report")
            before, start = receiver.ask("report"), time.monotonic()
            published = sender.ask("flood", size.seconds / 2, batch, ahead, distinct)
            while receiver.ask("received") < published:
                if time.monotonic() > start + size.seconds + 20:
                    raise RuntimeError(f"{published} keys were published, and {receiver.ask('received')} received")
                time.sleep(0.005)
            elapsed, after = time.monotonic() - start, receiver.ask("report")
        cpu = (after["cpu"] - before["cpu"]) / published
        line = {"keys_per_second": published / elapsed, "cpu_us_per_key": cpu * 1e6, "keys_per_flush": batch}
        yield {"what": what, "engine": server.kind, "form": after["form"], **line}


def gap(server: Server, size: Size) -> Iterator[Line]:
    settings = {"url": server.url(), "port": server.port, "times": size.times}
    found = alone("gap", {**settings, "heartbeat": size.heartbeat, "timeout": size.heartbeat})
    noticed = found["noticed_s"]
    line = {"fastest_s": noticed[0], "slowest_s": noticed[-1], "times": len(noticed)}
    yield {"what": "gap", "engine": server.kind, **line, "form": found["form"]}


def fault(server: Server, size: Size) -> Iterator[Line]:
    chance = random.Random(1)
    with Fleet(server, 2, size.polls, heartbeat=size.heartbeat, timeout=size.heartbeat) as fleet:
        fleet.set_rate(size.events)
        for _ in range(size.kills):
            time.sleep(chance.uniform(0.5, 1.5))
            server.kill()
            time.sleep(chance.uniform(0.1, 1.0))
            server.start()
        time.sleep(1.0)
        fleet.set_rate(0)
        deadline = time.monotonic() + 10.0  # longer than any gap, and any pause before an attempt to connect
        while True:
            last = fleet.ask_all("report")
            at_rest = all(each["connected"] and not each["outbox"] and not each["never_woken"] for each in last)
            if at_rest or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    line = {name: sum(each[name] for each in last) for name in ("published", "gaps", "never_woken")}
    yield {"what": "fault", "engine": server.kind, "form": last[0]["form"], **line, "kills": size.kills}


def turn(size: Size) -> Iterator[Line]:
    for what, awaited in (("turn", False), ("turn, awaited", True)):
        yield {"what": what, "engine": "", **alone("turn", {"waiters": size.waiters, "awaited": awaited})}


def alone(what: str, settings: Line) -> Line:
    """Measure in a process of its own."""
    found: Line = child(["-m", "buses.alone", what, json.dumps(settings)])
    return found


ON_SERVERS: dict[str, Callable[[Server, Size], Iterator[Line]]] = {
    "wake": wake,
    "flood": flood,
    "gap": gap,
    "fault": fault,
}


def measure(engines: Sequence[str], size: Size, chosen: Sequence[str], told: Printer) -> None:
    """Measure round by round, so that temporary disturbances of the machine affect all alike."""
    for number in range(size.rounds):
        for engine in engines:
            for what in filter(chosen.__contains__, ON_SERVERS):
                with ENGINES[engine]() as server:
                    told.lines({"round": number, **line} for line in ON_SERVERS[what](server, size))
        if "turn" in chosen:
            told.lines({"round": number, **line} for line in turn(size))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, Size.rounds)
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument(
        "--only", choices=[*ON_SERVERS, "turn"], action="append", help="only this measurement; may be repeated"
    )
    parser.add_argument("--batch", type=int, help="keys between two flushes of a flood; default: 4000")
    parser.add_argument("--ahead", type=int, help="batches published before earlier ones are acknowledged; default: 1")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.compiled:
        os.environ["PYTHONPATH"] = os.path.abspath(args.compiled)
    size = chosen(args, Size(), QUICK, SMOKE, "batch", "ahead")
    engines = installed(args.engine)
    with cores_awake(), printing("buses", args, *about(engines)) as told:
        measure(engines, size, args.only or [*ON_SERVERS, "turn"], told)


if __name__ == "__main__":
    main()
