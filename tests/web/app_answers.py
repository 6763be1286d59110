"""Streams of events from handlers of one's own.

GET /events/{topic}       a stream of events; of "large", each is 1 MB, and must be sent in a second
GET /deaf/{topic}         the same, from a handler that does not pass its receive()
POST /polls/{topic}       a new version
GET /statistics           of the purgatory and of the streams
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

import fastapi
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aiopurgatory import NotFoundError, Purgatory
from aiopurgatory.web import EventAnswer, LongPolling, Policy

SIZE = 1_000_000


class Topics:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def version(self, topic: str) -> str:
        if topic == "unknown":
            raise NotFoundError("there is no such topic")
        return str(self.numbers.get(topic, 0))

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        return version.encode().ljust(SIZE if topic == "large" else 1)


topics = Topics()
purgatory = Purgatory("answers", max_pending=60)
polling = LongPolling(purgatory, topics, policy=Policy(stall=1.0, heartbeat=0.9))


def bump(topic: str) -> None:
    topics.numbers[topic] = topics.numbers.get(topic, 0) + 1
    polling.notify(topic)


def statistics() -> dict[str, Any]:
    found = polling.statistics()
    return asdict(purgatory.statistics()) | {"streams": found.streams, "clients": found.clients}


def starlette() -> Starlette:
    async def events(request: Request) -> Response:
        topic, client = request.path_params["topic"], request.query_params.get("client")
        events = await polling.events(topic, request.headers, client=client, receive=request.receive)
        return StreamingResponse(events, events.status, events.headers)

    async def deaf(request: Request) -> Response:
        events = await polling.events(request.path_params["topic"], request.headers)
        return StreamingResponse(events, events.status, events.headers)

    async def publish(request: Request) -> Response:
        bump(request.path_params["topic"])
        return Response()

    async def tell(request: Request) -> Response:
        return JSONResponse(statistics())

    return Starlette(
        routes=[
            Route("/events/{topic}", events),
            Route("/deaf/{topic}", deaf),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/statistics", tell),
        ]
    )


def behind_middleware() -> Starlette:
    async def dispatch(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await call_next(request)

    app = starlette()
    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    return app


async def events_of(topic: str, request: fastapi.Request, client: str | None = None) -> EventAnswer:
    return await polling.events(topic, request.headers, client=client, receive=request.receive)


Events = Annotated[EventAnswer, fastapi.Depends(events_of)]


def fastapi_depends() -> fastapi.FastAPI:
    app = fastapi.FastAPI()

    @app.get("/events/{topic}", response_class=StreamingResponse)
    async def events(events: Events) -> StreamingResponse:
        return StreamingResponse(events, events.status, events.headers)

    @app.get("/deaf/{topic}", response_class=StreamingResponse)
    async def deaf(topic: str, request: fastapi.Request) -> StreamingResponse:
        events = await polling.events(topic, request.headers)
        return StreamingResponse(events, events.status, events.headers)

    @app.post("/polls/{topic}")
    async def publish(topic: str) -> None:
        bump(topic)

    @app.get("/statistics")
    async def tell() -> dict[str, Any]:
        return statistics()

    return app
