"""GET /tasks/{id} answers with the state of a taskiq task, and ?wait=30 once it has ended.

    cd examples/servers && REDIS_URL=redis://127.0.0.1:6379 uvicorn --workers 2 --factory taskiq_http:from_environment

The workers publish the end of each task, as in taskiq_results.py. taskiq does not know which ids exist: check first
that the id is one of yours, or the client waits for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from taskiq_redis import RedisAsyncResultBackend

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import LongPolling, LongPollRoute, Policy


class Tasks:
    def __init__(self, backend: RedisAsyncResultBackend[Any]) -> None:
        self._backend = backend

    async def version(self, task: str) -> str:
        return "ended" if await self._backend.is_result_ready(task) else "running"

    async def read(self, task: str, since: str | None, version: str) -> bytes:
        if version == "running":
            return b'{"state": "running"}'
        found = await self._backend.get_result(task)
        state, result = ("failed", repr(found.error)) if found.is_err else ("done", found.return_value)
        return json.dumps({"state": state, "result": result}).encode()


def since(scope: Any) -> str | None:
    """Return the version that the client has: it waits for another."""
    return "running" if b"wait=" in scope["query_string"] else None


def service(redis_url: str) -> FastAPI:
    backend: Any = RedisAsyncResultBackend(redis_url)
    polling = LongPolling(Purgatory("results"), Tasks(backend), policy=Policy(max_wait=30.0))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with polling, RedisBus(redis_url, [polling], name="aiopurgatory.taskiq"):
            yield
        await backend.shutdown()

    return FastAPI(
        lifespan=lifespan, routes=[Route("/tasks/{task}", LongPollRoute(polling, since=since), methods=["GET"])]
    )


def from_environment() -> FastAPI:
    return service(os.environ["REDIS_URL"])
