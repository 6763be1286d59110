"""Nacos's configurations, as far as its clients listen to them, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.nacos:app --port 8848

A client listens to all its configurations in one poll, a POST, with the MD5 of each. The answer names the changed
ones, or none when the wait is over.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import md5
from typing import Any
from urllib.parse import quote

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import LongPolling, LongPollRoute, Policy, RequestScope

# The state: a hash of contents, by the name of a configuration with its group and its tenant, which may be empty.

Names = tuple[str, ...]


class Configs:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def version(self, names: Names) -> str:
        contents = await self.redis.hmget("nacos", names)
        return ",".join("-" if content is None else md5(content.encode()).hexdigest() for content in contents)

    async def read(self, names: Names, since: str | None, version: str) -> bytes:
        """The names whose MD5 is not the client's."""
        known = (since or "").split(",")  # a client may send anything
        pairs = zip(names, known, version.split(","), strict=False)
        return quote("".join(f"{name}\1" for name, old, new in pairs if old != new)).encode()


def name_of(request: Request) -> str:
    query = request.query_params
    return "\2".join([query["dataId"], query["group"], query.get("tenant", "")])


def listened(scope: RequestScope) -> dict[str, str]:
    """The names that a client listens to, with the MD5 of each that it has, or ``-``."""
    lines = [line.split("\2") for line in scope.form["Listening-Configs"].split("\1") if line]
    if not lines:
        raise ValueError("no configuration is named")
    return {"\2".join([data, group, *(tenant or [""])]): known or "-" for data, group, known, *tenant in lines}


def names(scope: RequestScope) -> Names:
    return tuple(listened(scope))


def md5s(scope: RequestScope) -> str:
    return ",".join(listened(scope).values())


# The routes.

configs = Configs()
polling = LongPolling(Purgatory("nacos"), configs, media_type="text/plain", policy=Policy(max_wait=30.0, margin=0.5))
listen = LongPollRoute(
    polling,
    methods=["POST"],
    resource=names,
    keys=names,
    since=md5s,
    wait=lambda scope: scope.headers["long-pulling-timeout"] + "ms",
    respond=lambda polled: polled.body,
)


async def get(request: Request) -> Response:
    content = await configs.redis.hget("nacos", name_of(request))
    return Response(status_code=404) if content is None else PlainTextResponse(content)


async def publish(request: Request) -> Response:
    name = name_of(request)
    await configs.redis.hset("nacos", name, request.query_params["content"])
    request.app.state.bus.publish(name)
    return PlainTextResponse("true")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as configs.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/nacos/v1/cs/configs/listener", listen, methods=["POST"]),
        Route("/nacos/v1/cs/configs", get, methods=["GET"]),
        Route("/nacos/v1/cs/configs", publish, methods=["POST"]),
    ],
)
