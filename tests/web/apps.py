"""The same few endpoints for each framework, written as its users would; here, for Starlette.

GET /polls/{topic}      a long poll, by the route; ?client= names the client
POST /polls/{topic}     a new version; answers how many polls waited for that
GET /events/{topic}     the same as a stream of events; of "large", each is 1 MB
GET /hasty/{topic}      the same, but each event must be sent in 2.5 s
GET /deaf/{topic}       the same from a handler that does not pass its receive(); only of answering()
GET /own/{topic}        a long poll in a handler of its own
POST /own/{topic}       the same, after its body was read, and with ?since=
GET /pause              stops the process in the middle of a turn, until SIGCONT
GET /statistics         of the purgatory
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from aiopurgatory import GoneError, NotFoundError, Purgatory
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, Policy

SIZE = 1_000_000


class Topics:
    """Each topic is a counter. Clients can go on from its oldest state, or a newer one."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.oldest: dict[str, int] = {}

    def version(self, topic: str) -> str:
        if topic == "unknown":
            raise NotFoundError("there is no such topic")
        return str(self.counters.get(topic, 0))

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        if since is not None and topic in self.oldest and int(since) < self.oldest[topic]:
            raise GoneError(f"version {since} is gone")
        return json.dumps([topic, since, version]).encode().ljust(SIZE if topic == "large" else 1)

    def bump(self, topic: str) -> None:
        self.counters[topic] = self.counters.get(topic, 0) + 1


topics = Topics()
purgatory = Purgatory("polls", max_pending=20_000)
polling = LongPolling(purgatory, topics, policy=Policy(max_wait=150.0))
hasty = LongPolling(purgatory, topics, policy=Policy(stall=2.5, heartbeat=0.9))


def bump(topic: str) -> str:
    topics.bump(topic)
    waiting = len(purgatory.waiting(topic))
    polling.notify(topic)
    return str(waiting)


def statistics() -> dict[str, Any]:
    return asdict(purgatory.statistics())


def client(scope: Scope) -> str | None:
    """The client's name for itself."""
    return HTTPConnection(scope).query_params.get("client")


EVENTS = [
    Route("/events/{topic}", EventRoute(polling, client=client), methods=["GET"]),
    Route("/hasty/{topic}", EventRoute(hasty, client=client)),
]


def starlette(events: list[Route] = EVENTS) -> Starlette:
    async def publish(request: Request) -> Response:
        await request.body()
        return Response(bump(request.path_params["topic"]))

    async def own(request: Request) -> Response:
        body = await request.body()
        answer = await polling.answer(
            request.path_params["topic"],
            request.headers,
            request.query_params,
            since=request.query_params.get("since"),
            receive=request.receive,
        )
        return Response(answer.body, answer.status, answer.headers | {"x-body": str(len(body))})

    async def pause(request: Request) -> Response:
        os.kill(os.getpid(), signal.SIGSTOP)
        return Response()

    async def tell(request: Request) -> Response:
        return JSONResponse(statistics())

    return Starlette(
        routes=[
            Route("/polls/{topic}", LongPollRoute(polling, client=client), methods=["GET"]),
            Route("/polls/{topic}", publish, methods=["POST"]),
            *events,
            Route("/own/{topic}", own, methods=["GET", "POST"]),
            Route("/pause", pause),
            Route("/statistics", tell),
        ]
    )


def answering() -> Starlette:
    """With streams from handlers of one's own."""

    def handler(polls: LongPolling[str], listens: bool = True) -> Callable[[Request], Awaitable[Response]]:
        async def events(request: Request) -> Response:
            topic, receive = request.path_params["topic"], request.receive if listens else None
            events = await polls.events(topic, request.headers, client=client(request.scope), receive=receive)
            return StreamingResponse(events, events.status, events.headers)

        return events

    handlers = {"events": handler(polling), "hasty": handler(hasty), "deaf": handler(hasty, listens=False)}
    return starlette([Route(f"/{path}/{{topic}}", events) for path, events in handlers.items()])


def in_groups() -> Starlette:
    """At most 50 polls of one address."""
    limited = LongPolling(purgatory, topics, policy=Policy(max_wait=150.0, max_per_group=50))

    async def tell(request: Request) -> Response:
        return JSONResponse(statistics() | {"refused": limited.statistics().refused.get("group", 0)})

    route = LongPollRoute(limited, group=lambda scope: scope["client"][0])
    return Starlette(routes=[Route("/polls/{topic}", route, methods=["GET"]), Route("/statistics", tell)])


def behind(app: Starlette) -> Starlette:
    """With a middleware in between that lets no is_disconnected() hear of the client."""
    app.add_middleware(BaseHTTPMiddleware, dispatch=lambda request, call_next: call_next(request))
    return app


def behind_middleware() -> Starlette:
    return behind(starlette())


def answering_behind_middleware() -> Starlette:
    return behind(answering())
