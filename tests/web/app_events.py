"""Streams of large events, for Starlette: each is 1 MB, and must be sent in a second; GET /patient has no hurry.

GET /events/{topic}, /patient/{topic}     a stream of events
POST /polls/{topic}                       a new version
GET /statistics                           of the purgatory
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, Policy

SIZE = 1_000_000


class Large:
    def __init__(self) -> None:
        self.number = 0

    def version(self, topic: str) -> str:
        return str(self.number)

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        return version.encode().ljust(SIZE)


def starlette() -> Starlette:
    source = Large()
    purgatory = Purgatory("large")
    polling = LongPolling(purgatory, source)
    hasty = LongPolling(purgatory, source, policy=Policy(stall=1.0))

    async def publish(request: Request) -> Response:
        source.number += 1
        polling.notify(request.path_params["topic"])
        return Response()

    async def tell(request: Request) -> Response:
        return JSONResponse(asdict(purgatory.statistics()))

    return Starlette(
        routes=[
            Route("/events/{topic}", EventRoute(hasty)),
            Route("/patient/{topic}", EventRoute(polling)),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/statistics", tell),
        ]
    )
