"""Bounds on the bytes that all connections together keep: of large requests, and of answers that were not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from aiopurgatory import Purgatory

_KEY: Final = "room"


class Room:
    """Bytes that requests take while they are read: *most* in all, first come, first served.

    A request that has to wait is not read meanwhile.
    """

    def __init__(self, purgatory: Purgatory, most: int) -> None:
        self._purgatory = purgatory
        self._free = most
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Wait until *size* bytes are free, and take them within the block."""
        async with self._turn:  # it is fair: a large request is not overtaken by smaller ones again and again
            await self._purgatory.wait_for(lambda: self._free >= size, [_KEY], timeout=None)
            self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._purgatory.check_and_complete(_KEY)


class Writer(Protocol):
    """A connection, as Unread sees it."""

    unread: int

    def reads_too_slowly(self) -> bool: ...

    def abort(self, reason: str) -> None: ...


class Unread:
    """Answers that clients have not read: records for more than *most* bytes are not sent."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._writers: set[Writer] = set()

    def add(self, writer: Writer) -> None:
        """Note that a client has *writer.unread* bytes to read."""
        self._writers.add(writer)
        self._room -= writer.unread

    def discard(self, writer: Writer) -> None:
        """Note that a client has read its answer, or has left."""
        if writer in self._writers:
            self._writers.remove(writer)
            self._room += writer.unread

    def room(self) -> int:
        """Return how many bytes may be sent. If there is no room, disconnect the clients that read too slowly."""
        if self._room <= 0:
            for writer in [each for each in self._writers if each.reads_too_slowly()]:
                writer.abort("reads its answer too slowly")
        return max(self._room, 0)
