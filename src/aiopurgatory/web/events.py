"""Server-sent events: the same source as a stream, an ASGI endpoint beside the route of long polls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from functools import lru_cache
from random import randint
from typing import Final, Generic, final

from ..arguments import require_seconds
from ..errors import PurgatoryClosedError, PurgatoryFullError
from .asgi import Receive, Scope, Send
from .exchange import Answer, PollRequest
from .longpoll import LongPolling
from .places import ReplacedError
from .polls import EventStream
from .reads import ReadFailedError
from .route import path_parameter, send_answer
from .sources import GoneError, K

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
]
_HEARTBEAT: Final = b":\n\n"
#: Milliseconds before a replaced client comes back, if its page does not close the EventSource.
_A_DAY: Final = 24 * 60 * 60 * 1000
#: The ends of a line; ``bytes.splitlines()`` would drop the last one.
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


@final
class EventRoute(Generic[K]):
    """Answers GET with a stream of server-sent events from the source of *polling*, as an ASGI endpoint.

        Starlette(routes=[Route("/events/{topic}", EventRoute(polling))])

        new EventSource("/events/orders").onmessage = event => show(event.data)

    Each event has the version as its id, and the body that a long poll would get as its data. The client gets the
    state first, and an event whenever ``polling.notify()`` is called. EventSource reconnects by itself, sends the last
    id as Last-Event-ID, and goes on from there.

    A stream is one operation in the purgatory from its start to its end. It counts against ``max_pending`` and
    ``max_per_group``, and notify() does not count it. Bounded for each stream:

    - The events: one is on its way, the next is read when the server takes it. Versions in between are merged.
    - The time to send one: *stall*. A client that does not read for so long loses its place, and its stream ends
      EXPIRED. The connection stays with the server: uvicorn logs that the answer is incomplete, and when it stops it
      waits for that client for ``timeout_graceful_shutdown`` seconds, which is for ever by default.

    How a stream ends, or does not begin:

    - The client leaves: at once. Middleware and the handlers of other requests are let be.
    - The purgatory closes, or the server cancels the stream: at once, and clients come back after a random time within
      ``Policy.retry_after``. They come back after the same time if the connection breaks. (Stop signals close the
      purgatory. But workers of hypercorn get none and, on asyncio's own loop from Python 3.12 on, cancel nothing: they
      stop when the last client has left. Use uvloop there.)
    - The same client opens a newer stream, or a poll, of the same resource: the older stream gets an event ``replaced``
      with the reason, and comes back after a day. Close the EventSource then.
    - GoneError: an event ``gone`` with the message. Then comes the state from scratch; but if there is none, the end.
    - An AsyncSource that cannot be read: it is logged, and clients come back as when the purgatory closes; at the
      start, 503.
    - Another exception of a Source: it is raised, and the server breaks the connection.
    - No place, or a closed purgatory: 503, as for a long poll; a resource that is gone as a whole: 410. EventSource
      gives up at any status but 200. In ``onerror``, if ``readyState`` is CLOSED, wait and make another one. Proxies
      answer 502 while a server is restarted, so pages need that in any case.

    Starlette's GZipMiddleware lets events pass as they are. BaseHTTPMiddleware passes them on one by one, but holds one
    more event, and after *stall* its own task goes on waiting for a client that does not read.

    Args: each but the first and the last two is a function of the ASGI scope.
        resource: what is streamed; by default, the path's parameter.
        since: the client's version, if it has sent no Last-Event-ID; by default, None.
        keys, client, group: as for ``LongPolling.answer()``; by default, None.
        heartbeat: seconds without an event after which a comment is sent, so that proxies and clients see that the
            connection works.
        stall: seconds that sending an event may take, and before it the reads of an AsyncSource: give these less.

    Raises: TypeError, ValueError: *heartbeat* or *stall* is no number of seconds, or out of its range.
    """

    def __init__(
        self,
        polling: LongPolling[K],
        *,
        resource: Callable[[Scope], K] = path_parameter,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
        heartbeat: float = 15.0,
        stall: float = 30.0,
    ) -> None:
        require_seconds("heartbeat", heartbeat, 1e-3, 1e6)
        require_seconds("stall", stall, 1e-3, 1e6)
        self._polling = polling
        self._resource, self._since, self._keys = resource, since, keys
        self._client, self._group = client, group
        self._heartbeat, self._stall = heartbeat, stall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"EventRoute answers HTTP, got a scope of type {scope['type']!r}")
        if scope["method"] != "GET":
            await send_answer(Answer(405, b"", [(b"allow", b"GET")]), send)
            return
        request = self._request(scope, receive)
        try:
            stream = await self._polling.open_stream(request, self._heartbeat, self._stall)
        except (GoneError, PurgatoryFullError, PurgatoryClosedError) as exc:
            await send_answer(self._polling.refuse(exc), send)
            return
        try:
            await self._serve(stream, request.since, send)
        finally:
            self._polling.close_stream(stream)

    def _request(self, scope: Scope, receive: Receive) -> PollRequest[K]:
        since = None
        for name, value in scope["headers"]:
            if name == b"last-event-id":
                since = value.decode("latin-1")
        return PollRequest(
            self._resource(scope),
            None,
            None,
            None,
            since or (self._since and self._since(scope)),
            self._keys and self._keys(scope),
            self._client and self._client(scope),
            self._group and self._group(scope),
            receive,
        )

    async def _serve(self, stream: EventStream[K], since: str | None, send: Send) -> None:
        try:
            version, events = await self._news(stream, since)
        except (GoneError, ReadFailedError) as exc:
            await send_answer(self._polling.refuse(exc), send)
            return
        except asyncio.CancelledError:  # the server stops
            await send_answer(self._polling.refuse(PurgatoryClosedError("the server stops")), send)
            return
        self._polling.count(200)
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        last = await self._last_words(stream, self._send_events(stream, version, self._retry() + events, send))
        if last is not None:
            # The stream's operation has ended, so its time is the loop's. A server that stops may cancel this, too.
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._stall):
                    await send({"type": "http.response.body", "body": last})

    async def _send_events(self, stream: EventStream[K], version: str, events: bytes, send: Send) -> None:
        while True:
            try:
                await send({"type": "http.response.body", "body": events or _HEARTBEAT, "more_body": True})
            except OSError:
                stream.leave()
                return
            await stream.news(version)
            version, events = await self._news(stream, version)

    async def _last_words(self, stream: EventStream[K], sending: Awaitable[None]) -> bytes | None:
        """Send events until *stream* ends. Returns: what to send last; None: nothing, for nobody reads it."""
        try:
            await stream.run(sending)
            failure = stream.exception()
        except asyncio.CancelledError:
            return None if stream.left else self._retry()
        except GoneError as exc:
            return _gone(exc)
        except ReadFailedError:
            return self._retry()
        match failure:
            case None:  # expired
                return None
            case PurgatoryClosedError():
                return self._retry()
            case ReplacedError():
                return b"retry: %d\nevent: replaced\n%b" % (_A_DAY, _data(_bytes(failure)))
            case GoneError():
                return _gone(failure)
        raise failure

    async def _news(self, stream: EventStream[K], known: str | None) -> tuple[str, bytes]:
        """Returns: the latest version, and what tells it to a client that has version *known*; nothing, if it is that.

        Raises: GoneError: there is no state, not even from scratch. ReadFailedError: an AsyncSource has raised.
        """
        polling, resource = self._polling, stream.resource
        stream.begin_read()
        version = await polling.latest(resource)
        if version == known:
            return version, b""
        try:
            return version, _event(version, await polling.body(resource, known, version))
        except GoneError as exc:
            return version, _gone(exc) + _event(version, await polling.body(resource, None, version))

    def _retry(self) -> bytes:
        low, high = self._polling.policy.retry_after
        return b"retry: %d\n\n" % randint(low * 1000, high * 1000)


@lru_cache(1)
def _event(version: str, body: bytes) -> bytes:
    """The one made last is kept: after an event, many streams send the same."""
    return b"id: %b\n%b" % (version.encode(), _data(body))


def _gone(exc: GoneError) -> bytes:
    """With an empty id: the client is not to go on from its version when it reconnects."""
    return b"event: gone\nid:\n%b" % _data(_bytes(exc))


def _data(text: bytes) -> bytes:
    return b"data: %b\n\n" % b"\ndata: ".join(_LINE_END.split(text))


def _bytes(exc: BaseException) -> bytes:
    return str(exc).encode(errors="replace")
