"""The ASGI middleware: one line that opens and closes a purgatory with its app, and answers what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, final

from ..purgatory import Purgatory
from .answer import NO_STORE, PLAIN_TEXT, Answer, UnreadBodyError
from .asgi import MAX_AFTER, Ended, Message, Receive, Scope, Send, next_message, send_answer
from .connected import Client, DisconnectedError, client
from .desk import Desk
from .signals import require_purgatory

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
    keeps the body here, takes 3 % more.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], purgatory: Purgatory) -> None:
        require_purgatory(purgatory)
        self._app = app
        self._desk = Desk(purgatory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(scope, receive, send)
            return
        if self._desk.loop is not asyncio.get_running_loop():
            await self._desk.enter()
        if kind != "http":
            await self._app(scope, receive, send)
            return
        inbox = Inbox()  # without an __init__(), it is made twice as fast: there is one for each request
        inbox.from_server, inbox.to_server = receive, send
        token = client.set(inbox)
        try:
            await self._app(scope, inbox.receive, inbox.send)
        except Exception as exc:
            answer = None if inbox.has_begun else self._answer(exc)
            if answer is None:
                raise
            await send_answer(answer, send)
        finally:
            client.reset(token)
            if inbox.listening is not None:
                inbox.listening.cancel()
                inbox.listening = None  # its context refers to the inbox: cut the cycle

    def _answer(self, exc: Exception) -> Answer | None:
        """Return the answer for *exc*, which has left a handler; None: it is none of ours."""
        if isinstance(exc, DisconnectedError):
            return Answer(exc.status_code, exc.detail.encode(), [NO_STORE, PLAIN_TEXT])
        return self._desk.refusals.answer_handler(exc)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_and_open() -> Message:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await self._desk.start()
            return message

        async def close_and_send(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):  # the server may cancel this once it hears that
                await self._desk.aclose()
            await send(message)

        loop = asyncio.get_running_loop()
        try:
            await self._app(scope, receive_and_open, close_and_send)
        finally:
            if self._desk.loop in (loop, None):  # else this is garbage of a loop that vanished
                await self._desk.aclose()


@final
class Inbox(Client):
    """The messages of one request, for its app and for the blocks of its handlers.

    Until a block listens, the app calls the server's receive(). From then on, a task does: it keeps the messages for
    the app, and tells the blocks of the disconnect.
    """

    #: ASGI's receive() and send() of the request.
    from_server: Receive
    to_server: Send
    #: The task that calls receive(), since a block has listened.
    listening: asyncio.Task[None] | None = None
    #: Wakes the task and the app, once they have waited for room or a message.
    _change: asyncio.Event | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """The app's send()."""
        self.has_begun = True
        return self.to_server(message)

    def receive(self) -> Awaitable[Message]:
        """The app's receive()."""
        return self.from_server() if self.listening is None else self._next(self.listening)

    async def _next(self, listening: asyncio.Task[None]) -> Message:
        while not self._kept:
            if listening.done():
                message: Message = await self.from_server()
                return message
            await self._changed()
        message = self._kept[0]
        if message["type"] != "http.disconnect":  # that is the last one, at every call
            del self._kept[0]
            self._note_change()
        return message

    def listen(self, ended: Ended) -> Callable[[], object]:
        if self.listening is None:
            self._kept: list[Message] = []
            # Not by the loop's task factory: an eager task might call *ended* before this returns.
            self.listening = asyncio.Task(self._keep(), loop=asyncio.get_running_loop())
        return super().listen(ended)

    async def _keep(self) -> None:
        after = 0  # messages after the body
        try:
            while after <= MAX_AFTER:
                message = await next_message(self.from_server)
                is_over = message["type"] == "http.disconnect"
                if is_over or not after:
                    self._kept.append(message)
                    self._note_change()
                if is_over:
                    self.tell(None)
                    return
                after += not message.get("more_body")
                del message  # the next one may come in hours
                if not after:
                    await self._room()
        except TimeoutError:
            self.tell(UnreadBodyError(f"the body has more than {READ_AHEAD} bytes that nobody reads"))
        finally:
            self._note_change()

    async def _room(self) -> None:
        """Wait until the app has read what is too much. Raises: TimeoutError: it has read nothing."""
        while sum(MESSAGE + len(message.get("body", b"")) for message in self._kept) >= READ_AHEAD:
            async with asyncio.timeout(UNREAD):
                await self._changed()

    async def _changed(self) -> None:
        self._change = self._change or asyncio.Event()
        await self._change.wait()

    def _note_change(self) -> None:
        if self._change is not None:
            self._change.set()
            self._change.clear()
