"""Long polls in an aiohttp app: the purgatory's life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..purgatory import Purgatory

if TYPE_CHECKING:
    from aiohttp import web


def setup(app: web.Application, purgatory: Purgatory) -> None:
    """Start *purgatory* with *app*, and close it as soon as the app is told to stop, so that every poll is answered.

        setup(app, purgatory)
        web.run_app(app, handler_cancellation=True)

    Without ``handler_cancellation``, which ``AppRunner`` takes, too, the poll of a client that has disconnected stays
    parked until its wait is over.
    """

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with purgatory:
            yield

    async def stop(app: web.Application) -> None:
        purgatory.close()

    app.cleanup_ctx.append(life)
    app.on_shutdown.append(stop)
