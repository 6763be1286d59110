"""Starlette's WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from aiopurgatory import PurgatoryClosedError
from aiopurgatory.web import PurgatoryMiddleware

from . import jobs


async def socket(websocket: WebSocket) -> None:
    """Each message asks for a job. The socket itself tells that its client has left."""
    await websocket.accept()
    try:
        while True:
            await websocket.receive_text()
            await websocket.send_text(await while_it_is_open(websocket, jobs.next_job()))
    except WebSocketDisconnect:
        pass
    except PurgatoryClosedError:
        await websocket.close(1012)


async def while_it_is_open(websocket: WebSocket, work: Coroutine[Any, Any, str]) -> str:
    """Await *work*. Raises: WebSocketDisconnect: the client has left before its end."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(websocket.receive_text())
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            leaving.result()
        return await working
    finally:
        working.cancel()
        leaving.cancel()


starlette = Starlette(routes=[WebSocketRoute("/socket", socket)])
starlette.add_middleware(PurgatoryMiddleware, purgatory=jobs.purgatory)
app = jobs.told(starlette)
