"""FastAPI's own server-sent events, of a value that any worker changes. python examples/servers/fastapi_sse.py

    cd examples/servers && REDIS_URL=redis://127.0.0.1:6379 uvicorn --workers 3 fastapi_sse:app

    curl -N localhost:8000/orders/7/events
    curl -X PUT 'localhost:8000/orders/7?state=shipped'

Each stream is one operation, and a wake-up reads its order once, even if it has changed several times. `EventRoute`
does more: limits, clients that do not read, shared reads. This is for handlers that must be FastAPI's. As a script, it
starts a Redis, changes an order twice, and shows the events.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import FastAPI, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from redis.asyncio import Redis

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import close_on_stop


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with Purgatory("orders") as purgatory, RedisBus(url, [purgatory], name="aiopurgatory.orders") as bus:
        close_on_stop(purgatory)  # the streams end at SIGTERM; the server would wait for them
        app.state.purgatory, app.state.bus, app.state.redis = purgatory, bus, Redis.from_url(url)
        yield
        await app.state.redis.aclose()


app = FastAPI(lifespan=lifespan)


@app.get("/orders/{order}/events", response_class=EventSourceResponse)
async def events(order: str, last_event_id: Annotated[str | None, Header()] = None) -> AsyncIterator[ServerSentEvent]:
    async def newer(since: str | None) -> tuple[str, ServerSentEvent] | None:
        version, state = await app.state.redis.hmget(f"order:{order}", "version", "state")
        if version is None or version.decode() == since:
            return None
        return version.decode(), ServerSentEvent(data=state.decode(), id=version.decode())

    async with app.state.purgatory.follow([order], newer, last_event_id) as changes:
        async for event in changes:
            yield event


@app.put("/orders/{order}", status_code=204)
async def change(order: str, state: str) -> None:
    async with app.state.redis.pipeline() as transaction:
        await transaction.hincrby(f"order:{order}", "version").hset(f"order:{order}", "state", state).execute()
    app.state.bus.publish(order)


async def main() -> None:
    from alone import Redis as PrivateRedis  # examples/servers/alone.py
    from alone import serving

    with PrivateRedis() as redis:
        os.environ["REDIS_URL"] = redis.url()
        async with serving(app) as (url,), httpx.AsyncClient(base_url=url) as client:
            await client.put("/orders/7", params={"state": "paid"})
            async with client.stream("GET", "/orders/7/events") as answer:
                lines = answer.aiter_lines()
                print(await anext(lines))
                await client.put("/orders/7", params={"state": "shipped"})
                async for line in lines:
                    if line.startswith("data"):
                        print(line)
                        break


if __name__ == "__main__":
    asyncio.run(main())
