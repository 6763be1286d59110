"""python -m streams.server SETTINGS: a uvicorn server of one competitor; its process also produces the events.

It takes commands on stdin, each a line of JSON, and answers each with one.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import uvicorn
import uvloop
from buses import member
from starlette.applications import Starlette
from starlette.routing import Route

from .apps import COMPETITORS

#: The size of a token of a model, with its JSON.
TEXT = "x" * 40


class Service:
    """Args: config: the ``competitor``, the ``url`` of its Redis, and the events per second of a run as ``rate``."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.app = COMPETITORS[config["competitor"]](config["url"])
        self.random = Random(1)
        self.appended = 0
        self.topics: list[str] = []
        self.producers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        member.more_files()
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        async with AsyncExitStack() as self.stack:
            await self.app.start(self.stack)
            listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
            routes = [Route("/{topic}", self.app.endpoint, methods=["GET"])]
            options: dict[str, Any] = {"http": "httptools", "log_level": "error", "access_log": False}
            server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), lifespan="off", **options))
            self.serving = asyncio.create_task(server.serve(sockets=[listener]))
            print(json.dumps(listener.getsockname()[1]), flush=True)
            while line := await commands.readline():
                name, *arguments = json.loads(line)
                answer = await getattr(self, f"do_{name}")(*arguments)
                print(json.dumps(answer), flush=True)
            await self.do_rate(0.0)
            os._exit(0)  # listeners are connected

    async def do_begin(self, topics: list[str]) -> None:
        """Begin runs, with an event each."""
        for topic in topics:
            await self.app.begin(topic, self.stack)
            await self.append(topic)
        self.topics = topics

    async def do_calm(self) -> None:
        member.calm_the_collector()

    async def do_rate(self, rate: float) -> None:
        """Append *rate* events per second to each run from now on."""
        for task in self.producers:
            task.cancel()
        self.producers = [asyncio.create_task(self.produce(topic, rate)) for topic in self.topics] if rate else []

    async def do_report(self) -> dict[str, Any]:
        times = os.times()
        return {
            "cpu": times.user + times.system,
            "rss": member.memory(),
            "appended": self.appended,
            "form": member.FORM,
        }

    async def append(self, topic: str) -> None:
        self.appended += 1
        await self.app.append(topic, f'{{"at": {time.monotonic():.6f}, "text": "{TEXT}"}}')

    async def produce(self, topic: str, rate: float) -> None:
        """Append at gaps of 0.5 to 1.5 times the mean. Events late by more than 0.1 s are left out."""
        due = time.monotonic() + self.random.random() / rate
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            await self.append(topic)
            due = max(due + self.random.uniform(0.5, 1.5) / rate, time.monotonic() - 0.1)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Service(json.loads(sys.argv[1])).run())
