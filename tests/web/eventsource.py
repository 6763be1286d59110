"""Streams of events, and long polls, as their clients see them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.web import EventAnswer, EventRoute, LongPolling, Policy

from .exchange import EMPTY, Messages
from .polls import Counters, settle, until

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

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.events]

    @property
    def data(self) -> list[str]:
        return [event.data for event in self.events]

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


def parsed(*chunks: bytes) -> list[Event]:
    parser = Parser()
    for chunk in chunks:
        parser.feed(chunk)
    return parser.events


class Client(Parser):
    """A client of *app* without a server: it can stop reading, and leave."""

    def __init__(self, app: App, resource: str = "n", query: str = "", method: str = "GET", **headers: str) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        #: The message that the server holds until the client reads on.
        self.unread: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._messages = Messages(EMPTY)
        scope = {
            "type": "http",
            "method": method,
            "path": f"/{resource}",
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(app(scope, self._messages.receive, self._send))

    async def leave(self) -> None:
        self.hang_up()
        await self.ended()

    def hang_up(self) -> None:
        self._messages.leave()

    async def ended(self) -> None:
        await asyncio.wait_for(self.task, 5)

    async def got(self, count: int) -> list[Event]:
        """The events, as soon as there are *count*."""
        await until(lambda: len(self.events) >= count)
        return self.events

    async def polled(self) -> list[dict[str, Any]]:
        """The events in the answer to a long poll of a log."""
        await self.ended()
        assert self.status == 200, (self.status, self.body)
        found: list[dict[str, Any]] = json.loads(self.body)
        return found

    async def read_one(self) -> None:
        """Take the bytes on their way, and none that come later."""
        self.reads.set()
        self.reads.clear()
        await settle()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert not self.complete
        self.unread.append(message["body"])
        await self.reads.wait()
        self.unread.remove(message["body"])
        self.body += message["body"]
        if self.headers.get("content-type") == "text/event-stream":
            self.feed(message["body"])
        self.complete = not message.get("more_body", False)


async def leave(*clients: Client) -> None:
    for client in clients:
        await client.leave()


def through(app: App, receive: Any = None, send: Any = None) -> App:
    """*app*, on a server whose functions are these."""
    return lambda scope, theirs, ours: app(scope, receive or theirs, send or ours)


class Forgets(Counters):
    """Cannot go on from the versions that are *gone*."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = set[str | None]()

    def read(self, resource: str, since: str | None, version: str) -> bytes:
        if since in self.gone:
            raise GoneError(f"{since} is gone")
        return super().read(resource, since, version)


class Streams:
    """Streams of one EventRoute, and a publisher."""

    def __init__(self, purgatory: Purgatory, source: Any, **settings: Any) -> None:
        """Args: settings: of the route, or of the policy."""
        self.source = source
        route = {
            name: settings.pop(name) for name in {"resource", "since", "keys", "client", "group"} & settings.keys()
        }
        self.purgatory = purgatory
        self.clients: list[Client] = []
        self.polling = LongPolling[str](purgatory, source, policy=Policy(**settings))
        self.route = EventRoute(self.polling, **route)

    async def start(self, resource: str = "n", **headers: str) -> Client:
        self.clients.append(Client(self.route, resource, **headers))
        await settle()
        return self.clients[-1]

    async def answer(self, resource: str = "n", last_event_id: str | None = None, **more: Any) -> EventAnswer:
        """A stream of a handler of one's own."""
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        return await self.polling.events(resource, headers, **more)

    async def publish(self, resource: str = "n") -> None:
        self.source.values[resource] = self.source.values.get(resource, 0) + 1
        self.polling.notify(resource)
        await settle()
