"""The endpoints of apps.py for FastAPI."""

from typing import Any

import fastapi

from aiopurgatory.web.asgi import ASGIApp, LongPollApp

from .apps import bump, polling, purgatory, statistics


def app() -> ASGIApp:
    app = fastapi.FastAPI()

    @app.get("/polls/{topic}")
    async def poll(topic: str, request: fastapi.Request) -> fastapi.Response:
        answer = await polling.answer(topic, request.headers, request.query_params)
        return fastapi.Response(answer.body, answer.status, answer.headers)

    @app.post("/polls/{topic}")
    async def publish(topic: str) -> fastapi.Response:
        return fastapi.Response(bump(topic))

    @app.get("/statistics")
    async def tell() -> dict[str, Any]:
        return statistics()

    return LongPollApp(app, purgatory)
