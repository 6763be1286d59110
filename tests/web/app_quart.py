"""The endpoints of apps.py for Quart."""

from typing import Any

import quart

from .apps import bump, polling, statistics


def app() -> quart.Quart:
    app = quart.Quart(__name__)

    @app.get("/polls/<topic>")
    async def poll(topic: str) -> quart.Response:
        answer = await polling.answer(topic, quart.request.headers, quart.request.args)
        return quart.Response(answer.body, answer.status, answer.headers)

    @app.post("/polls/<topic>")
    async def publish(topic: str) -> str:
        return bump(topic)

    @app.get("/statistics")
    async def tell() -> dict[str, Any]:
        return statistics()

    return app
