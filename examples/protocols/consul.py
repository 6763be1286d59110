"""Consul's key-value store, as far as watches of a key need it, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.consul:app --port 8500

    curl -X PUT --data hello localhost:8500/v1/kv/greeting
    curl -i 'localhost:8500/v1/kv/greeting?index=2&wait=10s'    waits until its index is not 2, or for 10 s

A poll that finds nothing new is answered with the value as it is, and the same index.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
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
from aiopurgatory.web import Answer, LongPolling, LongPollRoute, Policy

# The state: a hash for each key, and one index for all writes. That of a key never written is 1.

PUT = """local index = redis.call('INCR', 'consul:index') + 1
redis.call('HSET', KEYS[1], 'index', index, 'value', ARGV[1])"""


class Store:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def version(self, key: str) -> str:
        index: str | None = await self.redis.hget(f"consul:kv:{key}", "index")
        return index or "1"

    async def read(self, key: str, since: str | None, version: str) -> tuple[str, bytes]:
        """The entry as it is now, whatever the client has, and its own index."""
        index, value = await self.redis.hmget(f"consul:kv:{key}", ["index", "value"])
        entry = {"Key": key, "Value": value, "Flags": 0, "LockIndex": 0, "ModifyIndex": int(index or 1)}
        return index or "1", json.dumps([entry] if index else []).encode()


def as_consul(polled: Answer) -> tuple[bytes, int, dict[str, str]]:
    """News or not, the answer has the entry and the index. 404: there is none yet, and its index can be waited for."""
    return polled.body, 404 if polled.body == b"[]" else 200, {"X-Consul-Index": polled.version}


# The routes.

store = Store()
polling = LongPolling(Purgatory("consul"), store, policy=Policy(max_wait=300.0))
get = LongPollRoute(polling, since=lambda scope: scope.query.get("index"), respond=as_consul)


async def put(request: Request) -> JSONResponse:
    key = request.path_params["key"]
    await store.redis.eval(PUT, 1, f"consul:kv:{key}", b64encode(await request.body()))
    request.app.state.bus.publish(key)
    return JSONResponse(True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as store.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[Route("/v1/kv/{key:path}", put, methods=["PUT"]), Route("/v1/kv/{key:path}", get, methods=["GET"])],
)
