"""Litestar. It answers exceptions itself, before the middleware."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, Response, get

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import PurgatoryMiddleware, while_connected

from . import jobs


@get("/next", media_type="text/plain")
async def next_job() -> str:
    async with while_connected():
        return await jobs.next_job()


def busy(request: Request[Any, Any, Any], exc: Exception) -> Response[bytes]:
    return Response(b"", status_code=503, headers={"Retry-After": "1", "Connection": "close"})


litestar = Litestar([next_job], exception_handlers={PurgatoryClosedError: busy, PurgatoryFullError: busy})
app = jobs.told(PurgatoryMiddleware(litestar, jobs.purgatory))
