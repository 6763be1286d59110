"""Quart. It answers exceptions itself, before the middleware, and cancels the handler of a client that leaves."""

from __future__ import annotations

from typing import Any

from quart import Quart

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import PurgatoryMiddleware

from . import jobs

app: Any = Quart(__name__)
app.asgi_app = PurgatoryMiddleware(app.asgi_app, jobs.purgatory)


@app.errorhandler(PurgatoryClosedError)
@app.errorhandler(PurgatoryFullError)
async def busy(exc: Exception) -> tuple[str, int, dict[str, str]]:
    return "", 503, {"Retry-After": "1"}


@app.get("/next")
async def next_job() -> str:
    return await jobs.next_job()


@app.post("/put")
async def put() -> str:
    return jobs.put()


@app.get("/state")
async def state() -> str:
    return jobs.state()
