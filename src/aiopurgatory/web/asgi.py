"""Long polls in an ASGI app: the wrapper around Starlette, FastAPI, Litestar or Quart, under any server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar, cast, final

from ..core.purgatory import parts_of
from ..purgatory import Purgatory
from .disconnect import Listener, Message, Receive, listen
from .signals import on_stop_signal

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NO_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}

#: Bytes of a body that are read before the app asks for them. No more, so that the server can slow down its client.
READ_AHEAD = 1 << 16
#: Bytes that a message counts beside its body: a test client may return a message to each call, without end.
_MESSAGE = 1 << 10


@final
class LongPollApp:
    """Wraps *app*: cancels a handler when its client disconnects, and answers every poll when the server stops.

        app = LongPollApp(Starlette(routes=[...]), purgatory)

    Or ``app.add_middleware(LongPollApp, purgatory=purgatory)``, added last: it must be outside of Starlette's
    BaseHTTPMiddleware, which hides disconnects.

    Disconnects: servers do not cancel a handler when its client disconnects. They only deliver ``http.disconnect``
    through ``receive()``. The wrapper calls it beside the app, from when the handler first has to wait until it begins
    to answer. The parts of a body that arrive meanwhile are kept for the handler; with READ_AHEAD bytes unread, the
    wrapper stops listening until some are read.

    Stopping: *purgatory* is closed as soon as the process gets SIGINT or SIGTERM, under uvicorn and under hypercorn
    without worker processes. Two servers give no notice:

    - Hypercorn's worker processes. Their polls are answered 503 when the server cancels them, after its
      ``graceful_timeout``. From Python 3.12 on, it does so on uvloop only; on asyncio it waits for the polls to end
      (hypercorn #308).
    - A server in a thread other than the main one: close the purgatory yourself.

    Args:
        purgatory: started by the app's lifespan or by the first request in an event loop, and closed by the lifespan.
            A purgatory that was closed is not started again by a request in the same loop.

    Cost: about 1.5 kB for a request that has to wait (under servers other than uvicorn and hypercorn, a task more); two
    calls for a request that does not.
    """

    def __init__(self, app: ASGIApp, purgatory: Purgatory) -> None:
        self._app = app
        self._purgatory = purgatory
        #: The loop in which stop signals close the purgatory, and the function that ends this.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget_signals: Callable[[], None] = _nothing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http":
            if self._loop is not asyncio.get_running_loop():
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
        await self._app(scope, receive, send)  # an app without lifespan raises, and may be served all the same
        self._purgatory.close()
        self._forget_signals()
        self._loop = None

    async def _open(self) -> None:
        """On the first request: by then every server has installed its signal handlers, and nothing is parked yet."""
        loop = asyncio.get_running_loop()
        if parts_of(self._purgatory).loop.running is not loop:  # else it is open, or was closed on purpose
            await self._purgatory.start()
        self._forget_signals()
        self._loop, self._forget_signals = loop, on_stop_signal(self._purgatory.close)


def _nothing() -> None:
    pass


class _Exchange:
    """One request while the app handles it. Listens for the client's disconnect, and cancels the app's task then."""

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
        self._ahead: tuple[Message, ...] = ()  # messages read before the app asked for them
        self._ahead_bytes = 0
        self._readers: tuple[asyncio.Task[Any] | None, ...] = ()  # the app's tasks inside receive()
        self._answering = False  # the app has begun to answer
        self._left = False  # the client has disconnected
        self._cancelled = False  # the app's task was cancelled for that
        self._listener: Listener | None = None
        self._listening = False
        self._arrived: tuple[asyncio.Future[None], ...] = ()  # one for each reader that waits for the listener
        # On the next loop iteration, which comes only if the app has to wait. If it need not, this is the whole cost.
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
                await asyncio.sleep(0)  # if the app is cancelled, then here
            return message
        finally:
            self._readers = _without(self._readers, reader)
            if self._soon is None and not self._answering:  # a reader that was cancelled may have missed a disconnect
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
            # Most polls have no body. One message shared by them all saves two hundred bytes for each.
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
        """Cancel the app's task, unless another task of the app is inside receive() and will see it (Quart)."""
        if not self._left and all(reader is self._task for reader in self._readers):
            self._cancelled = True
            self._task.cancel()
        self._left = True

    async def cancelled_by_server(self) -> bool:
        """Answer 503 if the server has cancelled the app, since the server itself would answer 500.

        Returns: False if the app was cancelled only because the client disconnected.
        """
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
        # They refer to this object, and it to them: cut the cycle, so that no request needs the garbage collector.
        self._soon = self._listener = None


def _weight(message: Message) -> int:
    return _MESSAGE + len(message.get("body", b""))


def _without(items: tuple[T, ...], one: T) -> tuple[T, ...]:
    """*items* without the first that equals *one*."""
    at = items.index(one)
    return items[:at] + items[at + 1 :]
