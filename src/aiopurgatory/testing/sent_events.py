"""A client of server-sent events that runs the app in the event loop of the test."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, final
from urllib.parse import unquote

from ..errors import PurgatoryError
from ..lifecycle import Closing

Message = MutableMapping[str, Any]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

#: Bytes that a client which does not read leaves to the server, before that has the app wait.
_HIGH_WATER: Final = 65_536
#: Seconds of real time that the app has to end after the client has disconnected. Then it is cancelled.
GRACE: Final = 1.0
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: The event loop keeps only weak references to tasks.
_apps: Final[set[asyncio.Task[None]]] = set()


class SentEvent(NamedTuple):
    """A server-sent event as a browser dispatches it.

    Attributes:
        id: the last event id: that of this event, or of an earlier one if it has none; empty if there was none.
        event: its name; "message" if it has none.
        data: its lines, joined by newlines.
    """

    id: str
    event: str
    data: str


class RefusedError(PurgatoryError):
    """The app did not answer with a stream of events. Attributes: status, headers, body: the answer's."""

    def __init__(self, path: str, status: int, headers: dict[str, str], body: bytes) -> None:
        kind = headers.get("content-type", "no content-type")
        super().__init__(f"GET {path} was answered {status} ({kind}), not with events: {body[:1_000]!r}")
        self.status, self.headers, self.body = status, headers, body


def events(
    app: ASGIApp, path: str, *, headers: Mapping[str, str] | None = None, last_event_id: str | None = None
) -> SentEvents:
    """Return the server-sent events that *app* answers to GET *path*, as an async iterator.

        async with events(app, "/events/orders") as stream:
            assert await anext(stream) == ("0", "message", "[]")
            publish("orders")
            assert (await anext(stream)).data == "[1]"

    The app runs in a task of the running loop. (``httpx.ASGITransport`` collects the whole answer, so it never returns
    one.) Its lifespan is not run. Like a server, this takes 64 kB that nobody reads before it has the app wait.
    Comments, such as heartbeats, are skipped.

    Entering it waits until the answer has begun. To leave the block, to call ``aclose()``, or to drop the iterator
    disconnects the client. The app then has a second to end. After that it is cancelled, unless it was dropped.

    Args:
        app: an ASGI app, such as that of Starlette or FastAPI, or one endpoint.
        path: the path, with a query if there is one.
        headers: of the request; default: none but Host and Accept.
        last_event_id: the Last-Event-ID of a client that reconnects; None (default): none.

    Raises: RefusedError: while entering or iterating: the status is not 200, or the answer is no stream of events.
        Errors of the app are raised, too.
    """
    fields = {"host": "test", "accept": "text/event-stream", **(headers or {})}
    if last_event_id is not None:
        fields["last-event-id"] = last_event_id
    return SentEvents(app, path, [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()])


@final
class SentEvents(Closing):
    """The events of one request, see events(). Attributes: status, headers: of the answer, once it has begun."""

    def __init__(self, app: ASGIApp, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._app, self._path, self._headers = app, path, headers
        self._parser = _Parser()
        self._connection: _Connection | None = None
        self._is_closed = False
        self.status = 0
        self.headers: dict[str, str] = {}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SentEvent:
        if self._is_closed:
            raise StopAsyncIteration
        connection = await self._begun()
        while not self._parser.events:
            chunk = await connection.read()
            if not chunk:
                raise StopAsyncIteration
            self._parser.feed(chunk)
        return self._parser.events.popleft()

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def aclose(self) -> None:
        """Disconnect the client, and wait until the app has ended. A second call does nothing.

        Raises: errors of the app.
        """
        self._is_closed = True
        if self._connection is not None:
            await self._connection.aclose()

    def __del__(self) -> None:
        if self._connection is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._connection.loop.call_soon_threadsafe(self._connection.disconnect)

    async def _begun(self) -> _Connection:
        connection = self._connection
        if connection is None:
            connection = self._connection = _Connection(self._app, _scope(self._path, self._headers))
        if not self.status:
            start = await connection.started()
            self.status = start["status"]
            self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
            if self.status != 200 or not self.headers.get("content-type", "").startswith("text/event-stream"):
                body = b""
                while chunk := await connection.read():
                    body += chunk
                await self.aclose()
                raise RefusedError(self._path, self.status, self.headers, body)
        return connection


def _scope(path: str, headers: list[tuple[bytes, bytes]]) -> Message:
    raw_path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # as of uvicorn: send() to a client that left does nothing
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("test", 80),
    }


@final
class _Connection:
    """The messages between the app and its client. The app's task does not keep the client alive."""

    def __init__(self, app: ASGIApp, scope: Message) -> None:
        self.loop = asyncio.get_running_loop()
        self._start: Message | None = None
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._is_asked = self._is_told = False
        #: Something has come for the client; there is room for more; the client has left, or has all of the answer.
        self._news, self._room, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] = asyncio.ensure_future(_run(app, scope, self._receive, self._send))
        _apps.add(self._task)
        self._task.add_done_callback(_apps.discard)
        self._task.add_done_callback(lambda _: self._news.set())

    # the client

    async def started(self) -> Message:
        """Wait until the answer has begun. Raises: errors of the app; RuntimeError: it ended without an answer."""
        while self._start is None:
            if self._task.done():
                self._raise()
                raise RuntimeError("the app has ended without an answer")
            await self._next_news()
        return self._start

    async def read(self) -> bytes:
        """Wait for a part of the body. Returns: nothing at the end. Raises: errors of the app."""
        while not self._chunks:
            if self._over.is_set() or self._task.done():
                self._raise()
                return b""
            await self._next_news()
        chunk = self._chunks.popleft()
        self._unread -= len(chunk)
        self._room.set()
        return chunk

    def disconnect(self) -> None:
        self._chunks.clear()
        for event in (self._over, self._room, self._news):
            event.set()

    async def aclose(self) -> None:
        self.disconnect()
        if not self._task.done():
            await asyncio.wait([self._task], timeout=GRACE)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._raise()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _raise(self) -> None:
        """Raise the app's error, once."""
        if self._task.done() and not self._task.cancelled() and not self._is_told:
            self._is_told = True
            self._task.result()

    # the app

    async def _receive(self) -> Message:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._over.is_set():
            return
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            if body := message.get("body", b""):
                self._chunks.append(bytes(body))
                self._unread += len(body)
            if not message.get("more_body", False):
                self._over.set()
        self._news.set()
        while self._unread > _HIGH_WATER and not self._over.is_set():
            self._room.clear()
            await self._room.wait()
        await asyncio.sleep(0)  # an app that does nothing but send must not stop the loop


async def _run(app: ASGIApp, scope: Message, receive: Any, send: Any) -> None:
    await app(scope, receive, send)


class _Parser:
    """Reads events as the HTML standard has browsers do it."""

    def __init__(self) -> None:
        self.events: deque[SentEvent] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._was_cr = False
        self._id = self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> None:
        text = self._decoder.decode(chunk)
        if not text:
            return
        if self._was_cr and text.startswith("\n"):  # the other half of a line end
            text = text[1:]
        self._was_cr = text.endswith("\r")
        *lines, self._rest = _LINE_END.split(self._rest + text)
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        if not line:
            self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value

    def _dispatch(self) -> None:
        if self._data:
            self.events.append(SentEvent(self._id, self._event or "message", "\n".join(self._data)))
        self._event = ""
        self._data.clear()
