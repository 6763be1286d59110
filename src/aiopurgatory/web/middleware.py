"""The ASGI middleware: one line that opens and closes a purgatory with its app, and answers what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import final

from ..clock import cancellations
from ..purgatory import Purgatory
from .connected import Inbox, Message, Receive, Scope, Send, client, send_answer
from .desk import Desk
from .signals import require_purgatory


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
      answer has a ``Retry-After``, and in the header ``refused`` the reason: ``closed`` or ``full``. A wait that was
      cancelled, as by ``cancel_for_key()``, counts as closed. A DisconnectedError ends the request without a message in
      the log. Once an answer has begun, errors pass unchanged.
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
        except (Exception, asyncio.CancelledError) as exc:
            is_cancelled = isinstance(exc, asyncio.CancelledError) and cancellations() > 0
            answer = None if inbox.has_begun or is_cancelled else self._desk.refusals.answer_handler(exc)
            if answer is None:
                raise
            await send_answer(answer, send)
        finally:
            client.reset(token)
            if inbox.listening is not None:
                inbox.listening.cancel()
                inbox.listening = None  # its context refers to the inbox: cut the cycle

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, is_answered = asyncio.get_running_loop(), False

        async def receive_and_open() -> Message:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await self._desk.start()
            return message

        async def close() -> None:
            if self._desk.loop in (loop, None):  # else this is garbage of a loop that vanished
                await self._desk.aclose()

        async def close_and_send(message: Message) -> None:
            nonlocal is_answered
            is_answered = is_answered or message["type"].startswith("lifespan.")
            if message["type"].startswith("lifespan.shutdown."):  # the server may cancel this once it hears that
                await close()
            await send(message)

        try:
            await self._app(scope, receive_and_open, close_and_send)
        finally:
            if is_answered:  # else it took this for a request, and the server goes on without a lifespan
                await close()
