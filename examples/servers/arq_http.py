"""GET /jobs/{id} answers with the state of an arq job, and ?wait=30 once it has ended.

    cd examples/servers && REDIS_URL=redis://127.0.0.1:6379 uvicorn --workers 2 --factory arq_http:from_environment

The workers publish the end of each job, as in arq_results.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import ArqRedis, create_pool
from arq.connections import RedisSettings
from arq.jobs import Job, JobStatus
from fastapi import FastAPI
from starlette.routing import Route

from aiopurgatory import NotFoundError, Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import LongPolling, LongPollRoute, Policy


class Jobs:
    pool: ArqRedis

    async def version(self, job: str) -> str:
        status = await Job(job, self.pool).status()
        if status is JobStatus.not_found:
            raise NotFoundError(f"there is no job {job}")
        return "ended" if status is JobStatus.complete else "running"

    async def read(self, job: str, since: str | None, version: str) -> tuple[str, bytes]:
        info = await Job(job, self.pool).result_info()
        if info is None:
            return "running", b'{"state": "running"}'
        state, result = ("done", info.result) if info.success else ("failed", repr(info.result))
        return "ended", json.dumps({"state": state, "result": result}).encode()


def since(scope: Any) -> str | None:
    """Return the version that the client has: it waits for another."""
    return "running" if b"wait=" in scope["query_string"] else None


def service(redis_url: str) -> FastAPI:
    jobs = Jobs()
    polling = LongPolling(Purgatory("results"), jobs, policy=Policy(max_wait=30.0))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        bus = RedisBus(redis_url, [polling], name="aiopurgatory.arq")
        async with await create_pool(RedisSettings.from_dsn(redis_url)) as jobs.pool, polling, bus:
            yield

    return FastAPI(
        lifespan=lifespan, routes=[Route("/jobs/{job}", LongPollRoute(polling, since=since), methods=["GET"])]
    )


def from_environment() -> FastAPI:
    return service(os.environ["REDIS_URL"])
