"""python benchmarks/bench_replay.py: measure the cost of RedisBus(replay=) for a publish.

Each round publishes keys one after another, each with a flush(), then in batches of 100, with replay and without it,
alternately, on one private Redis. The bus only publishes, and nobody listens. Prints, for each: the
median and the range over the rounds of the seconds per key, and of the CPU seconds of the publisher and of the server,
and the ratio of the medians. All processes share the machine.

Requires redis and redis-py.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median

from buses.awake import cores_awake
from buses.servers import ENGINES, Server, cpu

from aiopurgatory.bus.redis import RedisBus

Figures = dict[str, float]


async def measure(server: Server, keys: int, batch: int, replay: int | None) -> Figures:
    name = f"aiopurgatory.{replay}"
    async with RedisBus(server.url(), name=name, replay=replay) as publisher:
        start, used, served = time.perf_counter(), time.process_time(), cpu(server)
        for number in range(0, keys, batch):
            for offset in range(batch):
                publisher.publish(("orders", number + offset))
            await publisher.flush()
        return {
            "round trip": (time.perf_counter() - start) / keys,
            "CPU, publisher": (time.process_time() - used) / keys,
            "CPU, server": (cpu(server) - served) / keys,
        }


async def rounds(server: Server, count: int, keys: int, batch: int, replay: int) -> None:
    found: dict[int | None, list[Figures]] = {None: [], replay: []}
    for number in range(count + 1):
        for way in (None, replay) if number % 2 else (replay, None):
            figures = await measure(server, keys, batch, way)
            if number:  # not the first: it warms up
                found[way].append(figures)
    for what in found[None][0]:
        without, with_it = ([figures[what] * 1e6 for figures in found[way]] for way in (None, replay))
        shown = [f"{median(each):7.1f} ({min(each):.1f} to {max(each):.1f})" for each in (without, with_it)]
        ratio = median(with_it) / median(without) if median(without) else float("nan")
        print(f"{batch:4} per flush  {what:28} without {shown[0]:28} with {shown[1]:28} us  x {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keys", type=int, default=2_000, help="keys per round; default: 2000")
    parser.add_argument("--replay", type=int, default=10_000, help="messages that the server keeps; default: 10000")
    args = parser.parse_args()
    with cores_awake(), ENGINES["redis"]() as server:
        for batch in (1, 100):
            asyncio.run(rounds(server, args.rounds, args.keys * min(batch, 10), batch, args.replay))


if __name__ == "__main__":
    main()
