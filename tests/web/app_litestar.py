"""The endpoints of apps.py for Litestar."""

from typing import Any

import litestar

from .apps import bump, polling, statistics


@litestar.get("/polls/{topic:str}")
async def poll(topic: str, request: litestar.Request[Any, Any, Any]) -> litestar.Response[bytes]:
    answer = await polling.answer(topic, request.headers, request.query_params, receive=request.receive)
    return litestar.Response(answer.body, status_code=answer.status, headers=answer.headers)


@litestar.post("/polls/{topic:str}", status_code=200)
async def publish(topic: str) -> litestar.Response[str]:
    return litestar.Response(bump(topic), media_type="text/plain")


@litestar.get("/statistics")
async def tell() -> dict[str, Any]:
    return statistics()


def app() -> litestar.Litestar:
    return litestar.Litestar([poll, publish, tell])
