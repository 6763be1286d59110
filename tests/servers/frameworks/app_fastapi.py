"""FastAPI."""

from __future__ import annotations

from fastapi import FastAPI

from aiopurgatory.web import PurgatoryMiddleware, while_connected

from . import jobs

app = FastAPI()
app.add_middleware(PurgatoryMiddleware, purgatory=jobs.purgatory)


@app.get("/next")
async def next_job() -> str:
    async with while_connected():
        return await jobs.next_job()


@app.post("/put")
async def put() -> str:
    return jobs.put()


@app.get("/state")
async def state() -> str:
    return jobs.state()
