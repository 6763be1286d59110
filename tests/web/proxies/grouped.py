"""A worker of a group: its bus is on the group's channel, and its data in Redis. Run by uvicorn --factory.

GET /polls/{topic}      a long poll
POST /polls/{topic}     a new version; answers when the server of the bus has it
GET /statistics         of this worker
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import LongPolling, LongPollRoute


class Counters:
    """Each topic is a counter in Redis."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def version(self, topic: str) -> str:
        return str(int(await self.redis.get(topic) or 0))

    async def read(self, topic: str, since: str | None, version: str) -> bytes:
        return version.encode()


def app() -> Starlette:
    url, channel = os.environ["REDIS_URL"], os.environ["CHANNEL"]
    purgatory = Purgatory("polls")
    redis = Redis.from_url(url)
    polling = LongPolling(purgatory, Counters(redis))
    bus = RedisBus(url, [polling], name=channel)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with purgatory, bus, redis:
            yield

    async def publish(request: Request) -> Response:
        topic = request.path_params["topic"]
        await redis.incr(topic)
        bus.publish(topic)
        await bus.flush()
        return Response(channel)

    async def statistics(_: Request) -> Response:
        found = bus.statistics()
        counts = {"published": found.published, "received": found.received, "gaps": found.gaps}
        return JSONResponse({"pid": os.getpid(), "pending": purgatory.num_delayed, **counts})

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/polls/{topic}", LongPollRoute(polling), methods=["GET"]),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/statistics", statistics),
        ],
    )
