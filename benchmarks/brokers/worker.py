"""python -m brokers.worker {"broker": "ours", ...}: a broker; prints its port, then answers each command on stdin.

A command is a line of JSON, ``["calm"]`` or ``["report"]``; so is its answer. When stdin ends, the broker is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

from broker.replication import Settings
from broker.server import Broker, BrokerSettings
from buses.member import calm_the_collector, loop_factory

import aiopurgatory
from aiopurgatory import Observer, Outcome

from .with_event import EventBroker

BROKERS: Final[dict[str, type[Broker]]] = {"ours": Broker, "event": EventBroker}


class Parkings(Observer):
    """Counts the operations that had to wait."""

    def __init__(self) -> None:
        self.parked = 0

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.parked += waited > 0


class Worker:
    """Args: config: ``broker``, ``partitions`` of a new topic, ``settings`` of partitions; ``counts``: of parkings."""

    def __init__(self, config: dict[str, Any]) -> None:
        partition = Settings(**config["settings"])
        settings = BrokerSettings(partitions=config["partitions"], partition=partition)
        self.parkings = Parkings()
        self.broker = BROKERS[config["broker"]](settings, [self.parkings] if config.get("counts") else [])

    async def run(self) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        await self.broker.start()
        print(json.dumps(self.broker.port), flush=True)
        while line := await commands.readline():
            (name,) = json.loads(line)
            print(json.dumps(getattr(self, f"do_{name}")()), flush=True)
        await self.broker.close()

    def do_calm(self) -> None:
        """Exempt all current objects from garbage collection. Called when topics are made and clients wait."""
        calm_the_collector()

    def do_report(self) -> dict[str, Any]:
        """CPU time in seconds and counts, so far."""
        form = "compiled" if aiopurgatory.COMPILED else "interpreted"
        found: dict[str, Any] = {"cpu": time.process_time(), "form": form, "loop": _loop()}
        found["parked"] = self.parkings.parked
        for purgatory in self.broker.purgatories:
            counts = purgatory.statistics()
            for name in ("completed", "expired", "pending", "checks", "checks_without_effect"):
                found[f"{counts.name}_{name}"] = getattr(counts, name)
        return found


def _loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(Worker(json.loads(sys.argv[1])).run())


if __name__ == "__main__":
    main()
