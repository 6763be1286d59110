"""A TCP proxy of ours between a bus and its server: it cuts, swallows, holds back, and makes one direction deaf."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

#: Words that only the listening connection sends, and the words of the server's confirmation.
LISTENS = (b"LISTEN", b"SUBSCRIBE")
CONFIRMS = (b"LISTEN", b"subscribe")


class _Pair:
    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.is_listener = False
        self.swallows: set[str] = set()


class Proxy:
    """Forwards to *port*. Later connections are not harmed, unless *is_hole* or *deafens_at_once* is set."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.is_hole = False
        #: Subscriptions are confirmed, and then hear nothing: as behind pgbouncer in transaction mode.
        self.deafens_at_once = False
        #: Set while something is held back.
        self.is_holding = asyncio.Event()
        self._holds: str | None = None
        self._released = asyncio.Event()
        #: Bytes that did not come through.
        self.swallowed = 0
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for pair in self._pairs:
            for writer in pair.writers:
                writer.transport.abort()

    def swallow(self) -> None:
        """A black hole: nothing comes through on the connections that there are, in either direction."""
        for pair in self._pairs:
            pair.swallows |= {"up", "down"}

    def deafen(self) -> int:
        """Only the connection that listens gets nothing more. Returns: how many those are."""
        listeners = [pair for pair in self._pairs if pair.is_listener]
        for pair in listeners:
            pair.swallows.add("down")
        return len(listeners)

    def mute(self) -> int:
        """Only messages that are published are swallowed."""
        publishers = [pair for pair in self._pairs if not pair.is_listener]
        for pair in publishers:
            pair.swallows.add("up")
        return len(publishers)

    def hold(self, way: str) -> None:
        """Hold back the next subscription on its way "up", or its confirmation on its way "down", until release().

        Messages that follow the confirmation are then delivered in one piece with it.
        """
        self._holds = way

    def release(self) -> None:
        self._holds = None
        self.is_holding.clear()
        self._released.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair()
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        pair.writers.append(writer)
        self._pairs.add(pair)
        try:
            if self.is_hole:
                await asyncio.sleep(3600)
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            pair.writers.append(back)
            await asyncio.gather(self._forward(pair, "up", reader, back), self._forward(pair, "down", there, writer))
        except (OSError, asyncio.CancelledError):  # asyncio's streams may report a cancellation
            pass
        finally:
            self._pairs.discard(pair)
            for each in pair.writers:
                each.transport.abort()
            if task is not None:
                self._tasks.discard(task)

    async def _forward(self, pair: _Pair, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if way == self._holds and any(word in data for word in (LISTENS if way == "up" else CONFIRMS)):
                    self.is_holding.set()
                    await self._released.wait()
                    data += await reader.read(1 << 16) if way == "down" else b""
                if way == "up" and any(word in data for word in LISTENS):
                    pair.is_listener = True
                    if self.deafens_at_once:
                        asyncio.get_running_loop().call_later(0.05, pair.swallows.add, "down")
                if self.deafens_at_once and way == "up" and not pair.is_listener:
                    await asyncio.sleep(0.1)
                if way in pair.swallows:
                    self.swallowed += len(data)
                else:
                    writer.write(data)
                    await writer.drain()
        for each in pair.writers:
            each.transport.abort()
