"""The route of long polls: an ASGI endpoint for any framework, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, final
from urllib.parse import unquote_plus

from ..errors import PurgatoryClosedError
from ..streams import EventLog
from .answer import Answer
from .asgi import Receive, Scope, Send, deliver
from .endpoint import Endpoint, joined
from .logs import LogResponder
from .policy import Policy
from .polling import LongPolling
from .prefer import MAX_FIELD, PollRequest
from .responder import Responder

_NO_LENGTH: Final = frozenset({204, 304})


@final
class LongPollRoute(Endpoint):
    """An ASGI endpoint that answers GET and HEAD with long polls of a source, or of an event log.

        Starlette(routes=[Route("/{topic}", LongPollRoute(polling), methods=["GET"])])  # FastAPI takes the same

    When the client disconnects, the poll ends within 50 ms, behind any middleware. Handlers of other requests are not
    affected. When the server's shutdown time is over and it cancels a poll, the client is answered 503; behind a
    BaseHTTPMiddleware, which is cancelled first, 500.

    A poll is answered 413 if its request has a body in more than 64 parts: servers report a disconnect only after the
    body. Prefer and If-None-Match are ignored if longer than 8,192 bytes, all lines together. Only the first 100
    preferences and entity tags are read.

    With an EventLog, the answer is a JSON array of the events after the client's, each with ``id``, ``name``, ``data``
    and ``is_end``. Its ETag is the id to send next, as If-None-Match, or in the query as ``after``. 204: the topic has
    ended. 410: events are gone, and the ETag is the id from which to go on. 404: no such topic has come.

    All arguments but *polling* and *policy* are functions of the ASGI scope.

    Args:
        polling: a LongPolling, which answers the polls, or an EventLog.
        policy: for an EventLog, the waits and limits; None (default): ``Policy()``.
        resource: the polled resource; default: the path's only parameter.
        since: the client's version; default: that of If-None-Match.
        keys: the keys to watch; default: *resource* alone.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that the poll's place counts against, as for ``LongPolling.answer()``; default: none.

    Cost: a parked poll takes about 1.6 kB more than the server and the framework need for a request.
    """

    _responder: Responder[Any] | LogResponder

    def _serve_log(self, log: EventLog, policy: Policy | None) -> None:
        self._responder = LogResponder(log, policy)

    def _serve(self, polling: LongPolling[Any]) -> None:
        self._responder = polling._responder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"LongPollRoute answers HTTP, got a scope of type {scope['type']!r}")
        if scope["method"] not in ("GET", "HEAD"):
            await send_answer(self._refuse_method(scope, "GET, HEAD"), send)
            return
        try:
            answer = await self._responder.respond(self._poll(scope, receive))
        except asyncio.CancelledError:
            # The server would answer 500 and log it. Nothing follows here that would need the cancellation.
            answer = self._responder.desk.refuse(PurgatoryClosedError("the server stops"))
        await send_answer(answer, send)

    def _poll(self, scope: Scope, receive: Receive) -> PollRequest[Any]:
        prefer: list[bytes] = []
        if_none_match: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"prefer":
                prefer.append(value)
            elif name == b"if-none-match":
                if_none_match.append(value)
        return self._request(
            scope,
            receive,
            prefer=joined(prefer),
            if_none_match=joined(if_none_match),
            wait=_wait(scope["query_string"]),
        )


def _wait(query: bytes) -> str | None:
    """The first ``wait`` in *query*. To parse all of a long query takes half a second per megabyte."""
    if not query:
        return None
    _, found, rest = (b"&" + query).partition(b"&wait=")
    if not found:
        return None
    return unquote_plus(rest.partition(b"&")[0][: MAX_FIELD + 1].decode("latin-1"))


def send_answer(answer: Answer, send: Send) -> Awaitable[bool]:
    """Send *answer*, unless the client has disconnected."""
    headers = answer.raw_headers
    if answer.status not in _NO_LENGTH:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    start = {"type": "http.response.start", "status": answer.status, "headers": headers}
    return deliver(send, start, {"type": "http.response.body", "body": answer.body})
