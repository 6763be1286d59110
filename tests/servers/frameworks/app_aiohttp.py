"""aiohttp: python -m frameworks.app_aiohttp PORT."""

from __future__ import annotations

import sys

from aiohttp import web

from aiopurgatory.web import while_connected
from aiopurgatory.web.aiohttp import setup

from . import jobs


async def next_job(request: web.Request) -> web.Response:
    async with while_connected():
        return web.Response(text=await jobs.next_job())


async def put(request: web.Request) -> web.Response:
    return web.Response(text=jobs.put())


async def state(request: web.Request) -> web.Response:
    return web.Response(text=jobs.state())


app = web.Application()
app.add_routes([web.get("/next", next_job), web.post("/put", put), web.get("/state", state)])
setup(app, jobs.purgatory)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), handler_cancellation=True, print=None)
