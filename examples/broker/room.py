"""A bound on the bytes of large requests in all connections. A request that has to wait is not read meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiopurgatory import Purgatory

_KEY: Final = "room"


class Room:
    """Bytes that requests take while they are read: *most* in all, first come, first served."""

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
