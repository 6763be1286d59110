"""The inspector: an ASGI app with the live page of one or more purgatories, its long polls, and a search.

    app.mount("/purgatory", Inspector([purgatory]))  # or [polling], which also shows how its polls were answered
    app.mount("/purgatory", Inspector([polling, log], buses=[bus]))

The page begins with what is pending, ended, late and missed. It lists the missed checks by kind of key, the slowest and
the most watched keys, and the oldest operations. It charts the pending operations and their outcomes over the last five
minutes in which a page was open. It shows the answers of a LongPolling, the topics and listeners of an event log, the
state of each bus, and the timing wheels as rings. It can find a key. It cannot change anything. All of it is of one
process, and the page names that: with several workers, a reload may show another.

It has no authentication; mount it behind your app's own, for instance with Starlette:

    Mount("/purgatory", Inspector([purgatory]), middleware=[Middleware(YourAuthentication)])

The page is one file that loads nothing from elsewhere. It updates itself by this library's long polls, which wait in a
purgatory of the inspector's own. Stop signals end them, as LongPolling describes. A snapshot is taken once a second
while a page is open, otherwise never. With more than 20,000 keys it visits only some, and the page says so.
"""

from __future__ import annotations

import json
import re
from asyncio import AbstractEventLoop
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...arguments import Items, require, require_items
from ...bus import Bus
from ...clock import running_loop
from ...purgatory import Purgatory
from ...streams import EventLog
from ..connected import while_connected
from ..desk import Policy
from ..polling import LongPolling
from ..route import LongPollRoute
from .snapshot import MAX_NAME, Names, View, Views, find

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The most polls that may wait at once. Each open page has one.
MAX_POLLS: Final = 100
POLICY: Final = Policy(max_wait=10.0, retry_after=(5, 5))
#: The page, and the client that becomes a part of it.
_PARTS: Final = ("inspector/inspector.html", "js/poll.js")
#: The most characters of a search.
MAX_SEARCH: Final = 200
#: The most bytes of a query: it takes several times to parse a query as long as servers allow.
MAX_QUERY: Final = 8_192
#: The most searches that run or wait. Only one runs at a time, so that many take no more of the loop than one.
MAX_SEARCHES: Final = 10

HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


_NAME = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_ADDRESS = r"\[[0-9a-f:.]+\]"
_HOST = re.compile(rf"({_NAME}|{_ADDRESS})(?::[0-9]*)?")
_ALLOWED = re.compile(rf"\*|(?:\*\.)?{_NAME}|{_ADDRESS}")


class Hosts:
    """The allowed host names, as the Inspector takes them.

    A page of another site cannot read the answers of this one, but for two cases. It makes its own name resolve to this
    server (DNS rebinding), or a middleware around the app allows it (CORS). In the first case, the browser sends that
    name as the Host. In the second, it says where the request comes from.

    Why not Starlette's TrustedHostMiddleware: some supported releases split the Host at its first colon, so ``[::1]``
    never matches (Kludex/starlette #3321). Nor does its answer name the setting to change.

    Raises: TypeError: *allowed* is one str, or not iterable. ValueError: it is empty, or a name could never match.
    """

    LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.1", "[::1]")

    def __init__(self, allowed: Items[str]) -> None:
        require_items("allowed_hosts", allowed, "name")
        hosts = list(allowed)
        require(bool(hosts), "allowed_hosts", "one or more names", hosts)
        rule = "names without a port, such as 'example.com', '*.example.com', '[::1]' or '*'"
        for host in hosts:
            require(isinstance(host, str) and bool(_ALLOWED.fullmatch(host.lower())), "allowed_hosts", rule, host)
        self._names = {host.lower() for host in hosts}
        self._endings = tuple(name[1:] for name in self._names if name[:2] == "*.")

    def allow(self, headers: Sequence[str]) -> bool:
        """Whether a request with these Host headers may be answered. Ports are ignored."""
        if "*" in self._names:
            return True
        if len(headers) != 1 or not (found := _HOST.fullmatch(headers[0].lower())):
            return False
        return found[1] in self._names or found[1].endswith(self._endings)


def is_cross_origin(headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin could read the answer to a request with these *headers*."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # a link to the page is all right: a page cannot read the target
        return site not in ("same-origin", "none") and headers.get("sec-fetch-mode") != "navigate"
    # Browsers send no Sec-Fetch-Site over plain HTTP, but for this machine's own names.
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()


class Inspector:
    """An ASGI app with the live page of one or more purgatories, to be mounted.

    Args:
        purgatories: purgatories to show. A LongPolling is shown with its purgatory and the answers to its polls; an
            EventLog with its statistics and its purgatory, in which each listener is an operation. Each must run in the
            event loop that serves the page. It may be started later, closed, and started again.
        buses: buses to show beside them.
        show_keys: show keys as they are. False (default): show a hash of each instead, which does not reveal the key.
            A key keeps its hash as long as this object lives, and a search by the key still finds it.
        allowed_hosts: host names of the page, without ports: "example.com", or "*.example.com" for its subdomains.
            Default: localhost, its subdomains, 127.0.0.1 and [::1]. A request for another host is answered 400, so that
            no other site can read the page by DNS rebinding. Behind a proxy, give the Host that it passes on. ["*"]
            allows every host.

    Raises:
        TypeError: an item is not a purgatory, a LongPolling, an EventLog or a bus, or *allowed_hosts* is one str.
        ValueError: there is no purgatory or no host, or a host could never match.

    Cost: nothing while no page is open. Otherwise, per second and purgatory, a snapshot of its statistics and, if they
    have changed, of at most 20,500 of its keys.
    """

    def __init__(
        self,
        purgatories: Iterable[Purgatory | LongPolling[Any] | EventLog],
        *,
        buses: Iterable[Bus] = (),
        show_keys: bool = False,
        allowed_hosts: Items[str] = Hosts.LOOPBACK,
    ) -> None:
        require_items("purgatories", purgatories, "instance")
        require_items("buses", buses, "instance")
        shown, beside = list(purgatories), list(buses)
        for each in shown:
            if not isinstance(each, Purgatory | LongPolling | EventLog):
                raise TypeError(f"purgatories must be instances of Purgatory, LongPolling or EventLog, got {each!r}")
        require(bool(shown), "purgatories", "one or more instances", shown)
        for bus in beside:
            require(isinstance(bus, Bus), "buses", "instances of Bus", bus, TypeError)
        self._hosts = Hosts(allowed_hosts)
        self._names = Names(show_keys)
        polls = Purgatory("inspector", max_pending=MAX_POLLS)
        self._views = [View(each, beside, self._names) for each in shown]
        names = [view.purgatory.name for view in self._views]
        self._source = Views(self._views, {"purgatories": names, "hashed": not show_keys}, polls)
        polling = LongPolling(polls, self._source, policy=POLICY)
        # The page sends its cursor as If-None-Match. Scripts may pass it in the query.
        state = LongPollRoute(polling, resource=self._number, since=lambda scope: scope.query.get("after"))
        #: One search of each event loop runs. The others wait for their turn.
        self._turns: WeakKeyDictionary[AbstractEventLoop, anyio.Lock] = WeakKeyDictionary()
        self._app = Starlette(
            routes=[
                Route("/", _page(), methods=["GET"]),
                Route("/state", state, methods=["GET"]),
                Route("/search", self._search),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http":
            send = _with_headers(send)
            headers = Headers(scope=scope)
            named = headers.getlist("host")
            if not self._hosts.allow(named):
                host = repr(", ".join(named))[:MAX_NAME]
                text = f"The host {host} is not allowed here. To allow it, add it to the Inspector's allowed_hosts"
                app = PlainTextResponse(text, 400)
            elif is_cross_origin(headers):
                app = PlainTextResponse("Pages of other origins may not read this page", 403)
            elif len(scope["query_string"]) > MAX_QUERY:
                app = PlainTextResponse(f"The query must have at most {MAX_QUERY} bytes", 414)
        await app(scope, receive, send)

    async def _search(self, request: Request) -> Response:
        view = self._views[self._number(request.scope)]
        text = request.query_params.get("key", "").strip()
        if not 0 < len(text) <= MAX_SEARCH:
            raise HTTPException(400, f"key must have 1 to {MAX_SEARCH} characters")
        turn = self._turns.setdefault(running_loop(), anyio.Lock())
        if turn.statistics().tasks_waiting >= MAX_SEARCHES - 1:
            raise HTTPException(503, f"{MAX_SEARCHES} searches are waiting or running", {"retry-after": "5"})
        async with while_connected(request.receive), turn:
            found = await find(view.purgatory, self._names, text)
        # Not by JSONResponse, which fails if a name is not valid UTF-8.
        return Response(json.dumps(found, allow_nan=False), media_type="application/json")

    def _number(self, scope: Scope) -> int:
        """The number of the requested view."""
        number = HTTPConnection(scope).query_params.get("purgatory", "0")
        if not (number.isascii() and number.isdecimal() and len(number) < 6 and int(number) < len(self._views)):
            raise HTTPException(404, f"purgatory must be a number below {len(self._views)}")
        if self._views[int(number)].is_elsewhere():
            raise HTTPException(409, "this purgatory belongs to another event loop than the page")
        return int(number)


def _with_headers(send: Send) -> Send:
    """Add those HEADERS that an answer lacks."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_with_headers


@cache
def _page() -> Response:
    """The page, with a content security policy that allows only its own script and style."""
    html, client = [files("aiopurgatory.web").joinpath(path).read_text("utf-8") for path in _PARTS]
    html = html.replace("// poll.js", client.replace("export ", ""))

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
    return HTMLResponse(html, headers={"content-security-policy": "; ".join(rules)})
