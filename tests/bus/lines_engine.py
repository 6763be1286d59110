"""A third engine, for a server that speaks in lines over TCP. It shows that an engine takes less than 80 lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from aiopurgatory.bus.engine import EchoLostError, Hear, Lost
from aiopurgatory.bus.server import ServerBus
from aiopurgatory.bus.targets import Target


class LinesBus(ServerBus):
    """Args: host, port: of the server."""

    def __init__(self, host: str, port: int, targets: Iterable[Target], *, heartbeat: float = 5.0) -> None:
        super().__init__(LinesEngine(host, port), targets, heartbeat=heartbeat)


class LinesEngine:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def open(self, hear: Hear, lost: Lost) -> _Link:
        connections: list[_Connection] = []
        try:
            for _ in range(2):
                connections.append(await asyncio.open_connection(self._host, self._port))
            listener, publisher = connections
            await ask(listener, "SUBSCRIBE")
        except BaseException:
            for _, writer in connections:
                writer.transport.abort()
            raise
        return _Link(listener, publisher, hear, lost)

    def explain(self, exc: Exception) -> str:
        if isinstance(exc, EchoLostError):
            return "the server does not send the bus its own messages"
        return f"cannot use {self._host}:{self._port}: {exc}; check host and port"


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(connection: _Connection, line: str) -> None:
    reader, writer = connection
    writer.write(line.encode() + b"\n")
    await writer.drain()
    if await reader.readline() != b"OK\n":
        raise ConnectionResetError("the server hung up")


class _Link:
    def __init__(self, listener: _Connection, publisher: _Connection, hear: Hear, lost: Lost) -> None:
        self._listener, self._publisher = listener, publisher
        self._hear, self._lost = hear, lost
        self._reading = asyncio.create_task(self._read())

    async def send(self, messages: list[str]) -> None:
        for message in messages:
            await ask(self._publisher, "PUBLISH " + json.dumps(message))

    def abort(self) -> None:
        self._reading.cancel()
        for _, writer in (self._listener, self._publisher):
            writer.transport.abort()

    async def _read(self) -> None:
        try:
            while line := await self._listener[0].readline():
                self._hear(json.loads(line))
            self._lost(ConnectionResetError("the server hung up"))
        except Exception as exc:
            self._lost(exc)
