"""A TCP proxy that can deafen connections: it then drops whatever the server sends on them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

#: What only the connection that listens sends.
LISTENS = (b"LISTEN", b"SUBSCRIBE")


class DeafeningProxy:
    """Args: target: the server's port, on 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._listeners: set[asyncio.Task[None] | None] = set()
        self._deaf: set[asyncio.Task[None] | None] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def deafen(self) -> int:
        """Deafen the connections that listen now; later ones still work. Returns: how many were deafened."""
        new = self._listeners - self._deaf
        self._deaf |= new
        return len(new)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._tasks.add(connection)
        back: asyncio.StreamWriter | None = None
        with suppress(OSError, asyncio.CancelledError):  # the streams of asyncio report a cancellation, too
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [self._to_server(connection, reader, back), self._to_client(connection, there, writer)]
            done, pending = await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
            for way in pending:
                way.cancel()
            await asyncio.gather(*done, *pending, return_exceptions=True)
        for each in (writer, back):
            if each is not None:
                each.transport.abort()
        self._tasks.discard(connection)
        self._listeners.discard(connection)
        self._deaf.discard(connection)

    async def _to_server(
        self, connection: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            if any(word in data for word in LISTENS):
                self._listeners.add(connection)
            writer.write(data)

    async def _to_client(
        self, connection: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            if connection not in self._deaf:
                writer.write(data)
