"""Keys and faults at random, in virtual time.

The audit: nobody stays parked although its key moved, and flush() returns when the server has the keys.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from random import Random

from streams.virtual import play  # type: ignore[import-not-found]

from aiopurgatory.bus import Bus, BusClosedError
from aiopurgatory.bus.keys import decode

from .simulated import Connection, Network, Process

HEARTBEAT = TIMEOUT = 10.0
KEYS: list[Hashable] = ["a", "b", ("c", 1), ("c", 2)]


class Member(Process):
    """Notes for each key the version that its waiters saw when they were last checked.

    A check with a limit wakes so many waiters, of which each takes one version.
    """

    def __init__(self, network: Network, versions: dict[Hashable, int]) -> None:
        super().__init__(network, HEARTBEAT, TIMEOUT)
        self.versions, self.seen = versions, versions.copy()
        self.everything = 0

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        version = self.versions.get(key, 0)
        self.seen[key] = version if limit is None else min(version, self.seen[key] + limit)

    def notify_all(self) -> None:
        self.everything += 1
        self.seen.update(self.versions)


@dataclass
class Storm:
    """Three members.

    Args:
        keeps: messages that the server keeps; 0: it keeps none.
        loses: how often it loses the last of them when it is down; and at most how many.
        cuts: how often a link is cut before another fault.
        hides: without R4: the client library reconnects by itself, and the rules are not told.
    """

    keeps: int = 0
    loses: float = 0.0
    most_lost: int = 60
    cuts: float = 0.0
    hides: bool = False
    everything: int = 0
    gaps: int = 0

    def stuck(self, seeds: Iterable[int]) -> int:
        """Return how many waiters are stuck in the end, and how many flush() did not end or came early."""
        return sum(play(self._play(seed)) for seed in seeds)

    async def _play(self, seed: int) -> int:
        random.seed(seed)  # of pauses
        self._random = Random(seed)
        delay = lambda: self._random.choice((0.0, 0.0, 0.01, 0.1))  # noqa: E731
        self._network = network = Network(keeps=self.keeps, delay=delay, note=self._note)
        self._versions = versions = dict.fromkeys(KEYS, 0)
        self._noted, self._unflushed = versions.copy(), 0
        flushes = []
        async with AsyncExitStack() as stack:
            members = [Member(network, versions) for _ in range(3)]
            for member in members:
                await stack.enter_async_context(member.bus)
            for _ in range(100):
                await asyncio.sleep(self._random.choice((0.0, 0.01, 0.2)))
                key = self._random.choice(KEYS)
                versions[key] += 1
                bus = self._random.choice(members).bus
                bus.publish(key, limit=1 if versions[key] % 8 else None)
                flushes.append(asyncio.create_task(self._flush(bus, key)))
                if self._random.random() < 0.1:
                    self._fault()
            network.is_down = False
            for _ in range(5):
                await asyncio.sleep(HEARTBEAT + TIMEOUT)
            self.everything += sum(member.everything for member in members)
            self.gaps += sum(member.bus.statistics().gaps for member in members)
            parked = sum(member.seen[key] != versions[key] for member in members for key in KEYS)
            return parked + self._unflushed

    def _note(self, message: str) -> None:
        for line in message.split("\n")[1:]:
            if line.startswith("*"):
                self._noted.update(self._versions)
            elif not line.startswith("+"):
                self._noted[decode(line)] = self._versions.get(decode(line), 0)

    async def _flush(self, bus: Bus, key: Hashable) -> None:
        version = self._versions[key]
        self._unflushed += 1
        with suppress(BusClosedError):
            await bus.flush()
            self._unflushed -= self._noted[key] >= version

    def _fault(self) -> None:
        if self._random.random() < self.cuts:
            self._cut()
        match self._random.choice(("cut", "deaf", "mute", "down", "up")):
            case "cut":
                self._cut()
            case "down":
                self._network.go_down()
                if self._random.random() < self.loses:
                    del self._network.entries[-self._random.randint(1, self.most_lost) :]
            case "up":
                self._network.is_down = False
            case fault if self._network.links:
                link = self._random.choice(self._network.links)
                (link.listening if fault == "deaf" else link.publishing).is_swallowing = True

    def _cut(self) -> None:
        if self._network.links:
            link = self._random.choice(self._network.links)
            if self.hides:
                link.listening.is_open = link.publishing.is_swallowing = False
                link.listening = Connection(self._network)
            else:
                link.lost(ConnectionResetError("cut"))
