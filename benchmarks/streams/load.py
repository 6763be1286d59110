"""python -m streams.load SETTINGS: listeners that note when each event arrives.

They read bytes and look for lines of data, so that their own cost is small.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from array import array
from functools import partial
from typing import Any, cast

import uvloop
from buses import member

AT = re.compile(rb'data: {"at": ([0-9.]+),')


class Listener(asyncio.Protocol):
    def __init__(self, load: Load, topic: str) -> None:
        self.load, self.topic = load, topic
        self.rest = b""
        self.is_answered = False
        self.got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"GET /{self.topic} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        cast(asyncio.Transport, transport).write(request.encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.is_answered = True
        lines, _, self.rest = (self.rest + data).rpartition(b"\n")
        for at in AT.findall(lines):
            self.got += 1
            self.load.latencies.append(now - float(at))

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.lost += 1


class Load:
    """Args: config: the server's ``port``."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.port: int = config["port"]
        self.listeners: list[Listener] = []
        self.transports: list[asyncio.BaseTransport] = []
        self.latencies = array("d")
        self.lost = 0

    async def run(self) -> None:
        member.more_files()
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        member.calm_the_collector()
        while line := await commands.readline():
            name, *arguments = json.loads(line)
            print(json.dumps(await getattr(self, f"do_{name}")(*arguments)), flush=True)

    async def do_listen(self, topics: list[str], each: int, replayed: bool) -> float:
        """Open *each* connections for each of *topics*, and wait until they are answered.

        Args: replayed: whether each gets the events that are there.
        Returns: how many seconds that took.
        """
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        for _ in range(each):
            for topic in topics:
                transport, listener = await loop.create_connection(
                    partial(Listener, self, topic), "127.0.0.1", self.port
                )
                self.listeners.append(listener)
                self.transports.append(transport)
        while not all(listener.got if replayed else listener.is_answered for listener in self.listeners):
            if time.monotonic() > start + 60.0:
                raise TimeoutError("not every listener is answered")
            await asyncio.sleep(0.05)
        return time.monotonic() - start

    async def do_leave(self) -> None:
        for transport in self.transports:
            transport.close()
        await asyncio.sleep(0.3)
        self.listeners.clear()
        self.transports.clear()
        self.lost = 0

    async def do_report(self) -> dict[str, Any]:
        """Arrivals since the last report: how much, and sorted milliseconds at shares of it."""
        found = sorted(self.latencies)
        del self.latencies[:]
        shares = {f"p{share}_ms": found[len(found) * share // 100] * 1e3 for share in (50, 99)} if found else {}
        least = min((listener.got for listener in self.listeners), default=0)
        most = max((listener.got for listener in self.listeners), default=0)
        for listener in self.listeners:
            listener.got = 0
        return {
            "delivered": len(found),
            "least": least,
            "most": most,
            "lost": self.lost,
            "cpu": time.process_time(),
            **shares,
        }


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Load(json.loads(sys.argv[1])).run())
