"""python benchmarks/bench_replay.py --json build/replay.json: measure the cost of RedisBus(replay=) for a publish.

Each round publishes keys one after another, each with a flush(), then in batches of 100, with replay and without it,
alternately, on one private Redis. The bus only publishes, and nobody listens. Prints a line of
JSON for each: the us per key, and the CPU us of the publisher and of the server. Then a table of medians, ranges and
ratios within the rounds. All processes share the machine.

Requires redis and redis-py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from buses.awake import cores_awake
from buses.servers import ENGINES, Server, cpu
from private_servers import program
from rounds import parser_of, printing, turns

from aiopurgatory.bus.redis import RedisBus

Figures = dict[str, float]

ROUNDS = 9


async def measure(server: Server, keys: int, batch: int, replay: int | None) -> Figures:
    name = f"aiopurgatory.{replay}"
    async with RedisBus(server.url(), name=name, replay=replay) as publisher:
        start, used, served = time.perf_counter(), time.process_time(), cpu(server)
        for number in range(0, keys, batch):
            for offset in range(batch):
                publisher.publish(("orders", number + offset))
            await publisher.flush()
        return {
            "round_trip_us": (time.perf_counter() - start) * 1e6 / keys,
            "publisher_cpu_us": (time.process_time() - used) * 1e6 / keys,
            "server_cpu_us": (cpu(server) - served) * 1e6 / keys,
        }


def lines(server: Server, rounds: int, keys: int, batch: int, replay: int) -> Iterator[dict[str, Any]]:
    for number in range(rounds + 1):
        for way in turns((replay, None), number):
            figures = asyncio.run(measure(server, keys, batch, way))
            if number:  # not the first: it warms up
                yield {"round": number, "batch": batch, "replay": "without" if way is None else "with", **figures}


def main() -> None:
    parser = parser_of(__doc__, ROUNDS)
    parser.add_argument("--keys", type=int, default=2_000, help="keys per round; default: 2000")
    parser.add_argument("--replay", type=int, default=10_000, help="messages that the server keeps; default: 10000")
    args = parser.parse_args()
    about = ["aiopurgatory", "redis", "hiredis"], [program("redis-server", "valkey-server")]
    with printing("replay", args, *about) as told, cores_awake(), ENGINES["redis"]() as server:
        for batch in (1, 100):
            told.lines(lines(server, args.rounds or ROUNDS, args.keys * min(batch, 10), batch, args.replay))


if __name__ == "__main__":
    main()
