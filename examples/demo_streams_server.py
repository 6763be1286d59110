"""The server side of demo_streams.py: a private Redis or PostgreSQL, and an app that streams runs, in three workers.

As a script, it runs both until its stdin is closed or its parent has ended, however that happened. Then it removes
them. A byte on its stdin kills the database by SIGKILL, and starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from demo_workers_server import ENGINES, named, run_workers
from private_servers import Postgres, Redis, Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from aiopurgatory.streams import EventLog
from aiopurgatory.web import EventRoute

#: Tokens per second of each run; the lease of a run, in seconds.
RATE, LEASE = 20.0, 4.0
URL = "DEMO_URL"


class DurableRedis(Redis):
    """It keeps all acknowledged data."""

    settings = ("appendonly yes", "appendfsync always")


SERVERS: dict[str, type[Server]] = {"redis": DurableRedis, "postgres": Postgres}


def log_at(url: str) -> EventLog:
    if url.startswith("redis"):
        from aiopurgatory.streams.redis import RedisLog

        return RedisLog(url)
    from aiopurgatory.streams.postgres import PostgresLog

    return PostgresLog(url)


def create_app() -> ASGIApp:
    """The app, in a worker process."""
    logging.getLogger("aiopurgatory").setLevel(logging.ERROR)  # not that its server is away: the demo kills it
    log = log_at(os.environ[URL])
    tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with log:
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def produce(name: str, tokens: int) -> None:
        async with log.run(name, lease=LEASE) as run:
            for number in range(tokens):
                await asyncio.sleep(1 / RATE)
                await run.append(f"{number} {time.monotonic()} {os.getpid()}", "token")

    async def begin(request: Request) -> Response:
        task = asyncio.create_task(produce(request.path_params["run"], int(request.query_params["tokens"])))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return Response(status_code=202)

    async def tell_worker(request: Request) -> Response:
        return Response()

    routes = [
        Route("/", tell_worker),
        Route("/runs/{run}", EventRoute(log), methods=["GET"]),
        Route("/runs/{run}", begin, methods=["POST"]),
    ]
    return named(Starlette(lifespan=lifespan, routes=routes))


async def create_tables(url: str) -> None:
    import asyncpg

    from aiopurgatory.streams.postgres import tables_sql

    connection = await asyncpg.connect(url)
    await connection.execute(tables_sql())
    await connection.close()


def main() -> None:
    name, port = sys.argv[1:]
    with SERVERS[name]() as server:
        print(f"{ENGINES[name].name}: {server.url()} in {server.folder}; removed at the end", flush=True)
        if name == "postgres":
            asyncio.run(create_tables(server.url()))

        def restart() -> None:
            server.kill()
            server.start()

        run_workers("demo_streams_server:create_app", port, {URL: server.url()}, restart)


if __name__ == "__main__":
    main()
