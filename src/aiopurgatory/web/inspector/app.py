"""The inspector: an ASGI app with the live page of one or more purgatories, its long polls, and a search.

    app.mount("/purgatory", Inspector([purgatory]))  # or [polling], to see how its polls were answered, too

The page shows the timing wheels as rings, with the fill of their buckets and the position of their hands; what is
pending and how operations end, over the last five minutes in which a page was open; the most watched keys and the
oldest operations; of a LongPolling, how polls were answered. It can find a key. It cannot change anything.

It has no authentication: mount it behind your app's own, for instance with Starlette:

    Mount("/purgatory", Inspector([purgatory]), middleware=[Middleware(YourAuthentication)])

The page is one file that loads nothing from elsewhere. It refreshes itself by long polls, which wait in a purgatory of
the inspector's own. While any page is open, a snapshot is taken once a second; otherwise, never. A snapshot visits only
some of very many keys, and the page says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import AbstractEventLoop
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...errors import PurgatoryError
from ...purgatory import Purgatory
from ..asgi import Message, listen
from ..longpoll import LongPolling
from ..polls import MAX_MESSAGES
from .hosts import Hosts
from .names import MAX_NAME, Names
from .snapshot import Row, find
from .view import Poll, View

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Characters of a search.
MAX_SEARCH: Final = 200
#: Searches that run or wait. One at a time runs, so that many take no more of the loop than one does.
MAX_SEARCHES: Final = 10

HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
RETRY: Final = {"retry-after": "5"}


class Inspector:
    """An ASGI app with the live page of one or more purgatories, to be mounted.

    Args:
        purgatories: what to show. A LongPolling stands for its purgatory, and for how its polls were answered. Each
            must run in the event loop that serves the page. They may be started later, closed, and started again.
        show_keys: show keys as they are. False (default): show numbers instead, from which the keys cannot be computed.
            A number stands for the same key as long as this object lives, and a search by the key still finds it.
        allowed_hosts: names under which the page may be reached, without ports: "example.com", or "*.example.com" for
            its subdomains. Default: localhost, its subdomains, 127.0.0.1 and [::1]. A request for another host is
            answered 400, so that no other site can read the page by DNS rebinding. Behind a proxy, name the Host that
            it passes on. ["*"] allows every host.

    Raises: TypeError: something else than purgatories, or one str of hosts; ValueError: none of them, or a host that
        could never match.

    Cost: nothing while no page is open; else, for each purgatory shown, one snapshot of its figures per second and, if
    they have changed, of at most 20,500 of its keys.
    """

    def __init__(
        self,
        purgatories: Iterable[Purgatory | LongPolling[Any]],
        *,
        show_keys: bool = False,
        allowed_hosts: Iterable[str] = Hosts.LOOPBACK,
    ) -> None:
        shown = list(purgatories)
        for each in shown:
            if not isinstance(each, Purgatory | LongPolling):
                raise TypeError(f"purgatories must be instances of Purgatory or LongPolling, got {each!r}")
        if not shown:
            raise ValueError("purgatories must name at least one purgatory, got none")
        self._names = Names(show_keys)
        self._views = [View(each, self._names) for each in shown]
        self._hosts = Hosts(allowed_hosts)
        self._line: _Line | None = None
        routes = [Route("/", self._page), Route("/state", self._state), Route("/search", self._search)]
        self._app = Starlette(routes=routes, exception_handlers={PurgatoryError: _unavailable})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            named = Headers(scope=scope).getlist("host")
            if not self._hosts.allow(named):
                await _refusal(named)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        html, policy = _page()
        return HTMLResponse(html, headers=HEADERS | {"content-security-policy": policy})

    async def _state(self, request: Request) -> Response:
        """What the page shows, as soon as there is something newer than *after*; 204 if there is not for a while."""
        view = self._view(request)
        poll = await view.poll(request.query_params.get("after", ""))
        if not await _ended_before_client_left(poll, request):
            return _nobody_reads()
        state = poll.result()
        if state is None:
            return Response(status_code=204, headers=HEADERS)
        names = [view.purgatory.name for view in self._views]
        return _answer(state | {"purgatories": names, "hashed": not self._names.shown})

    async def _search(self, request: Request) -> Response:
        view = self._view(request)
        text = request.query_params.get("key", "").strip()
        if not 0 < len(text) <= MAX_SEARCH:
            raise HTTPException(400, f"key must have 1 to {MAX_SEARCH} characters", HEADERS)
        loop = asyncio.get_running_loop()
        if self._line is None or self._line.loop is not loop:
            self._line = _Line(loop)
        return await self._line.search(view, self._names, text, request)

    def _view(self, request: Request) -> View:
        index = request.query_params.get("purgatory", "0")
        if not (index.isascii() and index.isdecimal() and len(index) < 6 and int(index) < len(self._views)):
            raise HTTPException(404, f"purgatory must be a number below {len(self._views)}", HEADERS)
        view = self._views[int(index)]
        if view.is_elsewhere():
            raise HTTPException(409, "this purgatory runs in another event loop than the page", HEADERS)
        return view


class _Line:
    """The searches of one event loop: one runs, the others stand in line."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._first = asyncio.Lock()
        self._length = 0

    async def search(self, view: View, names: Names, text: str, request: Request) -> Response:
        if self._length >= MAX_SEARCHES:
            raise HTTPException(503, f"{MAX_SEARCHES} searches are waiting", HEADERS | RETRY)
        self._length += 1
        search = asyncio.create_task(self._search(view, names, text))
        try:
            return _answer(search.result()) if await _ended_before_client_left(search, request) else _nobody_reads()
        finally:
            self._length -= 1

    async def _search(self, view: View, names: Names, text: str) -> Row:
        async with self._first:
            return await find(view.purgatory, names, text)


def _refusal(named: list[str]) -> Response:
    host = repr(", ".join(named))[:MAX_NAME]
    text = f"The host {host} is not allowed here. If it should be, name it in the Inspector's allowed_hosts"
    return PlainTextResponse(text, 400, HEADERS)


def _nobody_reads() -> Response:
    """The client has left."""
    return Response(status_code=499)


def _answer(data: Row) -> Response:
    # Not as JSONResponse does it: a name may be no valid UTF-8.
    return Response(json.dumps(data, allow_nan=False), headers=HEADERS, media_type="application/json")


@cache
def _page() -> tuple[str, str]:
    """The page, and a content security policy that allows the script and the style in it and nothing else."""
    html = files("aiopurgatory.web.inspector").joinpath("inspector.html").read_text("utf-8")

    def source(tag: str) -> str:
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return f"{tag}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    rules = [
        "default-src 'none'",
        source("script"),
        source("style"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return html, "; ".join(rules)


async def _unavailable(request: Request, exc: Exception) -> Response:
    """Too many pages are open, or the last snapshot failed."""
    return Response(status_code=503, headers=HEADERS | RETRY)


async def _ended_before_client_left(waiting: Poll | asyncio.Task[Row], request: Request) -> bool:
    """Wait for *waiting*, and cancel it at once if the client disconnects, which only receive() tells.

    The handler is not cancelled. (LongPoll keeps the same in itself, and so saves an object for each parked poll.)
    """
    messages = 0

    def heard(message: Message | None) -> bool:
        nonlocal messages
        messages += 1
        if message is not None and message["type"] == "http.disconnect":
            waiting.cancel()
            return False
        return message is not None and messages < MAX_MESSAGES

    listener = listen(request.receive, heard)
    try:
        await asyncio.wait([cast("asyncio.Task[Any]", waiting)])  # an operation is a future without being a Future
    finally:
        listener.cancel()
        waiting.cancel()  # if the handler itself was cancelled
    return not waiting.cancelled()
