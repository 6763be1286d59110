"""The app behind the proxies. Its bodies are long enough to be compressed.

GET /polls/{topic}      a long poll; by ?since= or If-None-Match, of ?client=, and of ?group= at most one
POST /polls/{topic}     a new version; with ?gone, no client can resume from an older one
GET /polls/{topic}/address  where the request came from; without X-Forwarded-For, which connection
GET /events/{topic}     the same as a stream of events
GET /statistics         of the purgatory, and how many polls were answered 503
GET /page               has poll() and events() as window.poll and window.events
GET /shown              follows the topic "shown" as the page says: the news in window.news, its id in window.client
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, Policy

from ..apps import Topics
from .recipes import changed, recipe

PAGE = """<!doctype html><title>polls</title><link rel=icon href=data:,><script type=module>{}</script>"""


class Padded(Topics):
    def read(self, topic: str, since: str | None, version: str) -> bytes:
        return super().read(topic, since, version).ljust(700)


def parameter(name: str) -> Callable[[Scope], str | None]:
    """The arguments in a request's query."""
    return lambda scope: HTTPConnection(scope).query_params.get(name)


def starlette() -> Starlette:
    topics = Padded()
    purgatory = Purgatory("polls")
    polling = LongPolling(purgatory, topics, policy=Policy(max_per_group=1, retry_after=(2, 2)))

    async def publish(request: Request) -> Response:
        topic = request.path_params["topic"]
        topics.bump(topic)
        if "gone" in request.query_params:
            topics.oldest[topic] = topics.counters[topic]
        polling.notify(topic)
        return Response()

    async def statistics(request: Request) -> Response:
        turned_away = polling.statistics().answered.get(503, 0)
        return JSONResponse(asdict(purgatory.statistics()) | {"turned_away": turned_away})

    async def address(request: Request) -> Response:
        assert request.client is not None
        return Response("{}:{}".format(*request.client))

    async def page(request: Request) -> Response:
        loading = [f'import {{ {name} }} from "/js/{name}.js"; window.{name} = {name};' for name in ("events", "poll")]
        return HTMLResponse(PAGE.format(" ".join(loading)))

    async def shown(request: Request) -> Response:
        show = "window.news = []; window.client = client; const show = (news) => window.news.push(news);"
        follow = changed(recipe("js"), {"/polls/orders": "/polls/shown"})
        (note,) = re.findall("<p id=.*</p>", follow)
        return HTMLResponse(note + PAGE.format(show + follow))

    async def script(request: Request) -> Response:
        return Response(recipe("js", 1), media_type="text/javascript")

    route = LongPollRoute(polling, since=parameter("since"), client=parameter("client"), group=parameter("group"))
    return Starlette(
        routes=[
            Route("/polls/{topic}", route, methods=["GET"]),
            Route("/polls/{topic}", publish, methods=["POST"]),
            Route("/polls/{topic}/address", address),
            Route("/events/{topic}", EventRoute(polling)),
            Route("/statistics", statistics),
            Route("/page", page),
            Route("/shown", shown),
            Route("/client.js", script),
            Mount("/js", StaticFiles(packages=[("aiopurgatory.web", "js")])),
        ]
    )


def cross_origin() -> Starlette:
    """With the middleware of the page, for pages of http://app.example."""
    app = starlette()
    exec(changed(recipe("python", 1), {"https://app.example": "http://app.example"}), {"app": app})
    return app
