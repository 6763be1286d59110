"""BlackSheep. It answers exceptions itself, before the middleware."""

from __future__ import annotations

from blacksheep import Application, Request, Response, get

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import DisconnectedError, PurgatoryMiddleware, while_connected

from . import jobs

blacksheep = Application()


@blacksheep.exception_handler(PurgatoryClosedError)
@blacksheep.exception_handler(PurgatoryFullError)
@blacksheep.exception_handler(DisconnectedError)
async def busy(self: Application, request: Request, exc: Exception) -> Response:
    return Response(503, [(b"retry-after", b"1"), (b"connection", b"close")])


@get("/next")
async def next_job() -> str:
    async with while_connected():
        return await jobs.next_job()


app = jobs.told(PurgatoryMiddleware(blacksheep, jobs.purgatory))
