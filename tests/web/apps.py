"""The same few endpoints for each framework, written as its users would; here, for Starlette.

GET /polls/{topic}      a long poll; ?client= names who polls
POST /polls/{topic}     a new version; answers how many polls that ended
POST /after/{topic}     a long poll after its body was read, POST /before/{topic} one before that
GET /statistics         of the purgatory
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web.asgi import ASGIApp, LongPollApp
from aiopurgatory.web.longpoll import GoneError, LongPolling, Policy


class Topics:
    """Each topic is a counter, of which only the last 100 states can be gone on from."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}

    def version(self, topic: str) -> str:
        return str(self.counters.get(topic, 0))

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        if since is not None and int(version) - int(since) > 100:
            raise GoneError(f"version {since} is gone")
        return json.dumps([topic, since, version]).encode()

    def bump(self, topic: str) -> None:
        self.counters[topic] = self.counters.get(topic, 0) + 1


topics = Topics()
purgatory = Purgatory("polls", max_pending=20_000)
polling = LongPolling(purgatory, topics, policy=Policy(max_wait=150.0))


def bump(topic: str) -> str:
    topics.bump(topic)
    return str(polling.notify(topic))


def statistics() -> dict[str, Any]:
    return asdict(purgatory.statistics())


def on_starlette() -> Starlette:
    async def poll(request: Request) -> Response:
        who = request.query_params.get("client")
        answer = await polling.answer(request.path_params["topic"], request.headers, request.query_params, client=who)
        return Response(answer.body, answer.status, answer.headers)

    async def publish(request: Request) -> Response:
        await request.body()
        return Response(bump(request.path_params["topic"]))

    async def after(request: Request) -> Response:
        await request.body()
        return await poll(request)

    async def before(request: Request) -> Response:
        answer = await poll(request)
        answer.headers["x-body"] = str(len(await request.body()))
        return answer

    async def tell(request: Request) -> Response:
        return JSONResponse(statistics())

    return Starlette(
        routes=[
            Route("/polls/{topic}", poll),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/after/{topic}", after, methods=["POST"]),
            Route("/before/{topic}", before, methods=["POST"]),
            Route("/statistics", tell),
        ]
    )


def starlette() -> ASGIApp:
    return LongPollApp(on_starlette(), purgatory)


def behind_middleware() -> ASGIApp:
    """With a middleware in between that lets nobody hear of the client."""

    async def dispatch(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await call_next(request)

    app = on_starlette()
    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    app.add_middleware(LongPollApp, purgatory=purgatory)
    return app
