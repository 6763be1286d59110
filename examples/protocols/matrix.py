"""Matrix's /sync, as far as messages in rooms need it, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.matrix:app --port 8008

A client sends the position up to which it has everything, and gets all later events of its rooms. When the wait is
over, it gets none, and the position again. There are no passwords: the access token is the name of the user.
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
from aiopurgatory.web import LongPolling, LongPollRoute, Policy, RequestScope

# The state: each room has its members and its events, which have positions in one order of all rooms.

APPEND = """local position = redis.call('INCR', 'matrix:position')
redis.call('ZADD', KEYS[1], position, position .. ' ' .. ARGV[1])
for _, member in ipairs(redis.call('SMEMBERS', KEYS[2])) do redis.call('SET', 'matrix:news:' .. member, position) end
return redis.call('SMEMBERS', KEYS[2])"""


class Rooms:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def version(self, user: str) -> str:
        """The position of the newest event of the user's rooms."""
        position: str | None = await self.redis.get(f"matrix:news:{user}")
        return position or "0"

    async def read(self, user: str, since: str | None, version: str) -> bytes:
        """The events after *since*, up to *version*."""
        rooms = {}
        for room in await self.redis.smembers(f"matrix:rooms:{user}"):
            events = await self.redis.zrangebyscore(f"matrix:events:{room}", f"({int(since or 0)}", version)
            if events:
                rooms[room] = {"timeline": {"events": [json.loads(event.partition(" ")[2]) for event in events]}}
        return json.dumps({"next_batch": version, "rooms": {"join": rooms}}).encode()

    async def append(self, room: str, user: str, kind: str, content: Any, **more: str) -> list[str]:
        """Append an event to *room*. Returns: its members."""
        event = {"type": kind, "content": content, "sender": user, "origin_server_ts": 0, **more}
        keys = (f"matrix:events:{room}", f"matrix:members:{room}")
        members: list[str] = await self.redis.eval(APPEND, 2, *keys, json.dumps(event))
        return members


def user_of(scope: RequestScope) -> str:
    return scope.headers["authorization"].removeprefix("Bearer ")


def position(scope: RequestScope) -> str | None:
    return str(int(scope.query["since"])) if "since" in scope.query else None


# The routes.

rooms = Rooms()
polling = LongPolling(Purgatory("matrix"), rooms, policy=Policy(max_wait=60.0))
sync = LongPollRoute(
    polling,
    resource=user_of,
    since=position,
    wait=lambda scope: scope.query.get("timeout", "0") + "ms",
    respond=lambda polled: polled.body,
)


async def join(request: Request) -> JSONResponse:
    user, room = user_of(RequestScope(request.scope)), request.path_params["room"]
    await rooms.redis.sadd(f"matrix:members:{room}", user)
    await rooms.redis.sadd(f"matrix:rooms:{user}", room)
    ids = {"state_key": user, "event_id": f"$join-{user}-{room}"}
    for member in await rooms.append(room, user, "m.room.member", {"membership": "join"}, **ids):
        request.app.state.bus.publish(member)
    return JSONResponse({"room_id": room})


async def send(request: Request) -> JSONResponse:
    user, event_id = user_of(RequestScope(request.scope)), f"${request.path_params['transaction']}"
    room, kind = request.path_params["room"], request.path_params["kind"]
    for member in await rooms.append(room, user, kind, await request.json(), event_id=event_id):
        request.app.state.bus.publish(member)
    return JSONResponse({"event_id": event_id})


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as rooms.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/_matrix/client/v3/sync", sync, methods=["GET"]),
        Route("/_matrix/client/v3/join/{room}", join, methods=["POST"]),
        Route("/_matrix/client/v3/rooms/{room}/send/{kind}/{transaction}", send, methods=["PUT"]),
    ],
)
