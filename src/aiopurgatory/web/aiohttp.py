"""An aiohttp app whose handlers await a purgatory, in one line: open, close, refusals, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Final

from ..purgatory import Purgatory
from .answer import DisconnectedError, Refusals
from .connected import Client, client
from .signals import require_purgatory

if TYPE_CHECKING:
    from aiohttp import web

#: Seconds that handlers of disconnected clients may still run when the app stops.
GRACE = 10.0
#: The client of the running handler, whether or not aiohttp notices that it leaves.
_asking: Final[ContextVar[Client]] = ContextVar("asking")


def setup(app: web.Application, purgatory: Purgatory) -> None:
    """Have *app* open *purgatory*, close it when it begins to shut down, and answer what it refuses.

        setup(app, purgatory)
        web.run_app(app, handler_cancellation=True)

        async def next_job(request: web.Request) -> web.Response:
            async with while_connected():  # of aiopurgatory.web
                job = await purgatory.wait_for(take, ["jobs"], timeout=25.0, on_undelivered=put)
            return web.json_response(job)

    If a handler raises PurgatoryClosedError or PurgatoryFullError, or a wait of it was cancelled, as by
    ``cancel_for_key()``, the client is answered 503, as PurgatoryMiddleware does it.

    aiohttp notices a disconnected client only with ``handler_cancellation`` (also an option of ``AppRunner``), and then
    cancels its handler. setup() adds a middleware that spares handlers that poll, or have entered a
    ``while_connected()`` block. Their poll ends with status 499, or their block is cancelled, and they run to their
    end. Errors that they raise then are logged, but for DisconnectedError. Other handlers are cancelled.

    So ``polling.answer()`` and ``polling.events()`` need no *receive* here.

    Raises: TypeError: *purgatory* is no Purgatory.
    """
    from aiohttp import web

    require_purgatory(purgatory)
    #: Handlers that run to their end after their client has disconnected.
    deserted: set[asyncio.Task[web.StreamResponse]] = set()
    refusals: Final = Refusals()

    def end(task: asyncio.Task[web.StreamResponse]) -> None:
        deserted.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None and not isinstance(exc, (web.HTTPException, DisconnectedError)):
            app.logger.error("a handler raised after its client had disconnected", exc_info=exc)

    @web.middleware
    async def to_its_end(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        here, context = Client(), copy_context()
        context.run(_asking.set, here)
        server = getattr(request.protocol, "_manager", None)  # None: the client has left
        if server is None or server.handler_cancellation:  # else it never cancels the handler
            context.run(client.set, here)
        task = context.run(asyncio.ensure_future, handler(request))
        try:
            await asyncio.wait([task])  # and do not cancel it. A cancelled shield() reports its error, from 3.14 on.
        except asyncio.CancelledError:
            if here.blocks is None or task.done():
                task.cancel()
                return await task
            here.tell(None)
            deserted.add(task)
            task.add_done_callback(end)
            raise
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as exc:  # aiohttp would not answer a CancelledError
            answer = None if here.has_begun else refusals.answer_handler(exc)
            if answer is None:
                raise
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    async def note_begin(request: web.Request, response: web.StreamResponse) -> None:
        with suppress(LookupError):  # not by a handler, or after it
            _asking.get().has_begun = True

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
    app.on_response_prepare.append(note_begin)
    app.cleanup_ctx.append(life)
    app.on_shutdown.append(stop)
