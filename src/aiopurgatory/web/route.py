"""The routes: the arguments of both, and the endpoint of long polls, for any ASGI framework, or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, final, overload
from urllib.parse import unquote_plus

from ..arguments import require, require_plain_function
from ..errors import PurgatoryClosedError
from .answer import Answer
from .asgi import Receive, Scope, Send, deliver
from .policy import Policy
from .polling import LongPolling
from .prefer import MAX_FIELD, K, PollRequest
from .responder import Content, respond

if TYPE_CHECKING:
    from ..streams import EventLog

logger = logging.getLogger("aiopurgatory")

#: Characters of a path in a log message.
LONGEST_PATH: Final = 200
_NO_LENGTH: Final = frozenset({204, 304})


def path_parameter(scope: Scope) -> Any:
    """Return the only parameter of the route's path; without a framework, the rest of the path."""
    parameters = scope.get("path_params")
    if parameters is None:
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", "")).removeprefix("/")
    if len(parameters) != 1:
        names = ", ".join(parameters) or "none"
        raise TypeError(f"the path must have one parameter, got {names}; pass resource= to name the polled resource")
    return next(iter(parameters.values()))


class Endpoint:
    """The base of LongPollRoute and EventRoute. Their arguments are the same."""

    @overload
    def __init__(
        self,
        served: EventLog,
        *,
        policy: Policy | None = None,
        resource: Callable[[Scope], str] = ...,
        since: Callable[[Scope], str | None] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        served: LongPolling[K],
        *,
        resource: Callable[[Scope], K] = ...,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None: ...

    def __init__(
        self,
        served: LongPolling[Any] | EventLog,
        *,
        policy: Policy | None = None,
        resource: Callable[[Scope], Any] = path_parameter,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None:
        self._content: Final = _content_of(served, policy)
        if not isinstance(served, LongPolling):
            require(keys is None, "keys", "left out for a log: its topics are its keys", keys)
            since = since or _after_in_query
        functions = {"resource": resource, "since": since, "keys": keys, "client": client, "group": group}
        for name, function in functions.items():
            if function is not None:
                require_plain_function(name, function)
        self._resource: Final = resource
        self._since: Final = since
        self._keys: Final = keys
        self._client: Final = client
        self._group: Final = group
        self._warned_of_method = False

    def _refuse_method(self, scope: Scope, allowed: str) -> Answer:
        """Answer a method that is none of *allowed*. The first one is logged: it may belong to another route."""
        if not self._warned_of_method:
            self._warned_of_method = True
            method = scope["method"]
            logger.warning(
                "%s refused %s %r, as it answers GET only; if another route of this path answers %s, pass "
                "methods=['GET'] to the Route before it",
                *(type(self).__name__, method, scope["path"][:LONGEST_PATH], method),
            )
        return Answer(405, b"", [(b"allow", allowed.encode())])

    def _request(
        self,
        scope: Scope,
        receive: Receive,
        *,
        prefer: str | None = None,
        if_none_match: str | None = None,
        wait: str | None = None,
        last_event_id: str | None = None,
    ) -> PollRequest[Any]:
        """Return the request that *scope* describes, with its headers and the ``wait`` of its query."""
        return PollRequest(
            self._resource(scope),
            prefer,
            if_none_match,
            wait,
            last_event_id or (self._since and _version(self._since(scope))),
            self._keys and self._keys(scope),
            self._client and self._client(scope),
            self._group and self._group(scope),
            receive,
        )


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

    All arguments but *served* and *policy* are functions of the ASGI scope.

    Args:
        served: a LongPolling, which answers the polls, or an EventLog.
        policy: for an EventLog, the waits and limits; None (default): ``Policy()``.
        resource: the polled resource; default: the path's only parameter.
        since: the client's version; default: that of If-None-Match.
        keys: the keys to watch; default: *resource* alone.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that the poll's place counts against, as for ``LongPolling.answer()``; default: none.

    Cost: a parked poll takes about 1.6 kB more than the server and the framework need for a request.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"LongPollRoute answers HTTP, got a scope of type {scope['type']!r}")
        if scope["method"] not in ("GET", "HEAD"):
            await send_answer(self._refuse_method(scope, "GET, HEAD"), send)
            return
        try:
            answer = await respond(self._content, self._poll(scope, receive))
        except asyncio.CancelledError:
            # The server would answer 500 and log it. Nothing follows here that would need the cancellation.
            answer = self._content.desk.refuse(PurgatoryClosedError("the server stops"))
        await send_answer(answer, send)

    def _poll(self, scope: Scope, receive: Receive) -> PollRequest[Any]:
        return self._request(
            scope,
            receive,
            prefer=joined(header(scope, b"prefer")),
            if_none_match=joined(header(scope, b"if-none-match")),
            wait=_in_query(scope, b"wait", MAX_FIELD + 1),
        )


def header(scope: Scope, name: bytes) -> list[bytes]:
    """Return the lines of a header."""
    return [value for each, value in scope["headers"] if each == name]


def send_answer(answer: Answer, send: Send) -> Awaitable[bool]:
    """Send *answer*, unless the client has disconnected."""
    headers = answer.raw_headers
    if answer.status not in _NO_LENGTH:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    start = {"type": "http.response.start", "status": answer.status, "headers": headers}
    return deliver(send, start, {"type": "http.response.body", "body": answer.body})


def _content_of(served: object, policy: Policy | None) -> Content[Any]:
    """Return the states of a LongPolling, or the events of a log. Raises: TypeError: it is neither."""
    if isinstance(served, LongPolling):
        require(policy is None, "policy", "left out here: the LongPolling has one", policy)
        return served._states
    from ..streams import EventLog  # here: most apps have no log, and load no streams
    from .event_log import LogEvents

    if not isinstance(served, EventLog):
        raise TypeError(f"served must be a LongPolling or an EventLog, got {served!r}")
    return LogEvents(served, policy)


def _in_query(scope: Scope, name: bytes, most: int) -> str | None:
    """The first *name* in the query, up to *most* bytes. To parse a long query takes half a second per megabyte."""
    query: bytes = scope["query_string"]
    if not query:
        return None
    _, found, rest = (b"&" + query).partition(b"&" + name + b"=")
    return unquote_plus(rest.partition(b"&")[0][:most].decode("latin-1")) if found else None


def _after_in_query(scope: Scope) -> str | None:
    """Return the ``after`` of the query: the id of the last event that a page had before it was loaded again."""
    return _in_query(scope, b"after", MAX_FIELD) or None


def _version(since: str | None) -> str | None:
    if since is not None and not isinstance(since, str):
        raise TypeError(f"since must return a str or None, got {since!r}")
    return since


def joined(lines: list[bytes]) -> str | None:
    """Join the lines of a header into one list (RFC 9110). Returns: None if there are none, or together too many."""
    if not lines:
        return None
    text = b", ".join(lines)
    return text.decode("latin-1") if len(text) <= MAX_FIELD else None
