r"""Long polls of Redis streams, with as many worker processes as you like. (Redis 6.2 or newer, or Valkey)

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 3 longpoll_redis:app

    curl -i localhost:8000/topics/orders                         200, the last 100 events, and an ETag
    curl -i localhost:8000/topics/orders -H 'If-None-Match: "1754400000000-0"' -H 'Prefer: wait=20'
                                                                 waits; 200 and what came after that, or else 304
    curl localhost:8000/topics/orders --json '{"item": "1"}'     201 {"id":"1754400000001-0"}
    printf '%s\n' 'XADD events:orders * item 2' 'PUBLISH aiopurgatory "\"orders\""' | redis-cli -u $REDIS_URL

Each of the last two answers the polls that wait for ``orders``, in every worker. The ETag is the id of the last entry.
After an answer 410, start over without If-None-Match: what the client has is not in the stream any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException, Path
from redis.asyncio import Redis
from starlette.routing import Route
from starlette.types import Scope

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import GoneError, LongPolling, LongPollRoute

TOPIC = r"[\w.-]{1,100}"
FIRST_READ = 100
#: Entries that a stream keeps, if not a few more. A client that is further behind is answered 410.
KEPT = 10_000
TIMEOUT = 5.0
EMPTY = "0-0"


class Events:
    """What clients poll. A woken worker reads the stream itself: the bus carries keys, and no data."""

    redis: Redis

    async def version(self, topic: str) -> str:
        async with asyncio.timeout(TIMEOUT):
            newest: list[Any] = await self.redis.xrevrange(stream(topic), count=1) or []
        return str(newest[0][0]) if newest else EMPTY

    async def read(self, topic: str, since: str | None, version: str) -> bytes:
        """The entries after *since*, and none after *version*: those would come again with the next poll."""
        entries: list[Any]
        async with asyncio.timeout(TIMEOUT):
            if since is None:
                entries = await self.redis.xrevrange(stream(topic), max=version, count=FIRST_READ) or []
                entries.reverse()
            else:
                entries = await self.redis.xrange(stream(topic), min=entry_id(since), max=version) or []
                # The client's own entry must still be there. It is not if the stream was cut, or lost in a crash.
                # A client that has seen an empty stream has none: for that one, nothing may have been cut yet.
                is_here = await self.redis.xlen(stream(topic)) < KEPT if since == EMPTY else since in dict(entries[:1])
                if not is_here:
                    raise GoneError(f"entry {since} of {topic} is not here any more: start over without If-None-Match")
        return json.dumps([{"id": entry, "data": data} for entry, data in entries if entry != since]).encode()


def stream(topic: str) -> str:
    return f"events:{topic}"


def entry_id(since: str) -> str:
    """Clients may send anything as their version."""
    if not re.fullmatch(r"\d{1,18}-\d{1,18}", since, re.ASCII):
        raise GoneError("the version in If-None-Match is none of ours: start over without it")
    return since


def topic_of(scope: Scope) -> str:
    topic: str = scope["path_params"]["topic"]
    if not re.fullmatch(TOPIC, topic):
        raise HTTPException(404, f"a topic is 1 to 100 letters, digits and _.-, got {topic[:100]!r}")
    return topic


events = Events()
polling = LongPolling(Purgatory("polls"), events)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    # On Python 3.11, redis-py's own timeouts lose cancellations: TIMEOUT is in its place.
    # One connection retries nothing: an XADD that is sent again could append twice.
    redis = Redis.from_url(url, socket_timeout=None, decode_responses=True, encoding_errors="replace")
    async with RedisBus(url, [polling]) as app.state.bus, redis as events.redis:
        yield


app = FastAPI(
    lifespan=lifespan, routes=[Route("/topics/{topic}", LongPollRoute(polling, resource=topic_of), methods=["GET"])]
)


@app.post("/topics/{topic}", status_code=201)
async def publish(
    topic: Annotated[str, Path(pattern=f"^{TOPIC}$")], data: Annotated[dict[str, str], Body(min_length=1)]
) -> dict[str, str]:
    fields: dict[Any, Any] = {**data}
    try:
        async with asyncio.timeout(TIMEOUT):
            entry = await events.redis.xadd(stream(topic), fields, maxlen=KEPT)
    finally:
        app.state.bus.publish(topic)  # now that the entry can be read; also after a time-out, when it may be there
    return {"id": str(entry)}
