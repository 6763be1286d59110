"""python benchmarks/bench_streams.py --compiled build/compiled --json build/streams.json: runs of events to listeners.

A server process appends 20 events per second to each of R runs. L listeners follow each, over HTTP: 10 x 10, 2 x 100
and 25 x 20. Competitors:

    RedisLog   ours: EventRoute(RedisLog(url))
    XREAD      sse-starlette, and `XREAD BLOCK` for each listener on a connection of its own
    MemoryLog  ours: EventRoute(MemoryLog())
    Queue      sse-starlette, and an asyncio.Queue for each listener: no replay, and nothing reaches other processes

Measures the CPU us of the server process, user and system, for each event that a listener gets, producers included; the
ms from before the append to the line at the listener; the server's memory for each idle listener; connections to Redis
while all listen; and Redis commands for each append, also inside scripts. Prints a line of JSON for each, round
by round, then the targets, and medians with their ranges.

Listeners are a process of their own, which reads no more than lines: load_cpu_share must stay below one core. All share
the machine with Redis. Both kinds of servers run on uvicorn with uvloop and httptools, with the collector as the README
advises. redis-py uses hiredis, if it is installed. Cores are kept awake (buses/awake.py).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from brokers.processes import python_path, started
from buses.awake import cores_awake
from buses.servers import ENGINES, Server, about, installed
from rounds import chosen, parser_of, printing, turns

Line = dict[str, Any]

PACKAGES = ["aiopurgatory", "hiredis", "httptools", "redis", "sse-starlette", "starlette", "uvicorn", "uvloop"]
NAMES = ("RedisLog", "XREAD", "MemoryLog", "Queue")
ON_REDIS = ("RedisLog", "XREAD")


@dataclass(frozen=True)
class Size:
    rounds: int = 3
    #: Runs, and listeners for each.
    cases: tuple[tuple[int, int], ...] = ((10, 10), (2, 100), (25, 20))
    rate: float = 20.0
    warm_up: float = 2.0
    seconds: float = 6.0
    settle: float = 1.0


SMOKE = Size(rounds=1, cases=((2, 3),), warm_up=0.3, seconds=0.7, settle=0.2)


class Admin:
    """Asks the Redis."""

    def __init__(self, url: str) -> None:
        import redis

        self.client: Any = redis.Redis.from_url(url)

    def connections(self) -> int:
        """Those of others."""
        return len(self.client.client_list()) - 1

    def commands(self) -> int:
        """Calls so far, without its own."""
        found = self.client.info("commandstats")
        own = ("cmdstat_info", "cmdstat_client|list")
        return sum(each["calls"] for name, each in found.items() if name not in own)

    def scripts(self) -> int:
        found = self.client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def measure_one(redis: Server | None, competitor: str, runs: int, each: int, size: Size) -> Line:
    topics = [f"run-{number}" for number in range(runs)]
    config = {"competitor": competitor, "url": "" if redis is None else redis.url()}
    with ExitStack() as stack:
        server = stack.enter_context(started("streams.server", config))
        port = server.answer()
        load = stack.enter_context(started("streams.load", {"port": port}))
        server.ask("begin", ["warm"])
        load.ask("listen", ["warm"], 20, competitor != "Queue")
        server.ask("rate", size.rate)
        time.sleep(size.settle)
        server.ask("rate", 0)
        load.ask("leave")
        server.ask("begin", topics)
        server.ask("calm")
        without = server.ask("report")
        seconds = load.ask("listen", topics, each, competitor != "Queue")
        time.sleep(size.settle)
        idle = server.ask("report")
        line: Line = {
            "kb_per_listener": (idle["rss"] - without["rss"]) / (runs * each) / 1024,
            "ms_to_connect_one": seconds / (runs * each) * 1e3,
        }
        admin = None if redis is None else Admin(redis.url())
        if admin is not None:
            line["connections"] = admin.connections()
        server.ask("rate", size.rate)
        time.sleep(size.warm_up)
        load.ask("report")
        start, before, load_before, appended = time.monotonic(), server.ask("report"), 0.0, 0
        load_before, appended = load.ask("report")["cpu"], server.ask("report")["appended"]
        commands = (admin.commands(), admin.scripts()) if admin is not None else (0, 0)
        time.sleep(size.seconds)
        after, found = server.ask("report"), load.ask("report")
        elapsed, appended = time.monotonic() - start, server.ask("report")["appended"] - appended
        if admin is not None:
            line["commands_per_append"] = (admin.commands() - commands[0]) / appended
            line["scripts_per_append"] = (admin.scripts() - commands[1]) / appended
        if found["lost"]:
            raise RuntimeError(f"{competitor}: {found['lost']} listeners lost their connection")
    cpu = after["cpu"] - before["cpu"]
    return {
        "form": after["form"],
        "cpu_us_per_event": cpu / max(found["delivered"], 1) * 1e6,
        "p50_ms": found.get("p50_ms", 0.0),
        "p99_ms": found.get("p99_ms", 0.0),
        **line,
        "appended_per_second": appended / elapsed,
        "delivered_per_second": found["delivered"] / elapsed,
        "least_delivered": found["least"],
        "most_delivered": found["most"],
        "server_cpu_share": cpu / elapsed,
        "load_cpu_share": (found["cpu"] - load_before) / elapsed,
        "load_average": os.getloadavg()[0],
    }


def lines(size: Size, names: Sequence[str]) -> Iterator[Line]:
    for number in range(size.rounds):
        for runs, each in size.cases:
            for name in turns(names, number):
                with ENGINES["redis"]() if name in ON_REDIS else nullcontext() as redis:
                    found = measure_one(redis, name, runs, each, size)
                yield {"round": number, "what": f"{runs} x {each}", "competitor": name, **found}


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, Size.rounds)
    parser.add_argument("--only", choices=NAMES, action="append", help="only this competitor; may be repeated")
    parser.add_argument("--case", action="append", metavar="RxL", help="only these runs and listeners; may be repeated")
    parser.add_argument("--seconds", type=float, help="duration of a measurement; default: 6")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    os.environ["PYTHONPATH"] = python_path(args.compiled)
    size = chosen(args, Size(), Size(rounds=1), SMOKE, "seconds")
    if args.case:
        pairs = (case.split("x") for case in args.case)
        size = replace(size, cases=tuple((int(runs), int(listeners)) for runs, listeners in pairs))
    engines = installed("redis")
    names = [name for name in args.only or NAMES if engines or name not in ON_REDIS]
    with cores_awake(), printing("streams", args, PACKAGES, about(engines)[1]) as told:
        told.lines(lines(size, names))


if __name__ == "__main__":
    main()
