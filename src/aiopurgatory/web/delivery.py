"""The delivery of one event stream, from its request to its end; and the answer with it, for handlers of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final, Generic, Self, final

from ..clock import running_loop
from ..errors import GoneError, NotFoundError, PurgatoryClosedError
from ..waits import until_ended
from .answer import (
    NO_STORE,
    REFUSALS,
    Answer,
    RawHeader,
    ReadFailedError,
    ReplacedError,
    UnreadBodyError,
    as_text,
)
from .asgi import is_disconnect
from .prefer import K, PollRequest
from .responder import Content
from .stream import gone, replaced, retry

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),  # a front end that compresses would collect events, too
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
]


@final
class Delivery(Generic[K]):
    """Opens a stream, and brings its events.

    Make it by enter(), and call begin(). While it is open, call next(), within go_on(). At the end, call close().
    """

    __slots__ = ("_desk", "_stream", "is_open")

    def __init__(self, content: Content[K], request: PollRequest[K]) -> None:
        self._desk = content.desk
        self._stream = content.open(request)
        #: Whether the stream has a place.
        self.is_open = False

    @classmethod
    async def enter(cls, content: Content[K], request: PollRequest[K]) -> Self:
        """Make a delivery, and open its desk before if it is closed: the purgatory has no clock until it is started."""
        if content.desk.loop is not running_loop():
            await content.desk.enter()
        return cls(content, request)

    async def begin(self, request: PollRequest[K]) -> Answer:
        """Open the stream, and read its first events. Returns: the answer; if is_open, more is to follow.

        If it raises, it is not open.
        """
        try:
            return await self._begin(request)
        except REFUSALS as exc:
            self.close()
            return self._desk.refuse(exc)
        except BaseException:
            self.close()
            raise

    async def _begin(self, request: PollRequest[K]) -> Answer:
        desk, stream = self._desk, self._stream
        desk.open_stream(stream, request)
        self.is_open = True
        first = await until_ended(stream, stream.read())
        if first is None:  # it has ended
            if stream.cancelled():
                return self.stopped()
            failure = stream.exception()
            if not isinstance(failure, ReplacedError):  # a client learns that from an event
                raise failure or ReadFailedError("the source did not answer in time")
            first = replaced(failure)
            self.close()
        elif not first and stream.feed.is_over and not stream.is_old():  # EventSource reconnects after any other status
            self.close()
            desk.count(204)
            return Answer(204, b"", [NO_STORE])
        else:
            first = retry(desk.policy) + first
        desk.count(200)
        return Answer(200, first, list(_HEADERS))

    def stopped(self) -> Answer:
        """The answer if begin() was cancelled: by the server, or since the client has disconnected."""
        self.close()
        return self._desk.unanswered(self._stream.left)

    def next(self) -> Awaitable[bytes | None]:
        """Wait for events, or a heartbeat. Called when the last ones have been sent. Returns: None at the end."""
        return self._stream.next()

    async def go_on(self, awaitable: Awaitable[object]) -> bytes | None:
        """Await *awaitable* until the stream ends. Returns: the last bytes to send; None: none, since nobody reads."""
        try:
            await until_ended(self._stream, awaitable)
            return self.last_words()
        except (GoneError, NotFoundError) as exc:
            return gone(exc)
        except ReadFailedError:
            return retry(self._desk.policy)

    def last_words(self) -> bytes | None:
        """Return the last bytes to send; None: none. Raises: the source's error."""
        stream = self._stream
        if stream.left:
            return None
        failure = stream.exception() if stream.done() and not stream.cancelled() else None
        match failure:
            case None if stream.expired and not stream.is_reading:  # the client did not read
                return None
            case None | PurgatoryClosedError() | UnreadBodyError():
                return b"" if stream.feed.is_over else retry(self._desk.policy)
            case ReplacedError():
                return replaced(failure)
            case GoneError() | NotFoundError():
                return gone(failure)
        raise failure

    def leave_by(self, exc: OSError | RuntimeError) -> None:
        """send() has raised *exc*: the client has disconnected. Raises: *exc*, if it means something else."""
        if not is_disconnect(exc):
            raise exc
        self._stream.leave()

    def close_when_ended(self) -> None:
        """Release the place as soon as the stream ends."""
        self._stream.add_done_callback(lambda _: self.close())

    def close(self) -> None:
        """Release the place of the stream. A second call does nothing."""
        self._stream.feed.close()
        if self.is_open:
            self.is_open = False
            self._desk.close_stream(self._stream)


@final
class EventAnswer:
    """An HTTP answer with a body to iterate. It has a place in the purgatory until its iteration ends.

    A refusal has its status and a short body, so a handler treats it like any other. The place is also free again when
    the iterator is closed, or nothing refers to it. The same holds if its client takes no event for ``Policy.stall``
    seconds.

    Attributes:
        status: 200; 404, 410, 413 or 503 for a refusal; 499: the client has left.
        raw_headers: pairs of bytes, names in lower case.
    """

    __slots__ = ("_chunk", "_delivery", "_is_over", "_loop", "raw_headers", "status")

    def __init__(self, delivery: Delivery[Any], answer: Answer) -> None:
        self.status: int = answer.status
        self.raw_headers: list[RawHeader] = answer.raw_headers
        self._delivery = delivery
        #: The next chunk to return; empty: none is there yet.
        self._chunk = answer.body
        self._is_over = not delivery.is_open
        self._loop = asyncio.get_running_loop()
        if delivery.is_open:
            delivery.close_when_ended()

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
        delivery, found = self._delivery, b""

        async def read() -> None:
            nonlocal found
            found = await delivery.next() or b""

        try:
            last = await delivery.go_on(read())
        except BaseException:
            self._end()
            raise
        if found:
            return found
        self._end()
        return last or b""

    async def aclose(self) -> None:
        """End the iteration, and release the place. A second call does nothing."""
        self._end()

    def _end(self) -> None:
        self._chunk, self._is_over = b"", True
        self._delivery.close()

    def __del__(self) -> None:
        if self._delivery.is_open:  # in any thread
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._delivery.close)
