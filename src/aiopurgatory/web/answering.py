"""The answers to polls and streams in handlers of one's own, whatever is polled."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, final

from ..arguments import Items
from .answer import Answer, RawHeader, as_text
from .asgi import Receive
from .connected import listener
from .policy import Policy
from .prefer import MAX_FIELD, Fields, K, PollRequest, Respond
from .responder import Content, answer_poll
from .stream import EventStream

if TYPE_CHECKING:
    from ..streams import EventLog

_NO_FIELDS: Mapping[str, str] = MappingProxyType({})


@final
class EventAnswer:
    """An HTTP answer with a body to iterate. It has a place in the purgatory until its iteration ends.

    A refusal has its status and a short body, so a handler treats it like any other. The place is also free again when
    the iterator is closed, or nothing refers to it. The same holds if its client takes no event for ``Policy.stall``
    seconds.

    Attributes:
        status: 200; 401, 404, 410, 413 or 503 for a refusal; 499: the client has left.
        raw_headers: pairs of bytes, names in lower case.
    """

    __slots__ = ("_chunk", "_is_over", "_loop", "_stream", "raw_headers", "status")

    def __init__(self, stream: EventStream[Any], answer: Answer) -> None:
        self.status: int = answer.status
        self.raw_headers: list[RawHeader] = answer.raw_headers
        self._stream = stream
        #: The next chunk to return; empty: none is there yet.
        self._chunk = answer.body
        self._is_over = not stream.is_open
        self._loop = asyncio.get_running_loop()
        if stream.is_open:
            stream.add_done_callback(lambda _: stream.close())

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return as_text(self.raw_headers)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next events, or a heartbeat. To be called when the last ones have been sent."""
        chunk, self._chunk = self._chunk, b""
        if not chunk and not self._is_over:
            chunk = await self._next()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _next(self) -> bytes:
        stream, found = self._stream, b""

        async def read() -> None:
            nonlocal found
            found = await stream.next() or b""

        try:
            last = await stream.go_on(read())
        except BaseException:
            await self.aclose()
            raise
        if found:
            return found
        await self.aclose()
        return last or b""

    async def aclose(self) -> None:
        """End the iteration, and release the place. A second call does nothing."""
        self._chunk, self._is_over = b"", True
        self._stream.close()

    def __del__(self) -> None:
        if self._stream.is_open:  # in any thread
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stream.close)


class Answering(Generic[K]):
    """The base of LongPolling and LogPolling. Args: content: what is polled."""

    def __init__(self, content: Content[K]) -> None:
        self._content: Final = content

    async def answer(
        self,
        resource: K,
        headers: Fields = _NO_FIELDS,
        query: Fields = _NO_FIELDS,
        *,
        since: str | None = None,
        wait: float | str | None = None,
        keys: Items[Hashable] | None = None,
        client: Hashable = None,
        group: Hashable = None,
        receive: Receive | None = None,
        respond: Respond | None = None,
    ) -> Answer:
        """Answer a poll in your own handler: wait until something is newer than the client's version, or time is up.

            async def poll(request: Request) -> Response:
                answer = await polling.answer(
                    request.path_params["topic"], request.headers, request.query_params)
                return Response(answer.body, answer.status, answer.headers)

        Args:
            resource: the polled resource; passed to the source. Of a log, the topic.
            headers: the request's. Prefer is read and, if *since* is None, If-None-Match. Only the first line of a
                repeated header counts.
            query: the request's. ``wait``, in seconds, takes precedence over Prefer. Of a log, ``after`` is the
                client's id if it sent no If-None-Match.
            since: the client's version if it does not come in If-None-Match, as in a POST.
            wait: the client's wait if it comes neither in the query nor in Prefer: seconds, or text like ``10s``.
            keys: the keys to watch; None (default): *resource* alone. Of a log, these are in addition to the topic.
            client: the client's id. Its newer poll of the same resource ends its older one, with status 409. So the id
                must be one per tab or process, and nobody else must be able to guess or send it: 128 random bits, or
                with a login, a tuple of the user and those. None (default): unknown.
            group: the group (an address, a user, a tenant) that the poll counts against; see ``Policy.max_per_group``.
                None (default): none. Behind a proxy, the address is the proxy's unless the server trusts its
                X-Forwarded-For.
            receive: ASGI's. When the client disconnects, the poll ends with status 499, and your handler goes on. Read
                the request's body first: messages that arrive while the poll waits are dropped, and after 64 of them
                the answer is 413. If it raises, the client counts as disconnected. None (default): that of the app's
                PurgatoryMiddleware, which keeps the body. In an app without one, the poll of a disconnected client
                goes on waiting unless the handler is cancelled.
            respond: makes the answer, as for LongPollRoute: whether or not there is something new, it gets the body.

        Raises: TypeError: *keys* is one str. Errors of a Source, except GoneError, are raised here.
        """
        return await answer_poll(
            self._content,
            PollRequest(
                resource,
                headers.get("prefer"),
                headers.get("if-none-match"),
                query.get("wait") if wait is None else wait,
                self._since(since, query),
                keys,
                client,
                group,
                listener(receive),
                respond,
            ),
        )

    async def events(
        self,
        resource: K,
        headers: Fields,
        query: Fields = _NO_FIELDS,
        *,
        since: str | None = None,
        keys: Items[Hashable] | None = None,
        client: Hashable = None,
        group: Hashable = None,
        until: float | None = None,
        receive: Receive | None = None,
    ) -> EventAnswer:
        """Answer a request for server-sent events in your own handler, as EventRoute does.

            async def events(request: Request) -> Response:
                events = await polling.events(
                    request.path_params["topic"], request.headers, request.query_params)
                return StreamingResponse(events, events.status, events.headers)

        It returns when the first event has been read, or with a refusal. Iterate it for the events, as text in bytes.
        EventRoute says how a stream ends; after that, the iteration ends.

        Args:
            resource: as for answer().
            headers: the request's. Last-Event-ID is read.
            query: the request's. Of a log, ``after`` is the client's id if it sent no Last-Event-ID.
            since: the client's version if it sent no Last-Event-ID; None (default): none.
            keys: as for answer().
            client: as for answer().
            group: as for answer().
            until: when the client's login ends, in seconds since the epoch, as in the ``exp`` of a JWT. Nothing is
                delivered after it: the client reconnects, and is refused. None (default): only ``Policy.max_age``.
            receive: as for answer(). When the client disconnects, the iteration ends, and your handler goes on. None
                (default), in an app without a PurgatoryMiddleware: your framework ends the iteration, as Starlette
                does.

        Raises: TypeError: *keys* is one str. Other errors of a Source are raised here or by the iteration.
        """
        last = headers.get("last-event-id") or ""
        since = last if 0 < len(last) <= MAX_FIELD else self._since(since, query)
        request = PollRequest(
            resource, since=since, keys=keys, client=client, group=group, listen=listener(receive), until=until
        )
        stream = await self._content.new_stream(request)
        return EventAnswer(stream, await stream.open(request))

    def _since(self, since: str | None, query: Fields) -> str | None:
        after = query.get("after") if since is None and self._content.has_ids else None
        return after[:MAX_FIELD] if after else since


@final
class LogPolling(Answering[str]):
    """Answers polls and streams of an event log in your own handlers, as LongPollRoute and EventRoute do.

        runs = LogPolling(log)

        @app.get("/runs/{run}/events")
        async def follow(run: str, user: User, request: Request) -> StreamingResponse:
            events = await runs.events(run, request.headers, request.query_params, until=user.until)
            return StreamingResponse(events, events.status, events.headers)

    So a login may be a dependency of FastAPI. A route that gets this in place of the log shares its limits.

    Args:
        log: the log. Its topics are the resources.
        policy: waits and limits; None (default): ``Policy()``.

    Raises: TypeError: an argument has the wrong type.
    """

    def __init__(self, log: EventLog, policy: Policy | None = None) -> None:
        super().__init__(events_of("log must be an EventLog", log, policy))


def events_of(rule: str, log: object, policy: Policy | None) -> Content[Any]:
    """Return the events of *log*, as content. Raises: TypeError: it breaks the *rule*."""
    from ..streams import EventLog  # here: most apps have no log, and load no streams
    from .event_log import LogEvents

    if not isinstance(log, EventLog):
        raise TypeError(f"{rule}, got {log!r}")
    return LogEvents(log, policy)
