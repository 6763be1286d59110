"""Long polls in an aiohttp app: start and close the purgatory, and notice clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from ..purgatory import Purgatory
from .asgi import Message, Receive

if TYPE_CHECKING:
    from aiohttp import web

_LEFT = "aiopurgatory.left"
#: Seconds that handlers of disconnected clients may still run when the app stops.
GRACE = 10.0


def setup(app: web.Application, purgatory: Purgatory) -> None:
    """Start *purgatory* with *app*, and close it as soon as the app begins to shut down, so that polls are answered.

        setup(app, purgatory)
        web.run_app(app, handler_cancellation=True)

        async def poll(request: web.Request) -> web.Response:
            answer = await polling.answer(
                request.match_info["topic"], request.headers, request.query, receive=receive(request))
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    aiohttp notices a disconnected client only with ``handler_cancellation`` (an option of ``AppRunner``, too), and then
    cancels its handler. So setup() adds a middleware that runs each handler to its end, in a task of its own. Without
    ``handler_cancellation``, the poll of a disconnected client goes on waiting.
    """
    from aiohttp import web

    running: set[asyncio.Task[web.StreamResponse]] = set()

    @web.middleware
    async def to_its_end(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        left = asyncio.get_running_loop().create_future()
        request[_LEFT] = left
        task = asyncio.ensure_future(handler(request))
        running.add(task)
        task.add_done_callback(running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not left.done():
                left.set_result(None)
            raise

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with purgatory:
            yield
        if running:
            await asyncio.wait(running, timeout=GRACE)
        for task in running:
            task.cancel()

    async def stop(app: web.Application) -> None:
        purgatory.close()

    app.middlewares.append(to_its_end)
    app.cleanup_ctx.append(life)
    app.on_shutdown.append(stop)


def receive(request: web.Request) -> Receive:
    """Return the *receive* for ``LongPolling.answer()``, which ends the poll when the client disconnects.

    Needs setup() and ``handler_cancellation``.
    """
    left: asyncio.Future[None] = request[_LEFT]

    async def wait_until_left() -> Message:
        await asyncio.shield(left)
        return {"type": "http.disconnect"}

    return wait_until_left
