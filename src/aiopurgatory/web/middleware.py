"""The ASGI middleware: one line that opens and closes a purgatory with its app, and answers what it refuses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, final

from ..clock import running_loop
from ..core.kit import core_of
from ..purgatory import Purgatory
from .answer import NO_STORE, PLAIN_TEXT, Answer, Refusals, UnreadBodyError
from .asgi import MAX_AFTER, Ended, Listen, Message, Receive, Scope, Send, next_message, send_answer
from .connected import Client, DisconnectedError, client
from .signals import close_on_stop

#: Bytes of a body to read ahead for the app while a block listens. Each message counts MESSAGE bytes more.
READ_AHEAD: Final = 64 << 10
MESSAGE: Final = 512
#: Seconds that a body may fill READ_AHEAD without being read: no disconnect is noticed behind it.
UNREAD: Final = 10.0


@final
class PurgatoryMiddleware:
    """A pure ASGI middleware for an app whose handlers await *purgatory*.

        app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)  # FastAPI and Starlette
        app = PurgatoryMiddleware(app, purgatory)                     # any other ASGI app

        @app.get("/next")
        async def next_job() -> str:
            async with while_connected():
                return await purgatory.wait_for(take, ["jobs"], timeout=25.0, on_undelivered=put)

    - It starts the purgatory with the app's lifespan, or with the first request if the server runs none. It closes it
      at the end of the lifespan.
    - SIGINT and SIGTERM close it earlier. Servers wait for handlers before they end the lifespan, so the waits must
      have ended by then. (Threads other than the main one get no signals: call ``purgatory.close()`` yourself.)
    - It answers 503 if a handler raises PurgatoryClosedError or PurgatoryFullError, alone or in an exception group. The
      answer has a ``Retry-After``, and in the header ``refused`` the reason: ``closed`` or ``full``. A
      DisconnectedError ends the request without a message in the log. Once an answer has begun, errors pass unchanged.
    - ``while_connected()`` needs no argument, and the body of the request can be read inside the block.

    Code outside of such a block is never cancelled. WebSockets and the scope pass unchanged.

    Some frameworks answer all exceptions themselves, before any middleware. The page "Long polls" lists what to write
    there.

    Args:
        app: the ASGI app.
        purgatory: the purgatory that its handlers await. For several, add the middleware several times.

    Raises: TypeError: *purgatory* is no Purgatory.

    Cost: 5 % of the instructions of the shortest request of Starlette under uvicorn. A request with a block, which
    keeps the body here, takes 7 % more.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], purgatory: Purgatory) -> None:
        if not isinstance(purgatory, Purgatory):
            raise TypeError(
                f"purgatory must be a Purgatory, got {purgatory!r}; a LongPolling opens and closes by itself, and of a "
                "log pass log.purgatory"
            )
        self._app = app
        self._purgatory = purgatory
        self._refusals = Refusals()
        #: The loop in which the purgatory was opened.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(scope, receive, send)
            return
        if self._loop is not asyncio.get_running_loop():
            await self._open()
        if kind != "http":
            await self._app(scope, receive, send)
            return
        inbox = Inbox(receive, send)
        token = client.set(inbox)
        try:
            await self._app(scope, inbox.receive, inbox.send)
        except Exception as exc:
            if inbox.has_begun:
                raise
            if isinstance(exc, DisconnectedError):
                answer: Answer | None = Answer(exc.status_code, exc.detail.encode(), [NO_STORE, PLAIN_TEXT])
            else:
                answer = self._refusals.answer_handler(exc)
            if answer is None:
                raise
            await send_answer(answer, send)
        finally:
            client.reset(token)
            inbox.close()

    async def _open(self) -> None:
        """Open the purgatory in the running loop, unless it was closed there on purpose."""
        loop = running_loop()
        if core_of(self._purgatory).loop.running is not loop:
            await self._purgatory.start()
        close_on_stop(self._purgatory)
        self._loop = loop

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_and_open() -> Message:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await self._purgatory.start()
                await self._open()
            return message

        try:
            await self._app(scope, receive_and_open, send)
        finally:
            await self._purgatory.aclose()


@final
class Inbox(Client):
    """The messages of one request, for its app and for the blocks of its handlers.

    Until a block listens, the app calls the server's receive(). From then on, a task does: it keeps the messages for
    the app, and tells the blocks of the disconnect.
    """

    __slots__ = ("_blocks", "_changed", "_kept", "_listener", "_reason", "_receive", "_send", "_size", "has_begun")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        #: Whether the answer has begun.
        self.has_begun = False
        self._listener: asyncio.Task[None] | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """The app's send()."""
        self.has_begun = True
        return self._send(message)

    def receive(self) -> Awaitable[Message]:
        """The app's receive()."""
        return self._receive() if self._listener is None else self._next(self._listener)

    async def _next(self, listener: asyncio.Task[None]) -> Message:
        while not self._kept:
            if listener.done():
                message: Message = await self._receive()
                return message
            self._changed.clear()
            await self._changed.wait()
        message = self._kept[0]
        if message["type"] != "http.disconnect":  # that is the last one, at every call
            self._kept.popleft()
            self._size -= _size_of(message)
            self._changed.set()
        return message

    def listener(self) -> Listen:
        return self._listen

    def _listen(self, ended: Ended) -> Callable[[], object]:
        """Call *ended* when the client disconnects. Returns: stops that."""
        if self._listener is None:
            self._kept = deque[Message]()
            self._size = 0
            self._changed = asyncio.Event()
            self._blocks: list[Ended] = []
            #: Why the listener has ended: the client has disconnected, or another reason.
            self._reason: tuple[Exception | None] | None = None
            # Not by the loop's task factory: an eager task might call *ended* before this returns.
            self._listener = asyncio.Task(self._keep(), loop=asyncio.get_running_loop())
        if self._reason is not None:
            return asyncio.get_running_loop().call_soon(ended, *self._reason).cancel
        self._blocks.append(ended)
        return partial(self._blocks.remove, ended)

    async def _keep(self) -> None:
        try:
            await self._read_ahead()
        except TimeoutError:
            self._tell(UnreadBodyError(f"the body has more than {READ_AHEAD} bytes that nobody reads"))
        finally:
            self._changed.set()

    async def _read_ahead(self) -> None:
        after = 0  # messages after the body
        while after <= MAX_AFTER:
            message = await next_message(self._receive)
            is_over = message["type"] == "http.disconnect"
            if is_over or not after:
                self._kept.append(message)
                self._size += _size_of(message)
                self._changed.set()
            if is_over:
                self._tell(None)
                return
            after += not message.get("more_body")
            del message  # the next one may come in hours
            while self._size >= READ_AHEAD:
                self._changed.clear()
                async with asyncio.timeout(UNREAD):
                    await self._changed.wait()

    def _tell(self, reason: Exception | None) -> None:
        self._reason = (reason,)
        for ended in self._blocks:
            ended(reason)

    def close(self) -> None:
        """The request is over."""
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None  # its context refers to this: cut the cycle


def _size_of(message: Message) -> int:
    return MESSAGE + len(message.get("body", b""))
