"""A process that publishes events at a rate, and measures how long its own and others' events take to arrive.

It takes commands on stdin, each a line of JSON, ``[name, argument, ...]``, and answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import aiopurgatory

from .events import Events, random_key, writer

FORM = "compiled" if aiopurgatory.COMPILED else "interpreted"


class Member(ABC):
    """Args: config: its ``number`` of ``workers``, the ``table`` of events, its ``keys``, and the server's ``url``."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.number: int = config["number"]
        self.workers: int = config["workers"]
        self.keys: int = config["keys"]
        self.events = Events(config["table"], self.keys)
        self.random = Random(self.number)
        self.published = 0
        self.local, self.remote = array("d"), array("d")
        self._publishing: asyncio.Task[None] | None = None

    @abstractmethod
    async def connect(self, stack: AsyncExitStack) -> None:
        """Enter into *stack* each context to be left at the end."""

    @abstractmethod
    def publish(self, key: int) -> None: ...

    def more(self) -> dict[str, Any]:
        """More figures to report, beside latencies and CPU time."""
        return {}

    async def run(self) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        async with AsyncExitStack() as stack:
            await self.connect(stack)
            calm_the_collector()
            print(json.dumps("ready"), flush=True)
            while line := await commands.readline():
                name, *arguments = json.loads(line)
                answer = await getattr(self, f"do_{name}")(*arguments)
                print(json.dumps(answer), flush=True)
            self.stop_publishing()

    # commands

    async def do_rate(self, rate: float) -> None:
        """Publish *rate* events per second from now on."""
        self.stop_publishing()
        if rate:
            self._publishing = asyncio.create_task(self._publish_at(rate))

    async def do_report(self) -> dict[str, Any]:
        """The figures since the last report. Latencies are in us; CPU time is what the process has used so far."""
        told = {name: [round(each * 1e6, 1) for each in getattr(self, name)] for name in ("local", "remote")}
        del self.local[:], self.remote[:]
        return {**told, "cpu": time.process_time(), "published": self.published, "form": FORM, **self.more()}

    # for subclasses

    def stop_publishing(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None

    def arrived(self, key: int) -> None:
        latencies = self.local if writer(key, self.workers) == self.number else self.remote
        latencies.append(time.monotonic() - self.events.stamps[key])

    async def _publish_at(self, rate: float) -> None:
        """Publish at gaps of 0.5 to 1.5 times the mean, so that events rarely wait for the one before."""
        due = time.monotonic()
        while True:
            due = max(due + self.random.uniform(0.5, 1.5) / rate, time.monotonic() - 0.1)
            await asyncio.sleep(due - time.monotonic())
            key = random_key(self.random, self.keys, self.workers, self.number)
            self.events.stamps[key] = time.monotonic()
            self.events.versions[key] += 1
            self.published += 1
            self.publish(key)


def calm_the_collector() -> None:
    """As the README advises."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def loop_factory(name: str = "uvloop") -> Callable[[], asyncio.AbstractEventLoop]:
    """That of uvloop, if it is wanted and installed."""
    if name == "uvloop":
        with suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop
    return asyncio.new_event_loop


def memory(field: str = "VmRSS", process: object = "self") -> int:
    """Return bytes of memory, as the kernel counts them for *process*."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def more_files() -> None:
    """Allow as many open files as the system does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(kind: type[Member]) -> None:
    """The process's whole life. Its settings are its argument, as JSON."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(kind(json.loads(sys.argv[1])).run())
