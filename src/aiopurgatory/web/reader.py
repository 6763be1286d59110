"""The reader: versions and bodies of a source of either kind, in memory or asynchronous."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Generic, cast

from ..arguments import require_int
from ..core.kit import NO_CHECK
from .kept import Kept, is_short
from .outages import Outages
from .prefer import ANY, K
from .reads import Asked, Reads
from .source import AsyncSource, Read, Source, is_async_source, require_read, require_version


class Reader(Generic[K]):
    """Reads *source*. Polls of a source in memory call version_now() and body_now(); streams await either kind.

    Args: max_body_bytes, max_reads: as for LongPolling.

    Raises: TypeError, ValueError: an argument has a wrong type, or is out of its range.
    """

    def __init__(self, source: Source[K] | AsyncSource[K], max_body_bytes: int, max_reads: int) -> None:
        self.is_async: Final = is_async_source(source)
        require_int("max_body_bytes", max_body_bytes, 0)
        require_int("max_reads", max_reads, 1)
        memory = cast("Source[K]", source)
        self._name: Final = type(source).__name__
        #: Source.version, unchecked, for the checks of parked polls; None: the source is asynchronous.
        self.peek: Final = None if self.is_async else memory.version
        self._version: Final = memory.version
        self.kept: Final = Kept[Any](max_body_bytes)
        self._bodies: Final = Bodies(memory, self.kept)
        self._async_source: Final = cast("AsyncSource[K]", source)
        self._max_reads: Final = max_reads
        self._outages: Final = Outages()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reads: Reads[K] | None = None

    def version_now(self, resource: K) -> str:
        """The version of *resource*, in memory."""
        return require_version(self._name, self._version(resource))

    def body_now(self, resource: K, since: str | None, version: str) -> Read:
        """The version and body for a client at version *since*, from memory."""
        return self._bodies.get(resource, since, version)

    @property
    def reads(self) -> Reads[K]:
        """The shared calls of an asynchronous source in the running loop: they belong to a loop."""
        loop = asyncio.get_running_loop()
        if self._reads is None or self._loop is not loop:
            self._loop = loop
            self._reads = Reads(self._async_source, self._max_reads, self._outages, self.kept)
        return self._reads

    async def version(self, resource: K, check: int) -> str:
        """The version of *resource*. Args: check: see Reads.version()."""
        return await self.reads.version(resource, check) if self.is_async else self.version_now(resource)

    async def body(self, resource: K, since: str | None, version: str, check: int) -> Read:
        """The version and body for a client at version *since*; see Source.read(). Args: check: as for version()."""
        if self.is_async:
            return await self.reads.body(resource, since, version, check)
        return self.body_now(resource, since, version)


class Reading(Generic[K]):
    """The reads of one poll of an asynchronous source. Args: is_late: the poll may not wait."""

    __slots__ = ("_asked", "_check", "_reads", "_resource", "known", "version")

    def __init__(self, reads: Reads[K], resource: K, known: tuple[str, ...], is_late: bool) -> None:
        self._reads, self._resource = reads, resource
        self._asked = Asked(is_late)
        self._check = NO_CHECK
        self.known = known
        #: The last version that was read; empty: none yet.
        self.version = ""

    def hurry(self) -> None:
        """The poll's time is up: bound the queue for the read under way, and for the last read."""
        self._asked.hurry()

    async def is_news(self, check: int) -> bool:
        """Read the version. Returns: whether the client does not have it.

        Args: check: the newest check that called for this read; NO_CHECK: anything else did.
        """
        self._check = check if self.version else NO_CHECK  # before the first read, checks may have missed the poll
        self.version = await self._reads.version(self._resource, self._check, self._asked)
        if self.known is ANY:
            self.known = (self.version,)
        return self.version not in self.known

    async def body(self) -> bytes | None:
        """Read the body, and its version. Returns: None: the client has that version."""
        since = self.known[0] if len(self.known) == 1 else None
        self.version, body = await self._reads.body(self._resource, since, self.version, self._check, self._asked)
        return None if self.version in self.known else body


class Bodies(Generic[K]):
    """The bodies of *source*, kept in *kept*."""

    def __init__(self, source: Source[K], kept: Kept[Read]) -> None:
        self._source = type(source).__name__
        self._read = source.read
        self._kept = kept

    def get(self, resource: K, since: str | None, version: str) -> Read:
        wanted = (resource, since, version)
        found = self._kept.get(wanted)
        if found is None:
            found = require_read(self._source, version, self._read(resource, since, version))
            if is_short(resource, since):
                self._kept.keep(wanted, found, len(found[1]))
        return found
