"""Apollo's config service, as far as its clients need it, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.apollo:app --port 8080

    curl -X PUT localhost:8080/configs/app/default/application --json '{"color": "red"}'

A client asks for the notifications of all its namespaces in one poll, with the last id of each. The answer has the new
ids of the namespaces released since, or is 304 when the wait is over. The client then reads their configurations.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import Answer, LongPolling, LongPollRoute, Policy, RequestScope

# The state: the newest configurations of each namespace, and the id of their release.

PUT = """redis.call('HSET', 'apollo:configs', KEYS[1], ARGV[1])
return redis.call('HINCRBY', 'apollo:ids', KEYS[1], 1)"""


class Releases:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def version(self, names: tuple[str, ...]) -> str:
        return ".".join(number or "-1" for number in await self.redis.hmget("apollo:ids", names))

    async def read(self, names: tuple[str, ...], since: str | None, version: str) -> bytes:
        """The notifications of namespaces whose id is not the client's."""
        known = (since or "").split(".")  # a client may send anything
        ids = zip(names, known, version.split("."), strict=False)
        news = [(name, int(new)) for name, old, new in ids if old != new]
        return json.dumps([{"namespaceName": full.split("+")[2], "notificationId": new} for full, new in news]).encode()


def names(scope: RequestScope) -> tuple[str, ...]:
    app, cluster = scope.query["appId"], scope.query["cluster"]
    return tuple(f"{app}+{cluster}+{each['namespaceName']}" for each in json.loads(scope.query["notifications"]))


def ids(scope: RequestScope) -> str:
    return ".".join(str(each["notificationId"]) for each in json.loads(scope.query["notifications"]))


# The routes.

releases = Releases()
polling = LongPolling(Purgatory("apollo"), releases, policy=Policy(max_wait=float(os.environ.get("MAX_WAIT", "60"))))


def as_apollo(polled: Answer) -> tuple[bytes, int, dict[str, str]]:
    return polled.body, 200 if polled.status == 200 else 304, {}


notifications = LongPollRoute(polling, resource=names, keys=names, since=ids, respond=as_apollo)


async def get(request: Request) -> JSONResponse:
    name = "+".join(request.path_params.values())
    configurations = json.loads(await releases.redis.hget("apollo:configs", name) or "{}")
    release = await releases.redis.hget("apollo:ids", name)
    return JSONResponse({**request.path_params, "releaseKey": release, "configurations": configurations})


async def put(request: Request) -> JSONResponse:
    name = "+".join(request.path_params.values())
    await releases.redis.eval(PUT, 1, name, await request.body())
    request.app.state.bus.publish(name)
    return JSONResponse({}, 201)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as releases.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/notifications/v2", notifications, methods=["GET"]),
        Route("/configs/{appId}/{cluster}/{namespaceName}", get, methods=["GET"]),
        Route("/configs/{appId}/{cluster}/{namespaceName}", put, methods=["PUT"]),
    ],
)
