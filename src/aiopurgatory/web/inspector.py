"""The live page: what waits in a purgatory, and what becomes of it. ``pip install "aiopurgatory[web]"``

    app.mount("/purgatory", Inspector([purgatory]))

It shows the timing wheels as rings, how full their buckets are and where they stand; what is pending and how
operations end, over the last five minutes in which a page was open; the most watched keys and the oldest waiters; and
it finds a key. It cannot change anything.

It asks nobody who they are: put it behind the app's own authentication, for instance with Starlette:

    Mount("/purgatory", Inspector([purgatory]), middleware=[Middleware(YourAuthentication)])

The page is one file that loads nothing from elsewhere. It refreshes itself by long polls, which wait in a purgatory of
the inspector's own, so that what is shown does not count who looks. The purgatory is looked at once a second while a
page is open, however many are, and not at all otherwise; and no look holds the event loop for more than a few
milliseconds, whatever is pending: of many keys only some are looked at, and the page says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING, Final

from ..errors import PurgatoryError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .listening import Message, listen
from .looks import Names, Row, find, hands, look_at_figures, look_at_keys

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route
except ImportError as exc:
    raise ImportError('the inspector needs Starlette: pip install "aiopurgatory[web]"') from exc

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Seconds between two looks at a purgatory.
REFRESH: Final = 1.0
#: Seconds that a poll waits for news; short, for a server that waits for its last answers before it stops.
LONGEST_POLL: Final = 10.0
#: Seconds without a poll after which nobody looks on any more; more than LONGEST_POLL.
LINGER: Final = 30.0
#: Polls that may wait at once; there is one per open page.
MAX_POLLS: Final = 100
#: The looks that a page's charts go back.
HISTORY: Final = 300
#: Characters of a search.
MAX_SEARCH: Final = 200

HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Inspector:
    """An ASGI app with the live page of one or more purgatories, to be mounted.

    Args:
        purgatories: what to show; each must run in the event loop that serves the page. They need not be started yet.
        show_keys: show keys as they are. Else a page shows numbers instead, which stand for the same keys as long as
            this object lives, and tell nothing else; a search still finds a key that is known.

    Raises: TypeError: something else than purgatories; ValueError: none of them.

    Cost: nothing while no page is open; then, for each purgatory that is shown, a look at its figures per second, and
    at no more than 20,500 of its keys if something has changed.
    """

    def __init__(self, purgatories: Iterable[Purgatory], *, show_keys: bool = False) -> None:
        shown = list(purgatories)
        for purgatory in shown:
            if not isinstance(purgatory, Purgatory):
                raise TypeError(f"purgatories must be instances of Purgatory, got {purgatory!r}")
        if not shown:
            raise ValueError("purgatories must name at least one purgatory, got none")
        self._names = Names(show_keys)
        self._views = [_View(purgatory, self._names) for purgatory in shown]
        self._searching = asyncio.Semaphore()
        routes = [Route("/", self._page), Route("/state", self._state), Route("/search", self._search)]
        self._app = Starlette(routes=routes, exception_handlers={PurgatoryError: _unavailable})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        html, policy = _page()
        return HTMLResponse(html, headers=HEADERS | {"content-security-policy": policy})

    async def _state(self, request: Request) -> Response:
        """What the page shows, as soon as it differs from what it knows, *after*; 204 if it does not for a while."""
        view = self._view(request)
        op = await view.poll(request.query_params.get("after", ""))
        if not await _ended_before_client_left(op, request):
            return Response(status_code=499)  # nobody there to read it
        state = op.result()
        if state is None:
            return Response(status_code=204, headers=HEADERS)
        names = [view.purgatory._name for view in self._views]
        return _answer(state | {"purgatories": names, "hashed": not self._names.shown})

    async def _search(self, request: Request) -> Response:
        view = self._view(request)
        text = request.query_params.get("key", "").strip()
        if not 0 < len(text) <= MAX_SEARCH:
            raise HTTPException(400, f"key must have 1 to {MAX_SEARCH} characters", HEADERS)
        async with self._searching:  # one at a time, so that many cost the loop no more than one
            return _answer(await find(view.purgatory, self._names, text))

    def _view(self, request: Request) -> _View:
        index = request.query_params.get("purgatory", "0")
        if not (index.isascii() and index.isdecimal() and len(index) < 6 and int(index) < len(self._views)):
            raise HTTPException(404, f"purgatory must be a number below {len(self._views)}", HEADERS)
        view = self._views[int(index)]
        loop = view.purgatory._loop
        if loop is not None and loop is not asyncio.get_running_loop():
            raise HTTPException(409, "this purgatory runs in another event loop than the page", HEADERS)
        return view


def _answer(data: Row) -> Response:
    # Not as JSONResponse does it: a name may be no valid UTF-8.
    return Response(json.dumps(data, allow_nan=False), headers=HEADERS, media_type="application/json")


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy by which a browser runs what is in it and nothing else."""
    html = files("aiopurgatory.web").joinpath("inspector.html").read_text("utf-8")

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
    """Too many pages are open, or the last look failed."""
    return Response(status_code=503, headers=HEADERS | {"retry-after": "5"})


async def _ended_before_client_left(op: _Poll, request: Request) -> bool:
    """Wait for *op*, which is cancelled the moment that the client hangs up: that shows in receive() alone."""

    left = False

    def heard(message: Message | None) -> bool:
        nonlocal left
        left = message is None or message["type"] == "http.disconnect"
        if left:
            op.cancel()
        return not left

    listener = listen(request.receive, heard)
    try:
        await op
    except asyncio.CancelledError:
        if left:
            return False
        raise  # it is the handler that was cancelled
    finally:
        listener.cancel()
    return True


class _Poll(DelayedOperation[Row | None]):
    """A page that waits for news. Its result: what there is to show, or None if time ran out."""

    __slots__ = ("seen", "view")

    def __init__(self, view: _View, seen: int) -> None:
        super().__init__(LONGEST_POLL)
        self.view = view
        self.seen = seen

    def try_complete(self) -> bool:
        return self.view.shown is not None and self.view.version > self.seen and self.force_complete()

    def on_complete(self) -> Row | None:
        return None if self.expired else self.view.answer(self.seen)


class _View:
    """One purgatory as the open pages see it."""

    def __init__(self, purgatory: Purgatory, names: Names) -> None:
        self.purgatory = purgatory
        self.names = names
        self.run = secrets.token_hex(4)  # a page may come from an earlier one
        self.version = 0
        self.shown: Row | None = None  # the last look, while somebody looks on
        self.history: deque[tuple[int, list[float]]] = deque(maxlen=HISTORY)  # versions, and what the charts show
        self.unchanged = -inf  # when nothing had changed yet
        self.polls = Purgatory("inspector")
        self.looking: asyncio.Task[None] | None = None
        self.asked_at = 0.0

    async def poll(self, after: str) -> _Poll:
        self.asked_at = time.monotonic()
        if not self.polls._open or self.polls._loop is not asyncio.get_running_loop():
            # atomic: no await; start() is one that never waits
            self.shown = None
            self.polls = Purgatory("inspector", max_pending=MAX_POLLS)
            await self.polls.start()
            self.looking = asyncio.create_task(self._look_on(self.polls))
        run, _, version = after.partition("-")
        knows = run == self.run and version.isascii() and version.isdecimal() and len(version) < 16
        return self.polls.watch(_Poll(self, int(version) if knows else -1), ["news"])

    def answer(self, seen: int) -> Row:
        """What a page is told that has seen version *seen*."""
        assert self.shown is not None
        return self.shown | {
            "cursor": f"{self.run}-{self.version}",
            "now": time.monotonic(),
            "clock": self.purgatory._time(),
            "hands": hands(self.purgatory),
            "history": [row for version, row in self.history if version > seen],
        }

    async def _look_on(self, polls: Purgatory) -> None:
        """Look once a second, until nobody has asked for a while or there is nothing more to see."""
        purgatory = self.purgatory
        clock_task: asyncio.Task[None] | None = None

        closed = asyncio.Event()

        def close(_: object) -> None:
            closed.set()

        seen: Row | None = None
        try:
            async with polls:
                while self.asked_at + LINGER > time.monotonic():
                    if clock_task is None and (clock_task := purgatory._task) is not None:
                        clock_task.add_done_callback(close)  # it ends when the purgatory closes, in whatever way
                    figures = look_at_figures(purgatory)
                    if figures != seen:
                        seen = figures
                        keys = await look_at_keys(purgatory, self.names)
                        self._show(figures | keys)
                    self.unchanged = time.monotonic()
                    if figures["state"] == "closed":
                        break
                    with contextlib.suppress(TimeoutError):  # not in polls, which may be full
                        await asyncio.wait_for(closed.wait(), REFRESH)
        finally:
            if clock_task is not None:
                clock_task.remove_done_callback(close)

    def _show(self, look: Row) -> None:
        statistics, now = look["statistics"], time.monotonic()
        row = [statistics[name] for name in ("pending", "completed", "expired", "cancelled", "failed")]
        self.version += 1
        if self.history and self.unchanged > self.history[-1][1][0]:
            # The charts draw lines: nothing had changed until then.
            self.history.append((self.version, [self.unchanged, *self.history[-1][1][1:]]))
        self.history.append((self.version, [now, *row]))
        self.shown = look
        self.polls.check_and_complete("news")
