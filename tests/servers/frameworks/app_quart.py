"""Quart. It answers exceptions itself, before the middleware, and cancels the handler of a client that leaves."""

from __future__ import annotations

from typing import Any

from quart import Quart

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import PurgatoryMiddleware

from . import jobs

quart: Any = Quart(__name__)
quart.asgi_app = PurgatoryMiddleware(quart.asgi_app, jobs.purgatory)


@quart.errorhandler(PurgatoryClosedError)
@quart.errorhandler(PurgatoryFullError)
async def busy(exc: Exception) -> tuple[str, int, dict[str, str]]:
    return "", 503, {"Retry-After": "1", "Connection": "close"}


@quart.get("/next")
async def next_job() -> str:
    return await jobs.next_job()


app = jobs.told(quart)
