"""Socket.IO over engine.io's polls: values that every client follows, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.engineio:app --port 3000

    curl -X PUT --data red localhost:3000/values/apples    every client gets the event "value" with ["apples", "red"]

A client polls for the packets of its session, on whatever worker. Packets are kept until its next poll, which shows
that it has them. A client whose poll fails opens another session, and begins with the values as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aiopurgatory import NotFoundError, Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import Answer, LongPolling, Policy

PING_INTERVAL = 25.0
#: Between the packets of a payload.
SEPARATOR = "\x1e"

# The state: the values, the sessions with the time of their last poll, and the packets of each, the first *sent* of
# which are on their way.

CONFIRM = """if redis.call('ZADD', 'eio:polled', 'XX', 'CH', ARGV[2], ARGV[1]) == 0
and not redis.call('ZSCORE', 'eio:polled', ARGV[1]) then return -1 end
redis.call('LTRIM', 'eio:packets:' .. ARGV[1], redis.call('GETDEL', 'eio:sent:' .. ARGV[1]) or 0, -1)
return redis.call('LLEN', 'eio:packets:' .. ARGV[1])"""
CONNECT = """redis.call('RPUSH', 'eio:packets:' .. ARGV[1], '40{"sid":"' .. ARGV[1] .. '"}')
local values = redis.call('HGETALL', 'eio:values')
for i = 1, #values, 2 do
  redis.call('RPUSH', 'eio:packets:' .. ARGV[1], '42' .. cjson.encode({'value', values[i], values[i + 1]}))
end
redis.call('SADD', 'eio:connected', ARGV[1])"""
PUT = """redis.call('HSET', 'eio:values', ARGV[1], ARGV[2])
local sessions = redis.call('SMEMBERS', 'eio:connected')
for _, sid in ipairs(sessions) do
  if tonumber(redis.call('ZSCORE', 'eio:polled', sid) or 0) < tonumber(ARGV[3]) then
    redis.call('SREM', 'eio:connected', sid)
    redis.call('ZREM', 'eio:polled', sid)
    redis.call('DEL', 'eio:packets:' .. sid, 'eio:sent:' .. sid)
  else redis.call('RPUSH', 'eio:packets:' .. sid, '42' .. cjson.encode({'value', ARGV[1], ARGV[2]})) end
end
return sessions"""
#: The version of a session without packets: what every client has.
NOTHING = "0"


class Sessions:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def open(self) -> str:
        sid = uuid4().hex
        await self.redis.zadd("eio:polled", {sid: time()})
        return sid

    async def version(self, sid: str) -> str:
        """How many packets there are that the client has not got with its last poll."""
        number = int(await self.redis.eval(CONFIRM, 0, sid, time()))
        if number < 0:
            raise NotFoundError("there is no such session")
        return str(number)

    async def read(self, sid: str, since: str | None, version: str) -> bytes:
        packets = await self.redis.lrange(f"eio:packets:{sid}", 0, -1)
        await self.redis.set(f"eio:sent:{sid}", len(packets))
        return SEPARATOR.join(packets).encode()

    async def connect(self, sid: str) -> None:
        await self.redis.eval(CONNECT, 0, sid)

    async def put(self, name: str, value: str) -> list[str]:
        """Returns: the sessions. Those that have not polled for a minute are forgotten."""
        sessions: list[str] = await self.redis.eval(PUT, 0, name, value, time() - 60)
        return sessions


def as_engineio(polled: Answer) -> tuple[bytes, int, dict[str, str]]:
    """The packets. If there was none for PING_INTERVAL: a ping."""
    return polled.body or b"2", 200, {}


# The routes.

sessions = Sessions()
polling = LongPolling(Purgatory("eio"), sessions, media_type="text/plain", policy=Policy(max_wait=PING_INTERVAL))


async def get(request: Request) -> Response:
    sid = request.query_params.get("sid")
    if sid is None:
        times = {"pingInterval": PING_INTERVAL * 1000, "pingTimeout": 20_000, "maxPayload": 1_000_000}
        return PlainTextResponse("0" + json.dumps({"sid": await sessions.open(), "upgrades": [], **times}))
    answer = await polling.answer(sid, since=NOTHING, receive=request.receive, respond=as_engineio)
    return Response(answer.body, answer.status, answer.headers)


async def post(request: Request) -> Response:
    sid, packets = request.query_params["sid"], (await request.body()).decode().split(SEPARATOR)
    if any(packet.startswith("40") for packet in packets):
        await sessions.connect(sid)
        request.app.state.bus.publish(sid)
    return PlainTextResponse("ok")


async def put(request: Request) -> Response:
    for sid in await sessions.put(request.path_params["name"], (await request.body()).decode()):
        request.app.state.bus.publish(sid)
    return PlainTextResponse("ok")


async def left(request: Request, exc: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as sessions.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/socket.io/", get, methods=["GET"]),
        Route("/socket.io/", post, methods=["POST"]),
        Route("/values/{name}", put, methods=["PUT"]),
    ],
    exception_handlers={ClientDisconnect: left},
)
