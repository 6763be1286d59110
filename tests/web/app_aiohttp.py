"""The endpoints of apps.py for aiohttp."""

from aiohttp import web

from aiopurgatory.web.aiohttp import setup

from .apps import bump, polling, purgatory, statistics


async def poll(request: web.Request) -> web.Response:
    topic = request.match_info["topic"]
    answer = await polling.answer(topic, request.headers, request.query)
    return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


async def publish(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(text=bump(request.match_info["topic"]))


async def tell(request: web.Request) -> web.Response:
    return web.json_response(statistics())


def app() -> web.Application:
    app = web.Application()
    app.add_routes([web.get("/polls/{topic}", poll), web.post("/polls/{topic}", publish), web.get("/statistics", tell)])
    setup(app, purgatory)
    return app
