"""The reader: versions and bodies of a source, in memory or awaited, and those that are kept for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, cast

from ..arguments import require_int
from .outages import Outages
from .prefer import K
from .reads import Reads
from .source import Kept, Source, State, is_async_source, is_short, require_read, require_version


class Reader(Generic[K]):
    """Reads *source*. Polls of a source in memory call version_now() and body_now(); streams await either kind.

    Args: max_body_bytes, max_reads: as for LongPolling.

    Raises: TypeError, ValueError: an argument has a wrong type, or is out of its range.
    """

    def __init__(self, source: Source[K], max_body_bytes: int, max_reads: int) -> None:
        is_async = is_async_source(source)
        require_int("max_body_bytes", max_body_bytes, 0)
        require_int("max_reads", max_reads, 1)
        self._source: Final = cast(Any, source)
        self._name: Final = type(source).__name__
        #: Source.version, unchecked, for the checks of parked polls; None: it has to be awaited.
        self.peek: Final[Callable[[K], str] | None] = None if is_async else self._source.version
        self.kept: Final = Kept[Any](max_body_bytes)
        self._max_reads: Final = max_reads
        self._outages: Final = Outages()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reads: Reads[K] | None = None

    def version_now(self, resource: K) -> str:
        """The version of *resource*, in memory."""
        return require_version(self._name, self._source.version(resource))

    def body_now(self, resource: K, since: str | None, version: str) -> State:
        """The version and body for a client at version *since*, from memory."""
        wanted = (resource, since, version)
        found: State | None = self.kept.get(wanted)
        if found is None:
            found = require_read(self._name, version, self._source.read(resource, since, version))
            if is_short(resource, since):
                self.kept.keep(wanted, found, len(version) + len(found[1]))
        return found

    @property
    def reads(self) -> Reads[K]:
        """The shared calls of the source in the running loop: they belong to a loop."""
        loop = asyncio.get_running_loop()
        if self._reads is None or self._loop is not loop:
            self._loop, self._reads = loop, Reads(self._source, self._max_reads, self._outages, self.kept)
        return self._reads

    async def version(self, resource: K, check: int) -> str:
        """The version of *resource*. Args: check: see Reads.version()."""
        return self.version_now(resource) if self.peek else await self.reads.version(resource, check)

    async def body(self, resource: K, since: str | None, version: str, check: int) -> State:
        """The version and body for a client at version *since*; see Source.read(). Args: check: as for version()."""
        if self.peek:
            return self.body_now(resource, since, version)
        return await self.reads.body(resource, since, version, check)
