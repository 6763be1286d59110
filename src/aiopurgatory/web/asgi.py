"""What an ASGI app needs to hold long polls, under any server: put it around Starlette, FastAPI, Litestar, Quart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar, cast, final

from ..errors import PurgatoryClosedError
from ..purgatory import Purgatory
from .listening import Listener, Message, Receive, listen
from .stopping import on_stop_signal

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NO_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}

#: Bytes of a body that are read before the app asks for them: no more, so that a server can slow down its client.
READ_AHEAD = 1 << 16
#: What a message counts for beside its body: a stand-in for a server may have one for whoever asks, without end.
_MESSAGE = 1 << 10


@final
class LongPollApp:
    """*app*, with handlers that are cancelled when their client leaves, and polls that are answered when it stops.

        app = LongPollApp(Starlette(routes=[...]), purgatory)

    Or, as the last one that is added, ``app.add_middleware(LongPollApp, purgatory=purgatory)``. It must be outside of
    Starlette's BaseHTTPMiddleware, behind which nothing is heard of the client.

    A client that leaves: no server cancels a handler for that. It shows in ``receive()`` alone, which is listened to
    here, beside the app, from when the handler first has to wait until it begins to answer: what comes of a body
    meanwhile is kept for the handler, and with READ_AHEAD bytes unread, listening pauses.

    A server that stops: *purgatory* is closed at once, which ends everything in it. Under uvicorn, and hypercorn
    without worker processes, that is when the signal comes. Hypercorn's workers get none: their polls are answered 503
    when the server cancels them, after its ``graceful_timeout``; from Python 3.12 on it does so on uvloop alone, and on
    asyncio waits for them to end (hypercorn #308). A server in a thread that is not the main one gets none, either:
    close the purgatory yourself.

    Args:
        purgatory: started with the app (lifespan, or the first request), closed with it.

    Cost: for a request that has to wait about 1.5 kB (under servers other than uvicorn and hypercorn, a task more); for
    one that has not, two calls.
    """

    def __init__(self, app: ASGIApp, purgatory: Purgatory) -> None:
        self._app = app
        self._purgatory = purgatory
        self._forget_signals: Callable[[], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http":
            if self._forget_signals is None:
                await self._open()
            exchange = _Exchange(receive, send)
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except asyncio.CancelledError:
                if await exchange.cancelled_by_server():
                    raise
            finally:
                exchange.end()
        else:
            await self._app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._purgatory.start()
        await self._app(scope, receive, send)  # an app that knows no lifespan raises, and may be served all the same
        self._purgatory.close()
        if self._forget_signals is not None:
            self._forget_signals()

    async def _open(self) -> None:
        """With the first request: by then every server has installed its signal handlers, and nobody is parked yet."""
        self._forget_signals = on_stop_signal(self._purgatory.close)
        with suppress(PurgatoryClosedError):  # polls are told so
            await self._purgatory.start()


class _Exchange:
    """One request while its app runs. Its client is listened to beside the app, which is cancelled when it leaves."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_answering",
        "_arrived",
        "_cancelled",
        "_left",
        "_listener",
        "_listening",
        "_loop",
        "_readers",
        "_receive",
        "_send",
        "_soon",
        "_task",
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._ahead: tuple[Message, ...] = ()  # read before the app asked for them
        self._ahead_bytes = 0
        self._readers: tuple[asyncio.Task[Any] | None, ...] = ()  # the app's, that wait for a message
        self._answering = False
        self._left = False  # the client
        self._cancelled = False  # the app, for that
        self._listener: Listener | None = None
        self._listening = False
        self._arrived: tuple[asyncio.Future[None], ...] = ()  # of readers that wait for what the listener hears
        # On the next turn of the loop, which comes only if the app has to wait. If not, this is all that it costs.
        self._soon: asyncio.Handle | None = self._loop.call_soon(self._listen)

    async def receive(self) -> Message:
        reader = asyncio.current_task()
        self._readers += (reader,)
        try:
            while not self._ahead and self._listening:
                await self._arrival()
            if self._ahead:
                message, *rest = self._ahead
                self._ahead = tuple(rest)
                self._ahead_bytes -= _weight(message)
            else:
                message = await self._receive()
            if message["type"] == "http.disconnect" and not self._answering:
                self._leave()
                await asyncio.sleep(0)  # here, if it is cancelled
            return message
        finally:
            self._readers = _without(self._readers, reader)
            if self._soon is None and not self._answering:  # one that was cancelled has kept nobody from leaving
                self._soon = self._loop.call_soon(self._listen)

    async def _arrival(self) -> None:
        arrived = self._loop.create_future()
        self._arrived += (arrived,)
        try:
            await arrived
        finally:
            self._arrived = _without(self._arrived, arrived)

    def send(self, message: Message) -> Awaitable[None]:
        self._answering = True
        return self._send(message)

    def _listen(self) -> None:
        self._soon = None
        busy = self._answering or self._left or self._readers or self._listening
        if not busy and self._ahead_bytes < READ_AHEAD:
            self._listening = True
            self._listener = listen(self._receive, self._heard)

    def _heard(self, message: Message | None) -> bool:
        if message is not None:
            # A poll waits for long and has no body: the message that they all share is two hundred bytes less for each.
            self._ahead += (_NO_BODY if message == _NO_BODY else message,)
            self._ahead_bytes += _weight(message)
            if message["type"] == "http.disconnect":
                if not self._answering:
                    self._leave()
                self._left = True
        stop = message is None or self._left or self._answering
        self._listening = not stop and self._ahead_bytes < READ_AHEAD
        for arrived in self._arrived:
            if not arrived.done():
                arrived.set_result(None)
        return self._listening

    def _leave(self) -> None:
        """Cancel the app; but one that listens in a task of its own is told, and knows better (Quart)."""
        if not self._left and all(reader is self._task for reader in self._readers):
            self._cancelled = True
            self._task.cancel()
        self._left = True

    async def cancelled_by_server(self) -> bool:
        """Its patience with the app is over, and it would answer 500. Returns: False if it was for the client alone."""
        if not self._left and not self._answering:
            retry_after = str(random.randint(1, 3)).encode()
            headers = [(b"retry-after", retry_after), (b"cache-control", b"no-store"), (b"content-length", b"0")]
            await self.send({"type": "http.response.start", "status": 503, "headers": headers})
            await self.send({"type": "http.response.body", "body": b""})
        return not self._cancelled or self._task.cancelling() > 1

    def end(self) -> None:
        self._answering = True
        if self._soon is not None:
            self._soon.cancel()
        if self._listener is not None:
            self._listener.cancel()
        if self._cancelled:
            self._task.uncancel()
        # They hold this object, and it them: cut, so that no request waits for the garbage collector.
        self._soon = self._listener = None


def _weight(message: Message) -> int:
    return _MESSAGE + len(message.get("body", b""))


def _without(items: tuple[T, ...], one: T) -> tuple[T, ...]:
    """Without the first that is *one*."""
    at = items.index(one)
    return items[:at] + items[at + 1 :]
