"""A real browser, and servers in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from private_servers import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from aiopurgatory import Purgatory

from .polls import until

if TYPE_CHECKING:
    from selenium import webdriver


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    async def open(self, address: str) -> None:
        await asyncio.to_thread(self.driver.get, address)

    async def run(self, script: str) -> Any:
        return await asyncio.to_thread(self.driver.execute_script, script)

    async def until(self, script: str, expected: Any) -> None:
        """Wait until *script* returns what is *expected*; or of a function, what it holds for."""
        holds = expected if callable(expected) else lambda found: found == expected
        end = time.monotonic() + 15
        while not holds(found := await self.run(script)):
            assert time.monotonic() < end, f"{expected} was expected, and after 15 s it is {found}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(app: Any, port: int = 0, stop: Callable[[], object] = lambda: None) -> AsyncIterator[int]:
    """A server of *app*. Yields: its port. *stop* is called before it stops."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    with socket.create_server(("127.0.0.1", port)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started)
            yield listener.getsockname()[1]
        finally:
            for each in server.servers:
                each.close()  # a client that comes back must find nobody rather than a server that stops
            stop()
            server.should_exit = True
            await running


class Site:
    """Pages and routes on a server that can be stopped, and started again on the same port."""

    def __init__(self, purgatory: Purgatory, pages: dict[str, str], *routes: BaseRoute) -> None:
        self.purgatory = purgatory
        #: When requests for the routes came, and what they have of the client: its last id, or its version.
        self.requests: list[tuple[float, str, str]] = []
        #: The status and the headers of answers in the place of the routes'; 0: none.
        self.refusal: tuple[int, dict[str, str]] = (0, {})
        self.port = free_port()
        self._pages = pages
        scripts = Mount("/js", StaticFiles(packages=[("aiopurgatory.web", "js")]))
        self._app = Starlette(routes=[*(Route(path, self._page) for path in pages), scripts, *routes])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last_ids(self) -> list[str]:
        return [has for _, _, has in self.requests]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in self._pages and not scope["path"].startswith("/js"):
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            has = headers.get("last-event-id") or headers.get("if-none-match", "").strip('"')
            self.requests.append((time.monotonic(), scope["path"], has))
            status, headers = self.refusal
            if status:
                await Response("refused", status, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        await self.purgatory.start()
        async with serving(self, self.port, self.purgatory.close) as self.port:
            yield

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(self._pages[request.url.path])
