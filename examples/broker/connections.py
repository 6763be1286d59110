"""Connections: frames in, frames out. As in Kafka, a connection's requests are handled in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from . import wire
from .answers import Values
from .room import Room

_LENGTH: Final = 4
#: Smaller requests need no room: a connection's buffer may have as many bytes anyway.
_SMALL: Final = 64 << 10
#: A large request has room that others may wait for. It must arrive at this rate, after so many seconds.
_BYTES_PER_SECOND: Final = 1 << 20
_GRACE: Final = 5.0
#: Seconds that waiting requests have to be answered, and the answers to be read, when the broker stops.
_DRAIN: Final = 5.0

logger = logging.getLogger("broker")

Answer = Callable[[wire.Request], Awaitable[Values | None]]


class Connections:
    """All connections of a broker.

    Args:
        answer: returns the values of each answer.
        max_request: the most bytes of a request. A larger one closes its connection.
        room: the bytes of large requests that are being read.
    """

    def __init__(self, answer: Answer, max_request: int, room: Room) -> None:
        self.host = ""
        self.port = 0
        self.answer = answer
        self.max_request = max_request
        self.room = room
        self.grace = _GRACE
        self.is_stopping = False
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()

    async def listen(self, host: str, port: int) -> None:
        """Start listening. Raises: OSError: the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, self._open), host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def stop_listening(self) -> None:
        """Accept no more connections, and close each one after its current answer."""
        self.is_stopping = True
        if self._server:
            self._server.close()
        for connection in list(self._open):
            connection.close_if_idle()

    async def drain(self) -> None:
        """Wait until all requests are answered, the answers read, and all connections closed."""
        tasks = [connection.task for connection in self._open if connection.task]
        if tasks:
            await asyncio.wait(tasks, timeout=_DRAIN)
        for connection in list(self._open):  # its client does not read its answer
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection(asyncio.StreamReaderProtocol):
    """One client. When it disconnects, its waiting request is cancelled."""

    def __init__(self, connections: Connections, all_open: set[_Connection]) -> None:
        super().__init__(asyncio.StreamReader(), self._begin)
        self.task: asyncio.Task[None] | None = None
        self._connections = connections
        self._all = all_open
        self._is_idle = True

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.add(self)
        self.abort = writer.transport.abort
        self.task = asyncio.get_running_loop().create_task(self._serve(reader, writer))

    def eof_received(self) -> bool:
        """Close the transport: a client that stops sending counts as disconnected."""
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.discard(self)
        if self.task:
            self.task.cancel()

    def close_if_idle(self) -> None:
        """End the connection if no request of it waits for an answer."""
        if self._is_idle and self.task:
            self.task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self._connections.is_stopping:
                request = await self._next(reader)
                self._is_idle = False
                values = await self._connections.answer(request)
                if values is not None:
                    writer.write(wire.answer(request, values))
                    await writer.drain()
                self._is_idle = True
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has disconnected
        except wire.WireError as error:
            logger.warning("%s: %s; the connection is closed", _name(writer), error)
        except Exception:
            logger.exception("%s: the connection is closed", _name(writer))
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()  # until the client has read its answer

    async def _next(self, reader: asyncio.StreamReader) -> wire.Request:
        size = int.from_bytes(await reader.readexactly(_LENGTH), signed=True)
        if not 0 <= size <= self._connections.max_request:
            raise wire.WireError(f"a request must have 0 to {self._connections.max_request} bytes, got {size}")
        if size <= _SMALL:
            return wire.parse(await reader.readexactly(size))
        async with self._connections.room.taken(size):
            return wire.parse(await self._large(reader, size))

    async def _large(self, reader: asyncio.StreamReader, size: int) -> bytes:
        end = asyncio.get_running_loop().time() + self._connections.grace
        found = bytearray()
        try:
            async with asyncio.timeout_at(end) as deadline:
                while len(found) < size:
                    part = await reader.read(size - len(found))
                    if not part:
                        raise asyncio.IncompleteReadError(b"", size)
                    found += part
                    deadline.reschedule(end + len(found) / _BYTES_PER_SECOND)
        except TimeoutError:
            raise wire.WireError(f"a request of {size} bytes arrives too slowly, got {len(found)}") from None
        return bytes(found)


def _name(writer: asyncio.StreamWriter) -> str:
    host, port, *_ = writer.get_extra_info("peername") or ("a client", 0)
    return f"{host}:{port}"
