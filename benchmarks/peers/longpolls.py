"""python longpolls.py COMPETITOR LOOP FD: serve long polls, waiting as COMPETITOR does.

GET /{topic}, If-None-Match: "N"    200, the version and its ETag, when the topic is past N; else 304 after 300 s
POST /{topic}                       the next version

Do our own mistakes decide the result? The peers do less: "event" notices no client that leaves ("listening" does), and
neither spreads its waits. On Python 3.11, their wait_for() makes a task for each wait: 1.5 us more than
``asyncio.timeout()``.
"""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import sys
from collections import defaultdict
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import LongPolling, LongPollRoute, Policy

WAIT = 300.0
PREFERRED = re.compile(r"\bwait=(\d+)")


class Topics:
    def __init__(self) -> None:
        self.versions: defaultdict[str, int] = defaultdict(int)

    def publish(self, topic: str) -> None:
        self.versions[topic] += 1

    def version(self, topic: str) -> str:
        return str(self.versions[topic])

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        return version.encode()

    def answer(self, topic: str, known: str) -> Response:
        """The answers of a handler written by hand."""
        version = self.version(topic)
        tag = f'"{version}"'
        headers = {"etag": tag, "cache-control": "no-store", "vary": "Prefer"}
        if tag == known:
            return Response(status_code=304, headers=headers)
        return Response(self.read(topic, known, version), headers=headers, media_type="application/json")


class Events(Topics):
    """An asyncio.Event per topic and wait_for(): a timeout, but nobody notices a client that leaves.

    It waits as long as ``Prefer: wait`` says, as ours, but does not echo that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, asyncio.Event] = {}

    async def poll(self, request: Request) -> Response:
        topic, known = request.path_params["topic"], request.headers.get("if-none-match", "")
        if known == f'"{self.version(topic)}"':
            preferred = PREFERRED.search(request.headers.get("prefer", ""))
            wait = min(float(preferred[1]), WAIT) if preferred else WAIT
            with suppress(TimeoutError):
                await asyncio.wait_for(self.events.setdefault(topic, asyncio.Event()).wait(), wait)
        return self.answer(topic, known)

    def publish(self, topic: str) -> None:
        super().publish(topic)
        event = self.events.pop(topic, None)
        if event is not None:
            event.set()


class Listening(Events):
    """The same, with a task for each poll that ends it when its client leaves."""

    async def poll(self, request: Request) -> Response:
        task = asyncio.current_task()
        assert task is not None

        async def listen() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            task.cancel()

        listening = asyncio.create_task(listen())
        try:
            return await super().poll(request)
        except asyncio.CancelledError:
            if not listening.done():
                raise
            return Response(status_code=499)  # nobody reads it; the server would log the error
        finally:
            listening.cancel()


class Ours(Topics):
    """aiopurgatory.web, all of it: the timeout, and the client that leaves; the policy's jitter, too."""

    def __init__(self) -> None:
        super().__init__()
        self.polling = LongPolling(Purgatory("polls"), self, policy=Policy(max_wait=WAIT))
        self.poll = LongPollRoute(self.polling)

    def publish(self, topic: str) -> None:
        super().publish(topic)
        self.polling.notify(topic)


COMPETITORS: dict[str, Any] = {"ours": Ours, "event": Events, "listening": Listening}


def make_app(competitor: str) -> Starlette:
    topics = COMPETITORS[competitor]()

    async def publish(request: Request) -> Response:
        topics.publish(request.path_params["topic"])
        return Response()

    routes = [Route("/{topic}", topics.poll, methods=["GET"]), Route("/{topic}", publish, methods=["POST"])]
    return Starlette(routes=routes)


def main() -> None:
    competitor, loop, descriptor = sys.argv[1:]
    config = uvicorn.Config(make_app(competitor), loop=loop, http="httptools", log_level="error", access_log=False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the README advises
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(descriptor))])


if __name__ == "__main__":
    main()
