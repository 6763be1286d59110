"""The endpoints of apps.py for FastAPI.

POST /threads/{topic}   a new version, published from a thread: FastAPI runs a ``def`` endpoint in one
"""

from typing import Any

import fastapi

from aiopurgatory.web import LongPollRoute

from .apps import bump, polling, statistics, topics


def app() -> fastapi.FastAPI:
    app = fastapi.FastAPI()

    # It is typed for handlers alone, and takes ASGI endpoints; FastAPI(routes=[Route(...)]) is typed for both.
    app.add_route("/polls/{topic}", LongPollRoute(polling), methods=["GET"])  # type: ignore[arg-type]

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

    return app
