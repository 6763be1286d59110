"""Connections: frames in, frames out. As in Kafka, a connection's requests are handled in order.

A request that waits takes no task of its own: its operation has a callback, which writes the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiopurgatory import DeadlineError, Purgatory

from . import wire
from .answers import Values
from .room import Room, Unread

_LENGTH: Final = 4
#: Smaller requests need no room: a connection's buffer may have as many bytes anyway.
_SMALL: Final = 64 << 10
#: Of a client that sends more, no more is read until these are handled. The largest of the small requests fits in.
_MOST_AHEAD: Final = _LENGTH + _SMALL
#: A large request has room that others may wait for. It must arrive at this rate, after so many seconds. A large
#: answer must be read at the same rate, once there is no room for others.
_BYTES_PER_SECOND: Final = 1 << 20
_GRACE: Final = 5.0
#: Seconds that waiting requests have to be answered, and the answers to be read, when the broker stops.
_DRAIN: Final = 5.0
#: Requests of one client that are handled before others have a turn.
_MOST_AT_ONCE: Final = 16
_ALL_CLOSED: Final = "all closed"

logger = logging.getLogger("broker")

#: The values of an answer, or a wait for them. None: the client expects no answer.
Answered = Values | Awaitable[Values | None] | None


class Connections:
    """All connections of a broker.

    Args:
        purgatory: holds the waits of connections: for room, bytes and the end.
        answer: handles a request.
        max_request: the most bytes of a request. A larger one closes its connection.
        max_reading: the most bytes of large requests that are read at the same time.
        max_unread: the most bytes of answers that clients have not read. Above it, fetches get no records, and other
            answers above 64 KiB close their connection.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        answer: Callable[[wire.Request], Answered],
        *,
        max_request: int,
        max_reading: int,
        max_unread: int,
    ) -> None:
        self.host = ""
        self.port = 0
        self.purgatory = purgatory
        self.answer = answer
        self.max_request = max_request
        self.room = Room(purgatory, max(max_reading, max_request))
        self.unread = Unread(max_unread)
        self.grace = _GRACE
        self.is_stopping = False
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()

    async def listen(self, host: str, port: int) -> None:
        """Start listening. Raises: OSError: the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def opened(self, connection: _Connection) -> None:
        self._open.add(connection)

    def closed(self, connection: _Connection) -> None:
        self.unread.discard(connection)
        self._open.discard(connection)
        self.purgatory.check_and_complete(_ALL_CLOSED)

    def seconds_for(self, size: int) -> float:
        """Return the seconds in which *size* bytes must come or be read."""
        return self.grace + size / _BYTES_PER_SECOND

    def stop_listening(self) -> None:
        """Accept no more connections, and close each one after its current answer."""
        self.is_stopping = True
        if self._server:
            self._server.close()
        for connection in list(self._open):
            connection.stop()

    async def drain(self) -> None:
        """Wait until all requests are answered, the answers read, and all connections closed."""
        for timeout in (_DRAIN, None):
            if self._open:
                await self.purgatory.wait_for(lambda: not self._open, [_ALL_CLOSED], timeout=timeout, default=None)
            for connection in list(self._open):
                connection.abort("does not read its answer")


class _Connection(asyncio.Protocol):
    """One client. When it disconnects, its waiting request is cancelled."""

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._loop = loop
        self._received = bytearray()
        self._request: wire.Request | None = None  # is being answered
        self._waiting: asyncio.Future[Any] | None = None  # for the values of the answer, or for a large request
        self._has_room = False  # for a large request, of which more bytes are to come
        self._has_turn = False  # to go on soon, after others
        self._has_left = False
        #: The bytes of the answer that the client had to read at first; 0: it has read.
        self.unread = 0
        self._unread_since = 0.0

    # for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.opened(self)
        if self._connections.is_stopping:  # accepted just before
            self.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        self._leave()

    def eof_received(self) -> None:
        self._leave()

    def pause_writing(self) -> None:
        self.unread, self._unread_since = self._transport.get_write_buffer_size(), self._loop.time()
        self._connections.unread.add(self)

    def resume_writing(self) -> None:
        self._connections.unread.discard(self)
        self.unread = 0
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._has_room:
            self._connections.purgatory.check_and_complete(self)
        elif self._waiting is None:
            self._go_on()
        if len(self._received) >= _MOST_AHEAD and not self._has_room:
            self._transport.pause_reading()

    # for the broker

    def stop(self) -> None:
        """Close the connection once the current request is answered."""
        if self._request is None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        logger.warning("%s: %s; the connection is closed", self._name(), reason)
        self._received.clear()
        self._connections.unread.discard(self)
        self._transport.abort()

    def reads_too_slowly(self) -> bool:
        """Return True if the client takes longer for its answer than a large request may take."""
        was_read = self.unread - self._transport.get_write_buffer_size()
        return self._loop.time() > self._unread_since + self._connections.seconds_for(was_read)

    # requests

    def _go_on(self) -> None:
        """Handle the requests that have arrived, unless others have their turn first."""
        if not self._has_turn:
            self._take_turn()

    def _take_turn(self) -> None:
        """Handle the requests that have arrived, until one has to wait, or its answer to be read."""
        self._has_turn = False
        try:
            for _ in range(_MOST_AT_ONCE):
                if self._connections.is_stopping:
                    self.stop()
                    return
                if self._waiting or self.unread or not self._begin():
                    return
        except Exception as error:
            self._fail(error)
        else:
            self._has_turn = True
            self._loop.call_soon(self._take_turn)

    def _leave(self) -> None:
        """Cancel the wait of a client that has left.

        As in Kafka, its other requests are handled: a producer with acks=0 does not wait for that.
        """
        self._has_left = True
        if self._waiting:
            self._waiting.cancel()

    def _begin(self) -> bool:
        """Handle the next request. Returns: False if it has not arrived yet."""
        if len(self._received) < _LENGTH:
            return False
        size = int.from_bytes(self._received[:_LENGTH], signed=True)
        if not 0 <= size <= self._connections.max_request:
            raise wire.WireError(f"a request must have 0 to {self._connections.max_request} bytes, got {size}")
        if size > _SMALL and not self._has_left:
            self._wait(self._arrived(size))
            return True
        if len(self._received) < _LENGTH + size:
            return False
        self._handle(self._taken(size))
        return True

    def _taken(self, size: int) -> bytes:
        """Take the next request out of what was received."""
        with memoryview(self._received) as received:
            frame = received[_LENGTH : _LENGTH + size].tobytes()
        del self._received[: _LENGTH + size]
        if len(self._received) < _MOST_AHEAD:
            self._transport.resume_reading()
        return frame

    async def _arrived(self, size: int) -> bytes:
        """Wait for room, and then until a large request has arrived."""
        async with self._connections.room.taken(size):
            self._has_room = True
            self._transport.resume_reading()
            try:
                await self._all_bytes(size)
            finally:
                self._has_room = False
            return self._taken(size)

    async def _all_bytes(self, size: int) -> None:
        begin, data = self._loop.time(), self._received
        while (found := len(data)) < _LENGTH + size:
            left = begin + self._connections.seconds_for(found) - self._loop.time()
            try:
                await self._connections.purgatory.wait_for(lambda: len(data) > found, [self], timeout=left)
            except DeadlineError:
                raise wire.WireError(f"a request of {size} bytes arrives too slowly, got {found}") from None

    def _handle(self, frame: bytes) -> None:
        self._request = wire.parse(frame)
        values = self._connections.answer(self._request)
        if values is None or isinstance(values, Values):
            self._write(values)
        else:
            self._wait(values)

    def _wait(self, wait: Awaitable[Any]) -> None:
        # An operation is a future already. A coroutine becomes a task.
        self._waiting = asyncio.ensure_future(wait, loop=self._loop)
        self._waiting.add_done_callback(self._ended)
        if self._has_left:  # soon, so that a task does what comes before its first wait
            self._loop.call_soon(self._waiting.cancel)

    def _ended(self, waiting: asyncio.Future[Any]) -> None:
        """Go on after a wait."""
        self._waiting = None
        try:
            if waiting.cancelled():  # the client has disconnected
                self._request = None
            elif self._request is None:
                self._handle(waiting.result())
            else:
                self._write(waiting.result())
        except Exception as error:
            self._fail(error)
        else:
            self._go_on()

    def _write(self, values: Values | None) -> None:
        request, self._request = self._request, None
        if request is None or values is None or self._transport.is_closing():
            return
        frame = wire.answer(request, values)
        if len(frame) > _SMALL and not self._connections.unread.room():
            self.abort("there is no room for its answer")
        else:
            self._transport.write(frame)

    def _fail(self, error: Exception) -> None:
        """Close the connection: the request cannot be answered."""
        is_known = isinstance(error, wire.WireError)
        logger.warning("%s: %s; the connection is closed", self._name(), error, exc_info=None if is_known else error)
        self._received.clear()
        self._transport.close()

    def _name(self) -> str:
        host, port, *_ = self._transport.get_extra_info("peername") or ("a client", 0)
        return f"{host}:{port}"
