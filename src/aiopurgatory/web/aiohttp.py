"""What an aiohttp app needs to hold long polls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..purgatory import Purgatory

if TYPE_CHECKING:
    from aiohttp import web


def setup(app: web.Application, purgatory: Purgatory) -> None:
    """Start *purgatory* with *app*; when it stops, close it at once, so that every poll is answered.

        setup(app, purgatory)
        web.run_app(app, handler_cancellation=True)

    Without ``handler_cancellation`` (of ``AppRunner``, too), a poll stays parked until its wait is over when its client
    has left.
    """

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with purgatory:
            yield

    async def stop(app: web.Application) -> None:
        purgatory.close()

    app.cleanup_ctx.append(life)
    app.on_shutdown.append(stop)
