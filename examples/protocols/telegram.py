"""Telegram's getUpdates, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.telegram:app --port 8081

    curl localhost:8081/chats/1:token --json '{"text": "hello"}'     an update for the bot with that token
    curl localhost:8081/bot1:token/getUpdates --data timeout=10

An update is kept until a bot asks for those after it: so none is lost with a client, or with what was on the wire.
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

# The state: the updates of each bot that it has not confirmed, by id. A poll asks for those from an offset on.

APPEND = """local id = redis.call('INCR', 'telegram:id')
redis.call('ZADD', KEYS[1], id, id .. ' ' .. ARGV[1])"""
#: What a bot has if there is nothing from its offset on.
NOTHING = "0"


class Updates:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def version(self, poll: tuple[str, int]) -> str:
        """How many updates there are from the offset on. A poll confirms those before it, as soon as it comes."""
        token, offset = poll
        await self.redis.zremrangebyscore(f"telegram:{token}", "-inf", f"({offset}")
        return str(await self.redis.zcount(f"telegram:{token}", offset, "inf"))

    async def read(self, poll: tuple[str, int], since: str | None, version: str) -> bytes:
        """Up to 100 updates from the offset on."""
        token, _ = poll
        found = [each.split(" ", 1) for each in await self.redis.zrange(f"telegram:{token}", 0, 99)]
        result = [{"update_id": int(number), "message": json.loads(message)} for number, message in found]
        return json.dumps({"ok": True, "result": result}).encode()


def poll_of(scope: RequestScope) -> tuple[str, int]:
    return scope["path_params"]["token"], int(scope.form.get("offset", 0))


# The routes.

updates = Updates()
polling = LongPolling(Purgatory("telegram"), updates, policy=Policy(max_wait=50.0))
get_updates = LongPollRoute(
    polling,
    methods=["POST"],
    resource=poll_of,
    keys=lambda scope: [scope["path_params"]["token"]],
    since=lambda scope: NOTHING,
    wait=lambda scope: scope.form.get("timeout", 0),
    respond=lambda polled: polled.body,
)


async def get_me(request: Request) -> JSONResponse:
    return JSONResponse({"ok": True, "result": {"id": 1, "is_bot": True, "first_name": request.path_params["token"]}})


async def send(request: Request) -> JSONResponse:
    token = request.path_params["token"]
    message = {"message_id": 1, "date": 0, "chat": {"id": 1, "type": "private"}, **await request.json()}
    await updates.redis.eval(APPEND, 1, f"telegram:{token}", json.dumps(message))
    request.app.state.bus.publish(token)
    return JSONResponse({"ok": True})


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with RedisBus(url, [polling]) as app.state.bus, Redis.from_url(url, decode_responses=True) as updates.redis:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/bot{token}/getUpdates", get_updates, methods=["POST"]),
        Route("/bot{token}/getMe", get_me, methods=["POST"]),
        Route("/chats/{token}", send, methods=["POST"]),
    ],
)
