"""The routes: ASGI endpoints of long polls and of server-sent events, for any framework, or none."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, final

from ..arguments import Items, require_function, require_items, require_plain_function
from .answer import NO_STORE, REFUSALS, Answer, RequestError, logger
from .connected import Message, Receive, Scope, Send, deliver, ignore, is_disconnect, listener, send_answer, start_of
from .poll import Answering, answer_poll
from .polling import events_of
from .request import PollRequest, RequestScope, Respond, after_of_query, joined, read_body, wait_of_query
from .stream import EventStream

if TYPE_CHECKING:
    from ..streams import EventLog

T = TypeVar("T")
#: A function of a route. It is plain, or an ``async def``.
Ask: TypeAlias = Callable[[RequestScope], T | Awaitable[T]]

#: Characters of a path in a log message.
LONGEST_PATH: Final = 200
#: Methods whose request has no body to read.
_BODILESS: Final = frozenset({"GET", "HEAD"})
_BODY: Final = "http.response.body"


def path_parameter(scope: Scope) -> Any:
    """Return the only parameter of the route's path; without a framework, or mounted by one, the rest of the path."""
    parameters = scope.get("path_params")
    if parameters and len(parameters) == 1:
        return next(iter(parameters.values()))
    root = scope.get("root_path", "")
    is_mounted = scope.get("app_root_path", root) != root  # of Starlette: the app's, without its Mount
    if parameters is None or (is_mounted and not parameters):
        path: str = scope["path"]
        root = root.rstrip("/")
        is_below = path == root or path.startswith(f"{root}/")  # some servers pass /products below /product
        return path[len(root) if is_below else 0 :].removeprefix("/")
    names = ", ".join(parameters) or "none"
    raise TypeError(f"the path must have one parameter, got {names}; pass resource= to name the polled resource")


class Endpoint(ABC):
    """The base of LongPollRoute and EventRoute. Args: as for these."""

    def __init__(
        self,
        served: Answering[Any] | EventLog,
        *,
        resource: Ask[Any] = path_parameter,
        since: Ask[str | None] | None = None,
        keys: Ask[Items[Hashable]] | None = None,
        client: Ask[Hashable] | None = None,
        group: Ask[Hashable] | None = None,
        until: Ask[float | None] | None = None,
        methods: Items[str] = ("GET",),
    ) -> None:
        rule = "served must be a LongPolling, a LogPolling or an EventLog"
        self._content: Final = served._content if isinstance(served, Answering) else events_of(rule, served)
        if self._content.has_ids:
            since = since or after_of_query
        require_items("methods", methods, "method")
        served_methods = tuple([method.upper() for method in methods])  # as routers take them
        self._methods: Final = (*served_methods, "HEAD") if "GET" in served_methods else served_methods
        #: Each gives a field of the request. The first one may be a login.
        self._functions: Final = given(
            resource=resource, since=since, keys=keys, client=client, group=group, until=until
        )
        self._warned_of_method = False

    async def _request(self, scope: Scope, receive: Receive) -> PollRequest[Any] | Answer:
        """Return the request; or the answer, if its method is refused, or a function cannot read it."""
        if scope["type"] != "http":
            raise TypeError(f"{type(self).__name__} answers HTTP, got a scope of type {scope['type']!r}")
        method, desk = scope["method"], self._content.desk
        if method not in self._methods:
            return self._refuse_method(scope)
        try:
            request = RequestScope(scope)
            if method not in _BODILESS:
                request.body = await read_body(receive)
            fields = self._in_headers(request)
            if method == "HEAD":
                fields["client"] = None  # it replaces no other
            for name, function in self._functions.items():
                if name not in fields:
                    found = function(request)
                    fields[name] = await found if isinstance(found, CoroutineType) else found
            since = fields.get("since")
            if since is not None and not isinstance(since, str):
                raise TypeError(f"since must return a str or None, got {since!r}")
            return PollRequest(listen=listener(receive, ignore), **fields)
        except ValueError as exc:  # of int(), or of json.loads()
            return desk.refuse(RequestError(f"the request cannot be read: {exc}"))
        except REFUSALS as exc:
            return desk.refuse(exc)

    @abstractmethod
    def _in_headers(self, scope: RequestScope) -> dict[str, Any]:
        """Return the fields of a request that are in the headers of *scope*, or fixed."""

    def _refuse_method(self, scope: Scope) -> Answer:
        """Answer a method that is not served. The first one is logged: it may belong to another route."""
        allowed = ", ".join(self._methods)
        if not self._warned_of_method:
            self._warned_of_method = True
            method = scope["method"]
            logger.warning(
                "%s refused %s %r, as it answers %s only; if another route of this path answers %s, pass "
                "methods=%s to the Route before it",
                *(type(self).__name__, method, scope["path"][:LONGEST_PATH], allowed, method, list(self._methods)),
            )
        return Answer(405, b"", [NO_STORE, (b"allow", allowed.encode())])


@final
class LongPollRoute(Endpoint):
    """An ASGI endpoint that answers GET and HEAD with long polls of a source, or of an event log.

        Starlette(routes=[Route("/{topic}", LongPollRoute(polling), methods=["GET"])])  # FastAPI takes the same

    When the client disconnects, the poll ends within 50 ms, behind any middleware. Handlers of other requests are not
    affected. When the server's shutdown time is over and it cancels a poll, the client is answered 503; behind a
    BaseHTTPMiddleware, which is cancelled first, 500.

    Prefer and If-None-Match are ignored if longer than 8,192 bytes, all lines together. Only the first 100
    preferences and entity tags are read.

    With an EventLog, the answer is a JSON array of the events after the client's, each with ``id``, ``name``, ``data``
    and ``is_end``. Its ETag is the id to send next, as If-None-Match, or in the query as ``after``. 204: the topic has
    ended. 410: events are gone, and the ETag is the id from which to go on. 404: no such topic has come.

    To speak another protocol, pass functions. Each gets the ASGI scope, as a RequestScope, and may be an ``async def``,
    but for *respond*. They are called one after the other, *resource* first. If one raises ValueError, as ``int()`` and
    ``json.loads()`` do, the poll is answered 400.

        LongPollRoute(
            polling,
            since=lambda scope: scope.query.get("index"),  # Consul: GET /v1/kv/a?index=7&wait=10s
            respond=lambda polled: (polled.body, 200, {"X-Consul-Index": polled.version}),
        )

    Args:
        served: a LongPolling, which answers the polls; or an EventLog, or a LogPolling with the log and its policy.
        resource: the polled resource; default: the path's only parameter. A tuple of them for a poll of several.
        since: the client's version; default: the one in If-None-Match.
        wait: the client's wait, as seconds or as text like ``10s``; None: it asked for none. Default: the ``wait`` of
            the query, or else of Prefer.
        keys: the keys to watch in addition to *resource*; default: none. One such as ``("user", 7)`` ends that user's
            polls: ``purgatory.cancel_for_key(("user", 7))``, or ``log.purgatory``.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that the poll's place counts against, as for ``LongPolling.answer()``; default: none.
        respond: makes the answer, whether or not there is something new: it gets an Answer, and returns body, status
            and headers, or a body alone, whose status is 200. At the deadline, that Answer has status 304 or 204, and
            the body that the source returns for a client with the newest version. Its headers are also sent, unless
            replaced. Default: that Answer as it is, without the body of a deadline. Refusals are sent as they are.
        methods: the methods to answer; default: GET. HEAD comes with GET. The body of other methods is read before,
            up to 1 MiB, for ``scope.form`` and ``scope.body``.

    Cost: a parked poll takes about 1.6 kB more than the server and the framework need for a request.
    """

    def __init__(
        self,
        served: Answering[Any] | EventLog,
        *,
        resource: Ask[Any] = path_parameter,
        since: Ask[str | None] | None = None,
        wait: Ask[float | str | None] | None = None,
        keys: Ask[Items[Hashable]] | None = None,
        client: Ask[Hashable] | None = None,
        group: Ask[Hashable] | None = None,
        respond: Respond | None = None,
        methods: Items[str] = ("GET",),
    ) -> None:
        super().__init__(served, resource=resource, since=since, keys=keys, client=client, group=group, methods=methods)
        if respond is not None:
            require_plain_function("respond", respond)
        self._functions.update(given(wait=wait or wait_of_query))
        self._respond: Final = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = await self._request(scope, receive)
            if isinstance(request, Answer):
                answer = request
            else:
                answering = answer_poll(self._content, request)
                del request  # a parked poll keeps no more of it than it needs
                answer = await answering
        except asyncio.CancelledError:
            # The server would answer 500 and log it. Nothing follows here that would need the cancellation.
            answer = self._content.desk.unanswered(is_deserted=False)
        await send_answer(answer, send)

    def _in_headers(self, scope: RequestScope) -> dict[str, Any]:
        prefer, known = joined(scope, b"prefer"), joined(scope, b"if-none-match")
        return {"prefer": prefer, "if_none_match": known, "respond": self._respond}


@final
class EventRoute(Endpoint):
    """An ASGI endpoint that answers GET with a stream of server-sent events: the states of a source, or an event log.

        Starlette(routes=[Route("/events/{topic}", EventRoute(polling), methods=["GET"])])

        new EventSource("/events/orders").onmessage = event => show(event.data)

    Each event has the version as its id. Its data is the body that a long poll would get. The first event is the
    current state; another follows whenever ``polling.notify()`` is called and the version has changed. EventSource
    reconnects by itself, sends the last id as Last-Event-ID, and resumes from there.

    A stream is one operation in the purgatory, from its start to its end. It counts against ``max_pending`` and
    ``max_per_group``, but not in the result of notify(). Each stream is bounded:

    - Events: one is being sent, and the next is read when the server has taken it. Versions in between are merged.
    - Time to send an event: ``Policy.stall``. A client that does not read for that long loses its place, and its stream
      ends EXPIRED. The server keeps the connection: uvicorn logs that the answer is incomplete and, when it stops,
      waits for that client for ``timeout_graceful_shutdown`` seconds, by default for ever.
    - Age: ``Policy.max_age``. Servers do not report every disconnect. (An example is a client that has sent a second
      request behind its stream, on uvicorn with httptools and asyncio's own loop.) The places of such clients are free
      again after that time.

    How a stream ends, or fails to start:

    - The client disconnects: the stream ends at once. Middleware and handlers of other requests are not affected.
    - The purgatory closes, or the server cancels the stream: it ends at once, and the client reconnects after a random
      time within ``Policy.retry_after``, as it does when the connection breaks. (Stop signals close the purgatory.
      Hypercorn's workers get none and, on asyncio's own loop from Python 3.12 on, cancel nothing, so they stop only
      when the last client has disconnected. Use uvloop there.)
    - It reaches its age, or *until*: it ends COMPLETED. EventSource reconnects, and resumes from the last id.
    - It is cancelled by one of its keys: it ends at once, and the client reconnects as when the purgatory closes.
    - The same client opens a newer stream or poll of the same resource: the older stream gets an event ``replaced``
      with the reason. Close the EventSource on that event; otherwise it reconnects after a day.
    - GoneError: the stream sends an event ``gone`` with the message, then the state from scratch. It ends if there is
      no such state, or if the source raises NotFoundError.
    - An awaited source fails, or does not answer within ``stall``: clients reconnect as when the purgatory closes.
      Before the first event, the answer is 503.
    - A source in memory raises another exception: it propagates, and the server breaks the connection.
    - No place or a closed purgatory: 503, as for a long poll. A resource that is gone altogether: 410, or 404.
      EventSource gives up at any status but 200, also at the 502 of a proxy while a server restarts. The client
      ``js/events.js`` of this package goes on where that is of use, and resumes.

    The stream of an EventLog has the log's own events, each once, in order, with its id, and its name if it has one.
    The last is ``end``, with the reason. A client that reconnects after it is answered 204: EventSource stops for good.
    A topic that does not exist yet is waited for, then the answer is 404. If events that the client has not seen are
    not kept any more, it gets an event ``gone`` with an empty id, then those kept.

    Starlette's GZipMiddleware passes events unchanged. BaseHTTPMiddleware passes them one by one but buffers one more
    event. After ``stall``, its own task keeps waiting for a client that does not read.

    *resource*, *since*, *keys*, *client*, *group* and *until* are functions of the ASGI scope, plain or ``async def``,
    as for LongPollRoute.

    Args:
        served: a LongPolling, which has the source, the purgatory and the policy; or an EventLog, or a LogPolling with
            the log and its policy.
        resource: the streamed resource; default: the path's only parameter.
        since: the client's version if it sent no Last-Event-ID; default: None. For an EventLog, the default is the
            ``after`` of the query.
        keys: the keys to watch in addition, as for LongPollRoute; default: none.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that its place counts against, as for ``LongPolling.answer()``; default: none.
        until: when the client's login ends, in seconds since the epoch, as in the ``exp`` of a JWT. Nothing is
            delivered after it: the client reconnects, and your login refuses it. If it is past already, the answer is
            401. A time of another century is refused with ValueError: it would be in milliseconds. None (default): only
            ``Policy.max_age``.
        methods: the methods to answer; default: GET. HEAD comes with GET: it is told the status and the headers. The
            body of others is read before, as by LongPollRoute.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await self._request(scope, receive)
        if isinstance(request, Answer):
            await send_answer(request, send)
            return
        stream = await self._content.new_stream(request)
        # A task that is cancelled ends here as it would anyway. Otherwise the server would answer 500.
        try:  # closing() would cost 1 % of opening a stream
            try:
                answer = await stream.open(request)
            except asyncio.CancelledError:
                answer = self._content.desk.unanswered(stream.left)
            if not stream.is_open:
                await send_answer(answer, send)
                return
            unsent = [start_of(answer)]
            first = None if scope["method"] == "HEAD" else answer.body
            del request, answer  # they may wait for hours
            try:
                last = b"" if first is None else await stream.go_on(_send_events(stream, unsent, first, send))
            except asyncio.CancelledError:
                last = stream.last_words()
        finally:
            stream.close()
        if last is not None:
            # The stream's operation has ended, so the loop keeps the time. A server that stops may also cancel this.
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._content.desk.policy.stall):
                    await deliver(send, *unsent, {"type": _BODY, "body": last})

    def _in_headers(self, scope: RequestScope) -> dict[str, Any]:
        last = joined(scope, b"last-event-id")
        return {"since": last} if last else {}


async def _send_events(stream: EventStream[Any], unsent: list[Message], chunk: bytes | None, send: Send) -> None:
    """Send the start, and events until there are no more, or the client has disconnected.

    Args: unsent: the start. It stays there if this is cancelled before it is sent.
    """
    message = unsent[0]
    while chunk is not None:
        try:  # not deliver(): this is the hot path
            await send(message)
        except (OSError, RuntimeError) as exc:
            if not is_disconnect(exc):
                raise
            stream.disconnected()
            return
        if unsent:
            unsent.clear()
        else:
            chunk = await stream.next()
        message = {"type": _BODY, "body": chunk, "more_body": True}


def given(**functions: Ask[Any] | None) -> dict[str, Ask[Any]]:
    """Return the *functions* that are not None. Raises: TypeError: one is no function."""
    found = {name: function for name, function in functions.items() if function is not None}
    for name, function in found.items():
        require_function(name, function)
    return found
