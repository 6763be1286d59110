"""The endpoints of apps.py for FastAPI. Its streams of events are dependencies.

POST /threads/{topic}   a new version, published from a thread: FastAPI runs a ``def`` endpoint in one
"""

from typing import Annotated, Any

import fastapi
from starlette.responses import StreamingResponse

from aiopurgatory.web import EventAnswer, LongPollRoute

from .apps import bump, hasty, polling, statistics, topics


async def events_of(topic: str, request: fastapi.Request, client: str | None = None) -> EventAnswer:
    polls = polling if request.url.path.startswith("/events") else hasty
    return await polls.events(topic, request.headers, client=client, receive=request.receive)


Events = Annotated[EventAnswer, fastapi.Depends(events_of)]


def app() -> fastapi.FastAPI:
    app = fastapi.FastAPI()

    # It is typed for handlers alone, and takes ASGI endpoints; FastAPI(routes=[Route(...)]) is typed for both.
    app.add_route("/polls/{topic}", LongPollRoute(polling), methods=["GET"])  # type: ignore[arg-type]

    @app.get("/events/{topic}", response_class=StreamingResponse)
    @app.get("/hasty/{topic}", response_class=StreamingResponse)
    async def events(events: Events) -> StreamingResponse:
        return StreamingResponse(events, events.status, events.headers)

    @app.get("/deaf/{topic}", response_class=StreamingResponse)
    async def deaf(topic: str, request: fastapi.Request) -> StreamingResponse:
        events = await hasty.events(topic, request.headers)
        return StreamingResponse(events, events.status, events.headers)

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
