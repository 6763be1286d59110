"""The app that is attacked. All of its routes share one purgatory, and its places must be free again.

GET /polls/{topic}      a long poll
POST /polls/{topic}     a new version
GET /events/{topic}     a stream of events
GET /waits/{topic}      waits for 100 s in a handler of its own
POST /flood/{topic}     ?times= new versions from a thread, and answers how long the loop's thread has worked on them
GET /never/{topic}      a long poll of a database that never answers
/plain/{path}           answers at once, without the library
GET /parsed/{path}      answers at once, but parses its whole query
GET /statistics         of the purgatory, the CPU time of the loop's thread, and the routes' part of that
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, Policy, while_connected

from ..apps import Topics

#: In the purgatory.
PLACES = 200


class BrownOut:
    """A database that does not answer."""

    async def version(self, topic: str) -> str:
        await asyncio.Event().wait()
        return ""

    async def read(self, topic: str, since: str | None, version: str) -> bytes:
        return b""


class Meter:
    """Adds up the CPU time that routes take from their call until they answer: not the server's own."""

    seconds = 0.0

    def __init__(self, route: ASGIApp) -> None:
        self.route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: float | None = time.thread_time()

        async def answer(message: Message) -> None:
            nonlocal start
            if start is not None:
                Meter.seconds += time.thread_time() - start
                start = None
            await send(message)

        await self.route(scope, receive, answer)


async def parsed(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(str(len(Request(scope).query_params)))(scope, receive, send)


def starlette(**streams: Any) -> Starlette:
    """With *streams* in the policy."""
    topics = Topics()
    purgatory = Purgatory("attacked", max_pending=PLACES)
    policy = Policy(max_wait=150.0, **streams)
    polling = LongPolling(purgatory, topics, policy=policy)

    async def publish(request: Request) -> Response:
        topics.bump(request.path_params["topic"])
        polling.notify(request.path_params["topic"])
        return Response()

    async def flood(request: Request) -> Response:
        topic = request.path_params["topic"]

        def publish() -> None:
            for _ in range(int(request.query_params["times"])):
                topics.bump(topic)
                polling.notify_threadsafe(topic)

        before = time.thread_time()
        await asyncio.to_thread(publish)
        await asyncio.sleep(0.1)  # the rest of the work
        return Response(str(time.thread_time() - before))

    async def wait(request: Request) -> Response:
        await purgatory.start()
        async with while_connected(request.receive):
            await purgatory.wait_for(lambda: None, [request.path_params["topic"]], timeout=100.0, default=None)
        return Response()

    async def plain(request: Request) -> Response:
        return Response("plain")

    async def statistics(request: Request) -> Response:
        return JSONResponse(asdict(purgatory.statistics()) | {"cpu": time.thread_time(), "routes": Meter.seconds})

    def polls(path: str, route: LongPollRoute) -> Route:
        return Route(path + "/{topic:path}", Meter(route), methods=["GET"])

    return Starlette(
        routes=[
            polls("/polls", LongPollRoute(polling)),
            polls("/never", LongPollRoute(LongPolling(purgatory, BrownOut(), policy=policy))),
            Route("/events/{topic:path}", Meter(EventRoute(polling))),
            Route("/waits/{topic}", wait),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/flood/{topic}", flood, methods=["POST"]),
            Route("/plain/{path:path}", plain, methods=["GET", "POST"]),
            Route("/parsed/{path:path}", Meter(parsed)),
            Route("/statistics", statistics),
        ]
    )


def brief() -> Starlette:
    """With streams that last for two seconds."""
    return starlette(max_age=2.0)
