"""The app under test: a long poll in FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from aiopurgatory import Purgatory


def make_app(purgatory: Purgatory) -> FastAPI:
    """An app with a GET /messages that waits up to 30 s for a message after the client's last one."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with purgatory:
            yield

    app = FastAPI(lifespan=lifespan)
    messages: list[str] = []

    @app.get("/messages")
    async def poll(after: int = 0) -> Any:
        try:
            return await purgatory.wait_for(lambda: messages[after:], ["messages"], timeout=30.0)
        except TimeoutError:
            return Response(status_code=204)

    @app.post("/messages")
    async def publish(text: str) -> int:
        messages.append(text)
        return purgatory.check_and_complete("messages")

    return app
