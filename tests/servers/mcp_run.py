"""python mcp_run.py BUS ENGINE FAULT: 40 MCP clients listen to 25 notes each, while 1,000 notes are edited.

Three workers are behind a proxy that takes them in turn. FAULT happens to the server of the bus meanwhile: killed (for
3 s), cut (6 times), dead (all bytes on the open connections are lost) or none. Prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from mcp import Client
from private_proxy import Proxy
from private_servers import DurableRedis, Postgres, Server

WORKER = Path(__file__).with_name("mcp_worker.py")

CLIENTS, NOTES, WORKERS, WRITERS = 40, 25, 3, 8
#: Seconds over which the notes are edited, and until the fault.
DURATION, UNTIL_FAULT = 10.0, 2.0
#: Seconds without an event after which nothing more is expected, once all is well again.
QUIET = 6.0


class Balance(Proxy):
    """Forwards connections to *ports* in turn."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(ports[0])
        self._turns = itertools.cycle(ports)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.target = next(self._turns)
        await super()._accept(reader, writer)


async def fault(kind: str, server: Server, proxy: Proxy) -> None:
    await asyncio.sleep(UNTIL_FAULT)
    if kind == "killed":
        server.kill()
        await asyncio.sleep(3.0)
        await asyncio.to_thread(server.start)
    elif kind == "cut":
        for _ in range(6):
            proxy.cut()
            await asyncio.sleep(0.7)
    elif kind == "dead":
        proxy.swallow()


class Run:
    def __init__(self) -> None:
        self.edited: dict[str, float] = {}
        self.events: Counter[str] = Counter()
        self.late: dict[str, float] = {}
        self.newest = time.monotonic()
        self.errors = 0
        self.listening = 0
        self.all_listen = asyncio.Event()

    async def listen(self, url: str, client: int) -> None:
        notes = [f"note://{client}/{number}" for number in range(NOTES)]
        async with Client(url) as mcp, mcp.listen(resource_subscriptions=notes) as events:
            self.listening += 1
            if self.listening == CLIENTS:
                self.all_listen.set()
            async for event in events:
                self.newest = now = time.monotonic()
                note: Any = getattr(event, "uri", None)
                if note in self.edited:
                    self.events[note] += 1
                    self.late.setdefault(note, now - self.edited[note])
                else:
                    self.events["too early"] += 1

    async def write(self, url: str, notes: list[str]) -> None:
        start = time.monotonic()
        async with Client(url) as mcp:
            for at, note in enumerate(notes):
                await asyncio.sleep(max(0.0, start + DURATION * at / len(notes) - time.monotonic()))
                self.edited[note] = time.monotonic()
                try:
                    answer = await mcp.call_tool("edit", {"uri": note})
                    self.errors += answer.is_error
                except Exception:
                    self.errors += 1

    async def play(self, url: str, kind: str, server: Server, proxy: Proxy) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            listeners = [group.create_task(self.listen(url, client)) for client in range(CLIENTS)]
            await self.all_listen.wait()
            notes = [f"note://{client}/{number}" for number in range(NOTES) for client in range(CLIENTS)]
            async with asyncio.TaskGroup() as writing:
                writing.create_task(fault(kind, server, proxy))
                for writer in range(WRITERS):
                    writing.create_task(self.write(url, notes[writer::WRITERS]))
            while (left := self.newest + QUIET - time.monotonic()) > 0:  # noqa: ASYNC110 it moves
                await asyncio.sleep(left)
            for listener in listeners:
                listener.cancel()
        late = list(self.late.values())
        return {
            "missed": len(notes) - len(late),
            "beyond": sum(self.events.values()) - len(late),
            "errors": self.errors,
            "p50_ms": round(median(late) * 1000, 1),
            "max_ms": round(max(late) * 1000, 1),
        }


async def workers(kind: str, url: str, stack: AsyncExitStack) -> list[int]:
    """Start the workers. Returns: their ports."""
    ports = []
    for _ in range(WORKERS):
        worker = await asyncio.create_subprocess_exec(sys.executable, str(WORKER), kind, url, stdout=subprocess.PIPE)
        stack.callback(worker.kill)
        assert worker.stdout is not None
        ports.append(int(await worker.stdout.readline()))
    return ports


async def main(kind: str, engine: str, what: str) -> None:
    # A Redis that loses its data makes every listener be told of everything.
    with (DurableRedis if engine == "redis" else Postgres)() as server:
        async with Proxy(server.port) as proxy, AsyncExitStack() as stack:
            ports = await workers(kind, server.url(proxy.port), stack)
            balance = await stack.enter_async_context(Balance(ports))
            url = f"http://127.0.0.1:{balance.port}/mcp"
            await asyncio.sleep(3.0)  # the workers' buses connect
            found = await Run().play(url, what, server, proxy)
    print(json.dumps({"bus": kind, "engine": engine, "fault": what} | found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
