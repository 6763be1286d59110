"""Connections: frames in, frames out. As in Kafka, a connection's requests are handled in order.

A request that waits takes no task of its own: its operation has a callback, which writes the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiopurgatory import Purgatory

from . import wire
from .answers import Values

_LENGTH: Final = 4
#: Of a client whose request waits, or that does not read its answer, no more bytes are received.
_MOST_AHEAD: Final = 64 << 10
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
        purgatory: holds the wait for the end of all connections.
        answer: handles a request.
        max_request: the most bytes of a request. A larger one closes its connection.
    """

    def __init__(self, purgatory: Purgatory, answer: Callable[[wire.Request], Answered], *, max_request: int) -> None:
        self.host = ""
        self.port = 0
        self.answer = answer
        self.max_request = max_request
        self.is_stopping = False
        self._purgatory = purgatory
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
        self._open.discard(connection)
        self._purgatory.check_and_complete(_ALL_CLOSED)

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
                await self._purgatory.wait_for(lambda: not self._open, [_ALL_CLOSED], timeout=timeout, default=None)
            for connection in list(self._open):
                connection.abort()


class _Connection(asyncio.Protocol):
    """One client. When it disconnects, its waiting request is cancelled."""

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._loop = loop
        self._received = bytearray()
        self._request: wire.Request | None = None  # is being answered
        self._waiting: asyncio.Future[Any] | None = None  # for the values of the answer
        self._is_unread = False  # the client has to read its answer first
        self._has_turn = False  # to go on soon, after others
        self._has_left = False

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
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._go_on()
        if self._is_busy and len(self._received) >= _MOST_AHEAD:
            self._transport.pause_reading()

    # for the broker

    def stop(self) -> None:
        """Close the connection once the current request is answered."""
        if self._request is None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        logger.warning("%s: does not read its answer; the connection is closed", self._name())
        self._received.clear()
        self._transport.abort()

    # requests

    @property
    def _is_busy(self) -> bool:
        return self._waiting is not None or self._is_unread or self._has_turn

    def _go_on(self) -> None:
        """Handle the requests that have arrived, unless one waits, or others have their turn first."""
        if not self._is_busy:
            self._take_turn()

    def _take_turn(self) -> None:
        """Handle the requests that have arrived, until one has to wait, or its answer to be read."""
        self._has_turn = False
        try:
            for _ in range(_MOST_AT_ONCE):
                if self._connections.is_stopping:
                    self.stop()
                    return
                if self._is_busy:
                    return
                if not self._begin():
                    self._transport.resume_reading()
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
        if len(self._received) < _LENGTH + size:
            return False
        with memoryview(self._received) as received:
            frame = received[_LENGTH : _LENGTH + size].tobytes()
        del self._received[: _LENGTH + size]
        self._handle(frame)
        return True

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
            else:
                self._write(waiting.result())
        except Exception as error:
            self._fail(error)
        else:
            self._go_on()

    def _write(self, values: Values | None) -> None:
        request, self._request = self._request, None
        if request is not None and values is not None and not self._transport.is_closing():
            self._transport.write(wire.answer(request, values))

    def _fail(self, error: Exception) -> None:
        """Close the connection: the request cannot be answered."""
        is_known = isinstance(error, wire.WireError)
        logger.warning("%s: %s; the connection is closed", self._name(), error, exc_info=None if is_known else error)
        self._received.clear()
        self._transport.close()

    def _name(self) -> str:
        host, port, *_ = self._transport.get_extra_info("peername") or ("a client", 0)
        return f"{host}:{port}"
