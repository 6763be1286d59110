"""The endpoints of apps.py for FastAPI.

POST /threads/{topic}   a new version, published from a thread: FastAPI runs a ``def`` endpoint in one
"""

from typing import Any

import fastapi

from aiopurgatory.web.asgi import ASGIApp, LongPollApp

from .apps import bump, polling, purgatory, statistics, topics


def app() -> ASGIApp:
    app = fastapi.FastAPI()

    @app.get("/polls/{topic}")
    async def poll(topic: str, request: fastapi.Request) -> fastapi.Response:
        answer = await polling.answer(topic, request.headers, request.query_params)
        return fastapi.Response(answer.body, answer.status, answer.headers)

    @app.post("/polls/{topic}")
    async def publish(topic: str) -> fastapi.Response:
        return fastapi.Response(bump(topic))

    @app.post("/threads/{topic}")
    def publish_in_thread(topic: str) -> fastapi.Response:
        topics.bump(topic)
        try:
            polling.notify(topic)
        except RuntimeError as exc:
            polling.notify_threadsafe(topic)
            return fastapi.Response(str(exc))
        raise AssertionError("notify() looked done in another thread")

    @app.get("/statistics")
    async def tell() -> dict[str, Any]:
        return statistics()

    return LongPollApp(app, purgatory)
