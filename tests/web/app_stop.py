"""Handlers of their own that await a purgatory: no LongPolling closes it when the server stops.

GET /wait           waits for a key that nobody checks
GET /statistics     of the purgatory
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.web import close_on_stop


async def no_row() -> None:
    return None


def app(closes: bool = True) -> Starlette:
    purgatory = Purgatory("own")

    async def wait(request: Request) -> Response:
        try:
            await purgatory.wait_for(no_row, ["row"], timeout=25.0)
        except PurgatoryClosedError:
            return Response("the server stops", 503)
        return Response()

    async def tell(request: Request) -> Response:
        return JSONResponse(asdict(purgatory.statistics()))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with purgatory:
            if closes:
                close_on_stop(purgatory)
            yield

    return Starlette(routes=[Route("/wait", wait), Route("/statistics", tell)], lifespan=lifespan)


def without() -> Starlette:
    return app(closes=False)
