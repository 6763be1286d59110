"""ConfigMaps of Kubernetes, listed and watched, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.kubernetes:app --port 8001

    curl -X PUT localhost:8001/api/v1/namespaces/default/configmaps/colours --json '{"data": {"apples": "red"}}'
    curl -N 'localhost:8001/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0'

A watch sends a line of JSON for each change after a resourceVersion, until its client leaves, or for timeoutSeconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import PurgatoryMiddleware

# The state: the changes of each namespace by resourceVersion, and its objects as they are.

PUT = """local version = redis.call('INCR', 'kubernetes:version')
local object = cjson.decode(ARGV[2])
object.metadata.resourceVersion = tostring(version)
local type = redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 and 'MODIFIED' or 'ADDED'
redis.call('HSET', KEYS[2], ARGV[1], cjson.encode(object))
redis.call('ZADD', KEYS[1], version, cjson.encode({type = type, object = object}))
return cjson.encode(object)"""


class Objects:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def put(self, namespace: str, name: str, data: Any) -> str:
        """Returns: the object as JSON, with its resourceVersion."""
        meta = {"name": name, "namespace": namespace}
        new = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
        found: str = await self.redis.eval(PUT, 2, f"k8s:changes:{namespace}", f"k8s:objects:{namespace}", name, new)
        return found

    async def all(self, namespace: str) -> dict[str, Any]:
        """The objects, and a resourceVersion from which a watch misses nothing: the version is read first."""
        version = await self.redis.get("kubernetes:version") or "0"
        found = await self.redis.hvals(f"k8s:objects:{namespace}")
        items = [json.loads(each) for each in found]
        newest = max([int(version), *(int(each["metadata"]["resourceVersion"]) for each in items)])
        meta = {"resourceVersion": str(newest)}
        return {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": meta, "items": items}

    async def after(self, namespace: str, version: int | None) -> tuple[int, list[str]] | None:
        """The newest version, and the changes after *version*; None: there are none."""
        found = await self.redis.zrange(f"k8s:changes:{namespace}", f"({version}", "inf", byscore=True, withscores=True)
        return (int(found[-1][1]), [change for change, _ in found]) if found else None


# The routes.

objects = Objects()
purgatory = Purgatory("kubernetes")


async def lines(namespace: str, version: int, seconds: float) -> AsyncIterator[str]:
    after = partial(objects.after, namespace)
    with suppress(PurgatoryClosedError):  # the server stops meanwhile
        async for changes in purgatory.follow([namespace], after, version, timeout=seconds):
            yield "\n".join([*changes, ""])


async def get(request: Request) -> Response:
    namespace, query = request.path_params["namespace"], request.query_params
    if query.get("watch", "false").lower() not in ("true", "1"):
        return JSONResponse(await objects.all(namespace))
    if not purgatory.is_open:
        raise PurgatoryClosedError("the server stops")  # the middleware answers that, and closes the connection
    watch = lines(namespace, int(query.get("resourceVersion", 0)), float(query.get("timeoutSeconds", 1800)))
    return StreamingResponse(watch, media_type="application/json")


async def put(request: Request) -> Response:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    found = await objects.put(namespace, name, (await request.json())["data"])
    request.app.state.bus.publish(namespace)
    return Response(found, media_type="application/json")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [purgatory]) as app.state.bus, Redis.from_url(url, decode_responses=True) as objects.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/api/v1/namespaces/{namespace}/configmaps", get, methods=["GET"]),
        Route("/api/v1/namespaces/{namespace}/configmaps/{name}", put, methods=["PUT"]),
    ],
)
app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
