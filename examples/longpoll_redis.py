r"""Long polls of Redis streams, with any number of worker processes. (Redis 6.2 or newer, or Valkey)

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 3 longpoll_redis:app

    curl -i localhost:8000/topics/orders                         200, the last 100 events, and an ETag
    curl -i localhost:8000/topics/orders -H 'If-None-Match: "1754400000000-0"' -H 'Prefer: wait=20'
                                                                 waits; 200 and events after that, or else 304
    curl localhost:8000/topics/orders --json '{"item": "1"}'     201 {"id":"1754400000001-0"}
    printf '%s\n' 'XADD events:orders * item 2' 'PUBLISH aiopurgatory "\"orders\""' | redis-cli -u $REDIS_URL

Each of the last two commands answers the polls waiting for ``orders``, in every worker. The ETag is the id of the last
entry. After an answer 410, start over without If-None-Match: the client's last entry is no longer in the stream.
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

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import LongPolling, LongPollRoute

TOPIC = r"[\w.-]{1,100}"
FIRST_READ = 100
#: Entries that a stream keeps. A client that is further behind is answered 410.
KEPT = 10_000
TIMEOUT = 5.0
EMPTY = "0-0"


class Events:
    """The source of the polls. A woken worker reads the stream itself: the bus carries keys, not data."""

    redis: Redis

    async def version(self, topic: str) -> str:
        async with asyncio.timeout(TIMEOUT):
            newest: list[Any] = await self.redis.xrevrange(stream(topic), count=1) or []
        return str(newest[0][0]) if newest else EMPTY

    async def read(self, topic: str, since: str | None, version: str) -> bytes:
        """The entries after *since*, up to *version*: the next poll would repeat any later ones."""
        entries: list[Any]
        async with asyncio.timeout(TIMEOUT):
            if since is None:
                entries = await self.redis.xrevrange(stream(topic), max=version, count=FIRST_READ) or []
                entries.reverse()
            else:
                entries = await self.redis.xrange(stream(topic), min=entry_id(since), max=version) or []
                # The client's last entry must still be there. It is not if the stream was trimmed, or lost in a crash.
                # A client that saw an empty stream has no entry: for it, nothing may have been trimmed yet.
                is_here = await self.redis.xlen(stream(topic)) < KEPT if since == EMPTY else since in dict(entries[:1])
                if not is_here:
                    raise GoneError(f"entry {since} of {topic} no longer exists; start over without If-None-Match")
        return json.dumps([{"id": entry, "data": data} for entry, data in entries if entry != since]).encode()


def stream(topic: str) -> str:
    return f"events:{topic}"


def entry_id(since: str) -> str:
    """Validate *since*: clients may send anything as their version."""
    if not re.fullmatch(r"\d{1,18}-\d{1,18}", since, re.ASCII):
        raise GoneError("the version in If-None-Match is unknown; start over without it")
    return since


def topic_of(scope: Scope) -> str:
    topic: str = scope["path_params"]["topic"]
    if not re.fullmatch(TOPIC, topic):
        raise HTTPException(404, f"topic must be 1 to 100 letters, digits and _.-, got {topic[:100]!r}")
    return topic


events = Events()
polling = LongPolling(Purgatory("polls"), events)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    # On Python 3.11, redis-py's own timeouts lose cancellations, so TIMEOUT replaces them.
    # The client does not retry: an XADD that is sent again could append twice.
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
        app.state.bus.publish(topic)  # the entry can be read now; after a timeout it may exist, too
    return {"id": str(entry)}
