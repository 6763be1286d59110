"""Long polls in an aiohttp app: start and close the purgatory, and notice clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..purgatory import Purgatory
from .asgi import Ended, Message, Receive
from .connected import Connected, DisconnectedError

if TYPE_CHECKING:
    from aiohttp import web

#: Seconds that handlers of disconnected clients may still run when the app stops.
GRACE = 10.0


class _Client:
    """The client of a request. Its future *left* exists once its handler has called receive()."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: asyncio.Future[None] | None = None


#: The client of the running handler.
_client: ContextVar[_Client] = ContextVar("client")


def setup(app: web.Application, purgatory: Purgatory) -> None:
    """Start *purgatory* with *app*, and close it as soon as the app begins to shut down, so that polls are answered.

        setup(app, purgatory)
        web.run_app(app, handler_cancellation=True)

        async def poll(request: web.Request) -> web.Response:
            answer = await polling.answer(
                request.match_info["topic"], request.headers, request.query, receive=receive(request))
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    aiohttp notices a disconnected client only with ``handler_cancellation`` (an option of ``AppRunner``, too), and then
    cancels its handler. setup() adds a middleware that spares handlers that have called receive() or while_connected():
    their poll ends with status 499, or their block is cancelled, and they run to their end. Errors that they raise then
    are logged, but for DisconnectedError. Other handlers are cancelled. Without ``handler_cancellation``, the poll of a
    disconnected client goes on waiting.
    """
    from aiohttp import web

    #: Handlers that run to their end after their client has disconnected.
    deserted: set[asyncio.Task[web.StreamResponse]] = set()

    def end(task: asyncio.Task[web.StreamResponse]) -> None:
        deserted.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None and not isinstance(exc, (web.HTTPException, DisconnectedError)):
            app.logger.error("a handler raised after its client had disconnected", exc_info=exc)

    @web.middleware
    async def to_its_end(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        client = _Client()
        token = _client.set(client)
        task = asyncio.ensure_future(handler(request))  # in a copy of this context
        _client.reset(token)
        try:
            await asyncio.wait([task])  # and do not cancel it. A cancelled shield() reports its error, from 3.14 on.
            return task.result()
        except asyncio.CancelledError:
            if client.left is None or task.done():
                task.cancel()
                return await task
            if not client.left.done():
                client.left.set_result(None)
            deserted.add(task)
            task.add_done_callback(end)
            raise

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with purgatory:
            yield
        if deserted:
            await asyncio.wait(deserted, timeout=GRACE)
        for task in deserted:
            task.cancel()

    async def stop(app: web.Application) -> None:
        purgatory.close()

    app.middlewares.append(to_its_end)
    app.cleanup_ctx.append(life)
    app.on_shutdown.append(stop)


def receive(request: web.Request) -> Receive:
    """Return the *receive* for ``LongPolling.answer()``, which ends the poll when the client disconnects.

    Needs setup() and ``handler_cancellation``.

    Raises: RuntimeError: the app was not prepared by setup().
    """
    left = _future_of_client("receive()")

    async def wait_until_left() -> Message:
        await asyncio.shield(left)
        return {"type": "http.disconnect"}

    return wait_until_left


def while_connected(request: web.Request) -> AbstractAsyncContextManager[None]:
    """Return a block that is cancelled when the client of *request* disconnects, and then raises DisconnectedError.

        async def next_job(request: web.Request) -> web.Response:
            async with while_connected(request):
                job = await purgatory.wait_for(take, ["jobs"], timeout=25.0, on_undelivered=put)
            return web.json_response(job)

    It is ``aiopurgatory.web.while_connected()`` for aiohttp. The rest of the handler runs to its end.

    Raises: RuntimeError: the app was not prepared by setup(), or runs without ``handler_cancellation``.
    """
    server = getattr(request.protocol, "_manager", None)  # None: the client has left
    if server is not None and not server.handler_cancellation:
        raise RuntimeError("while_connected() needs handler_cancellation=True, passed to run_app() or AppRunner()")
    left = _future_of_client("while_connected()")

    def listen(ended: Ended) -> Callable[[], object]:
        def end(_: object) -> None:
            ended(None)

        left.add_done_callback(end)
        return lambda: left.remove_done_callback(end)

    return Connected(listen)


def _future_of_client(caller: str) -> asyncio.Future[None]:
    """Return the future of the running handler's client, which then runs to its end."""
    client = _client.get(None)
    if client is None:
        raise RuntimeError(f"{caller} needs an app that was prepared by setup(app, purgatory)")
    client.left = client.left or asyncio.get_running_loop().create_future()
    return client.left
