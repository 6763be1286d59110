"""A process with parked polls and a bus: python -m bus.worker and its settings as JSON, see fleet.py.

All workers share a table of versions in a file: each key is written by one of them, and watched by all. Commands come
on stdin, a line each; the answers go to stdout as JSON.

The audit: a poll is parked although its key moved, if the version that it saw is not the one in the table.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import sys
import time
from dataclasses import asdict
from random import Random
from typing import Any

from aiopurgatory import Purgatory

from .servers import bus_on
from .waits import LOOPS

#: Bytes of a key's version in the table.
ROW = 8


class Worker:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.number, self.workers = config["number"], config["workers"]
        with open(config["table"], "r+b") as file:
            self.versions = memoryview(mmap.mmap(file.fileno(), ROW * config["keys"])).cast("q")
        #: The version of each key that its poll has seen.
        self.seen = self.versions.tolist()
        self.random = Random(self.number)
        self.rate = 0.0
        self.woken_by_others = 0
        self.purgatory = Purgatory("polls")

    async def poll(self, key: int) -> None:
        while True:
            self.seen[key] = self.versions[key]
            await self.purgatory.wait_for(lambda: self.has_moved(key), [self.key(key)], timeout=600.0)
            self.woken_by_others += key % self.workers != self.number

    def has_moved(self, key: int) -> bool:
        return bool(self.versions[key] != self.seen[key])

    def key(self, number: int) -> tuple[str, int, str]:
        return ("orders", number, "x" * int(self.config["padding"]))

    async def run(self) -> None:
        async with self.purgatory:
            tasks = [asyncio.create_task(self.poll(key)) for key in range(self.config["keys"])]
            await asyncio.sleep(0)
            print(json.dumps("parked"), flush=True)
            await self.command()  # polls are parked before the first connection
            options = {"heartbeat": self.config["heartbeat"], "timeout": self.config["timeout"]}
            if self.config["replay"]:
                options["replay"] = self.config["replay"]
            async with bus_on(self.config["url"], [self.purgatory], **options) as self.bus:
                tasks.append(asyncio.create_task(self.publish()))
                print(json.dumps("ready"), flush=True)
                while (words := await self.command())[0] != "quit":
                    print(json.dumps(self.answer(*words)), flush=True)
                for task in tasks:
                    task.cancel()

    async def command(self) -> list[str]:
        line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        return line.split() or ["quit"]

    def answer(self, word: str, argument: str = "0") -> object:
        match word:
            case "rate":
                self.rate = float(argument)
                return None
            case "block":
                time.sleep(float(argument))  # the whole loop
                return None
            case "publish":
                self.publish_one(int(argument))
                return None
        parked = sum(map(self.has_moved, range(self.config["keys"])))
        return asdict(self.bus.statistics()) | {"parked": parked, "woken": self.woken_by_others}

    async def publish(self) -> None:
        due = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            now = time.monotonic()
            due = max(due, now - 0.1)
            while self.rate and due < now:
                due += 1 / self.rate
                key = self.random.randrange(self.config["keys"] // self.workers) * self.workers + self.number
                self.publish_one(key)

    def publish_one(self, key: int) -> None:
        self.versions[key] += 1
        self.bus.publish(self.key(key))


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    # Every other worker runs on uvloop, if there is one.
    with asyncio.Runner(loop_factory=[*LOOPS.values()][config["number"] % len(LOOPS)]) as runner:
        runner.run(Worker(config).run())
