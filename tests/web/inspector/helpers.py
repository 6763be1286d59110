"""An inspector served in the test's own loop, and requests over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.types import ASGIApp

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.web.inspector import Inspector

from ..browser import serving
from ..helpers import Answered


class Wait(DelayedOperation[str]):
    """Ends when it is told to."""

    ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()


@asynccontextmanager
async def serve(inspector: ASGIApp, *middleware: Middleware) -> AsyncIterator[int]:
    """An app with *inspector* mounted at /purgatory. Yields: its port."""
    app = Starlette(routes=[Mount("/purgatory", inspector)], middleware=middleware)
    async with serving(app) as port:
        yield port


async def get(port: int, path: str, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> Answered:
    """One request, on a connection that is closed afterwards, or at once if this is cancelled."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} /purgatory{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n".encode())
        return Answered(await reader.read())
    finally:
        writer.close()


async def state(port: int, after: str = "") -> Any:
    return (await get(port, f"/state?after={after}")).json


async def state_with(port: int, **figures: int) -> Any:
    """The first state with the statistics *figures*."""
    found = await state(port)
    while found["statistics"] | figures != found["statistics"]:
        found = await state(port, found["cursor"])
    return found


async def search(port: int, text: str) -> list[Any]:
    return cast(list[Any], (await get(port, f"/search?key={quote(text, errors='surrogatepass')}")).json["hits"])


def polls_of(inspector: Inspector) -> Purgatory:
    return inspector._source._polls
