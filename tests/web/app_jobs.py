"""A queue of jobs, each handed out once, for several frameworks.

GET /next?client=        waits for a job; null after 20 s
POST /jobs/{number}      a new job
GET /statistics          of the purgatory, with the jobs that wait, jobs that were put back, and to which client each
                         was handed out when
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import fastapi
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import PurgatoryMiddleware, while_connected
from aiopurgatory.web.aiohttp import setup
from aiopurgatory.web.connected import Connected

from .apps import behind

purgatory = Purgatory("jobs")
jobs: list[int] = []
back: list[int] = []
handed_out: dict[int, tuple[str, float]] = {}


def put(job: int) -> None:
    jobs.append(job)
    purgatory.check_and_complete("jobs", limit=1)


def put_back(job: int) -> None:
    back.append(job)
    put(job)


async def work() -> int | None:
    return await purgatory.wait_for(
        lambda: jobs.pop(0) if jobs else None, ["jobs"], timeout=20.0, on_undelivered=put_back, default=None
    )


def hand_out(job: int | None, client: str) -> int | None:
    if job is not None:
        handed_out[job] = client, time.monotonic()
    return job


def state() -> dict[str, Any]:
    return asdict(purgatory.statistics()) | {"jobs": jobs, "back": back, "handed_out": handed_out}


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    async with purgatory:
        yield


async def add(request: Request) -> Response:
    put(request.path_params["number"])
    return Response()


async def tell(request: Request) -> Response:
    return JSONResponse(state())


OTHERS = [Route("/jobs/{number:int}", add, methods=["POST"]), Route("/statistics", tell)]


def with_block(block: Callable[[Request], Connected], **options: Any) -> Starlette:
    async def next_job(request: Request) -> Response:
        async with block(request):
            job = await work()
        return JSONResponse(hand_out(job, request.query_params["client"]))

    return Starlette(routes=[Route("/next", next_job), *OTHERS], **options)


def starlette() -> Starlette:
    return with_block(lambda request: while_connected(request.receive), lifespan=lifespan)


def behind_middleware() -> Starlette:
    return behind(starlette())


def one_line() -> Starlette:
    """Nothing but the middleware."""
    app = with_block(lambda _: while_connected())
    app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
    return app


def one_line_behind() -> Starlette:
    return behind(one_line())


async def connected(request: fastapi.Request) -> AsyncIterator[None]:
    async with while_connected(request.receive):
        yield


def fastapi_depends() -> fastapi.FastAPI:
    app = fastapi.FastAPI(lifespan=lifespan, routes=[*OTHERS])

    @app.get("/next", dependencies=[fastapi.Depends(connected, scope="function")])
    async def next_job(client: str) -> int | None:
        return hand_out(await work(), client)

    return app


def aiohttp() -> web.Application:
    async def next_job(request: web.Request) -> web.Response:
        async with while_connected():
            job = await work()
        return web.json_response(hand_out(job, request.query["client"]))

    async def add(request: web.Request) -> web.Response:
        put(int(request.match_info["number"]))
        return web.Response()

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(state())

    app = web.Application()
    setup(app, purgatory)
    app.add_routes([web.get("/next", next_job), web.post("/jobs/{number}", add), web.get("/statistics", tell)])
    return app
