"""FastAPI."""

from __future__ import annotations

from fastapi import FastAPI

from aiopurgatory.web import PurgatoryMiddleware, while_connected

from . import jobs

fastapi = FastAPI()
fastapi.add_middleware(PurgatoryMiddleware, purgatory=jobs.purgatory)


@fastapi.get("/next")
async def next_job() -> str:
    async with while_connected():
        return await jobs.next_job()


app = jobs.told(fastapi)
