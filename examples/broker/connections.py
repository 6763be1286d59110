"""Connections: frames in, frames out, one request of a connection after the other, as Kafka does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from . import wire
from .answers import Values

_LENGTH: Final = 4
#: Seconds in which all that waits is to be answered when the broker stops.
_DRAIN: Final = 5.0

logger = logging.getLogger("broker")

Answer = Callable[[wire.Request], Awaitable[Values | None]]


class Connections:
    """All connections of a broker.

    Args:
        answer: what is asked for the values of each answer.
        max_request: bytes of the largest request. A connection with a larger one is closed.
    """

    def __init__(self, answer: Answer, max_request: int) -> None:
        self.host = ""
        self.port = 0
        self.answer = answer
        self.max_request = max_request
        self.is_stopping = False
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()

    async def listen(self, host: str, port: int) -> None:
        """Raises: OSError: the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, self._open), host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def stop_listening(self) -> None:
        """Take no new connections, and close each once what it waits for is answered."""
        self.is_stopping = True
        if self._server:
            self._server.close()
        for connection in list(self._open):
            connection.close_if_idle()

    async def drain(self) -> None:
        """Wait until all are answered and closed."""
        tasks = [connection.task for connection in self._open if connection.task]
        if tasks:
            await asyncio.wait(tasks, timeout=_DRAIN)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection(asyncio.StreamReaderProtocol):
    """One client. When it leaves, what it waits for is cancelled."""

    def __init__(self, connections: Connections, all_open: set[_Connection]) -> None:
        super().__init__(asyncio.StreamReader(), self._begin)
        self.task: asyncio.Task[None] | None = None
        self._connections = connections
        self._all = all_open
        self._is_idle = True

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.add(self)
        self.task = asyncio.get_running_loop().create_task(self._serve(reader, writer))

    def eof_received(self) -> bool:
        """A client that sends no more reads no more, either: the transport closes itself."""
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.discard(self)
        if self.task:
            self.task.cancel()

    def close_if_idle(self) -> None:
        """Nothing of it waits for an answer: end it."""
        if self._is_idle and self.task:
            self.task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self._connections.is_stopping:
                frame = await self._next(reader)
                self._is_idle = False
                request = wire.parse(frame)
                values = await self._connections.answer(request)
                if values is not None:
                    writer.write(wire.answer(request, values))
                    await writer.drain()
                self._is_idle = True
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it has left
        except wire.WireError as error:
            logger.warning("%s: %s; the connection is closed", _name(writer), error)
        except Exception:
            logger.exception("%s: the connection is closed", _name(writer))
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(_LENGTH), signed=True)
        if not 0 <= size <= self._connections.max_request:
            raise wire.WireError(f"a request has 0 to {self._connections.max_request} bytes, got {size}")
        return await reader.readexactly(size)


def _name(writer: asyncio.StreamWriter) -> str:
    host, port, *_ = writer.get_extra_info("peername") or ("a client", 0)
    return f"{host}:{port}"
