"""Sanic, by its own server: python -m frameworks.app_sanic PORT; or as an ASGI app.

Its own server cancels the handler of a client that leaves. It answers exceptions itself, before the middleware.
"""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from sanic import Request, Sanic, text
from sanic.response import HTTPResponse, empty

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import DisconnectedError, PurgatoryMiddleware, close_on_stop, while_connected

from . import jobs

sanic: Any = Sanic("jobs", configure_logging=False)
is_own = __name__ == "__main__"


@sanic.get("/next")
async def next_job(request: Request) -> HTTPResponse:
    block: AbstractAsyncContextManager[None] = nullcontext() if is_own else while_connected()
    async with block:
        return text(await jobs.next_job())


@sanic.post("/put")
async def put(request: Request) -> HTTPResponse:
    return text(jobs.put())


@sanic.get("/state")
async def state(request: Request) -> HTTPResponse:
    return text(jobs.state())


@sanic.exception(PurgatoryClosedError, PurgatoryFullError, DisconnectedError)
async def busy(request: Request, exc: Exception) -> HTTPResponse:
    return empty(503, {"Retry-After": "1"})


if is_own:

    @sanic.before_server_start
    async def start(app: Any) -> None:
        await jobs.purgatory.start()

    @sanic.after_server_start  # by now, Sanic has installed its signal handlers
    async def hear(app: Any) -> None:
        close_on_stop(jobs.purgatory)

    @sanic.after_server_stop
    async def stop(app: Any) -> None:
        await jobs.purgatory.aclose()

    sanic.run("127.0.0.1", int(sys.argv[1]), single_process=True, motd=False)
else:
    app = PurgatoryMiddleware(sanic, jobs.purgatory)
