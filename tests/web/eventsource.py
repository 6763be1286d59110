"""Streams of events as their clients see them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.web import EventRoute, LongPolling, Policy

from .polls import Counters, settle

App = Callable[[Any, Any, Any], Awaitable[None]]


class Event(NamedTuple):
    kind: str
    id: str
    data: str


class Parser:
    """Reads a stream of events as the HTML standard tells browsers to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        #: In milliseconds, each that was sent.
        self.retries: list[int] = []
        self.comments = 0
        self._rest = ""
        self._id = self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> None:
        *lines, self._rest = re.split(r"\r\n|\r|\n", self._rest + chunk.decode())
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "":
            if self._data:
                self.events.append(Event(self._kind or "message", self._id, "\n".join(self._data)))
            self._kind, self._data = "", []
        elif field == "":
            self.comments += 1
        elif field == "data":
            self._data.append(value)
        elif field == "event":
            self._kind = value
        elif field == "id":
            self._id = value
        else:
            assert field == "retry", f"{field!r} is no field of an event"
            self.retries.append(int(value))


class Client(Parser):
    """A client of *app* without a server: it can stop reading, and leave."""

    def __init__(self, app: App, resource: str = "n", *, method: str = "GET", **headers: str) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        #: The message that the server holds until the client reads on.
        self.unread: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.broken = False
        self._left = asyncio.Event()
        self._messages = [{"type": "http.request", "body": b"", "more_body": False}]
        scope = {
            "type": "http",
            "method": method,
            "path": f"/{resource}",
            "query_string": b"",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def send_body(self, parts: int) -> None:
        """Send the body in so many parts before its last."""
        self._messages += [{"type": "http.request", "body": b"x", "more_body": True}] * parts

    def leave(self) -> None:
        self._left.set()

    async def ended(self) -> None:
        await asyncio.wait([self.task], timeout=5)
        assert self.task.done(), "the stream goes on"
        await self.task

    async def read_one(self) -> None:
        """Take the bytes on their way, and none that come later."""
        self.reads.set()
        self.reads.clear()
        await settle()

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.broken:
            raise OSError("the connection is broken")
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert not self.complete
        self.unread.append(message["body"])
        await self.reads.wait()
        self.unread.remove(message["body"])
        self.feed(message["body"])
        self.complete = not message.get("more_body", False)


class Forgets(Counters):
    """Cannot go on from the versions that are *gone*."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str | None] = set()

    def read(self, resource: str, since: str | None, version: str) -> bytes:
        if since in self.gone:
            raise GoneError(f"{since} is gone")
        return super().read(resource, since, version)


class Streams:
    """Streams of one EventRoute, and a publisher."""

    def __init__(self, purgatory: Purgatory, counters: Counters, **settings: Any) -> None:
        """Args: settings: of the route, or of the policy."""
        self.counters = counters
        route = {
            name: settings.pop(name) for name in {"resource", "since", "keys", "client", "group"} & settings.keys()
        }
        self.polling = LongPolling(purgatory, counters, policy=Policy(**settings))
        self.route = EventRoute(self.polling, **route)

    async def start(self, resource: str = "n", **headers: str) -> Client:
        client = Client(self.route, resource, **headers)
        await settle()
        return client

    async def publish(self, resource: str = "n") -> None:
        self.counters.values[resource] = self.counters.values.get(resource, 0) + 1
        self.polling.notify(resource)
        await settle()
