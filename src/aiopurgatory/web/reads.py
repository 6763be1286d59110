"""Reads of an asynchronous source, shared by polls that want the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic

from ..errors import PurgatoryError
from .headers import ANY, require_entity_tag
from .sources import AsyncSource, GoneError, K

logger = logging.getLogger("aiopurgatory")


class ReadFailedError(PurgatoryError):
    """An asynchronous source raised an exception."""


class Reads(Generic[K]):
    """Calls *source* for polls: one call for all that want the same, and at most *most* calls at a time.

    Belongs to one event loop. A poll never shares a call that has already begun, since that may have missed a change.
    """

    def __init__(self, source: AsyncSource[K], most: int) -> None:
        self._source = source
        self._free = asyncio.Semaphore(most)
        #: Calls that have not begun.
        self._coming: dict[Hashable, asyncio.Task[Any]] = {}

    async def version(self, resource: K) -> str:
        return require_entity_tag(await self._share(("version", resource), lambda: self._source.version(resource)))

    async def body(self, resource: K, since: str | None, version: str) -> bytes:
        wanted = ("body", resource, since, version)
        body: bytes = await self._share(wanted, lambda: self._source.read(resource, since, version))
        return body

    async def _share(self, wanted: Hashable, call: Callable[[], Awaitable[Any]]) -> Any:
        task = self._coming.get(wanted)
        if task is None or task.done():  # done: cancelled before its first step, so it could not leave _coming
            # Not create_task(): an eager task would begin before it is in _coming.
            task = self._coming[wanted] = asyncio.Task(self._call(wanted, call), loop=asyncio.get_running_loop())
            task.add_done_callback(_heard)
        return await asyncio.shield(task)

    async def _call(self, wanted: Hashable, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            await self._free.acquire()
        finally:
            del self._coming[wanted]  # later polls need a call that begins later
        try:
            return await call()
        except GoneError:
            raise
        except Exception as exc:
            logger.exception("a source could not be read; its polls are answered with 503")
            raise ReadFailedError("the source could not be read") from exc
        finally:
            self._free.release()


def _heard(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception, which was logged: perhaps no poll is left to do so."""
    if not task.cancelled():
        task.exception()


class Reading(Generic[K]):
    """The reads of one poll."""

    __slots__ = ("_reads", "_resource", "known", "version")

    def __init__(self, reads: Reads[K], resource: K, known: tuple[str, ...]) -> None:
        self._reads, self._resource = reads, resource
        self.known = known
        self.version = ""

    async def is_news(self) -> bool:
        """Read the version. Returns: whether the client does not have it."""
        self.version = await self._reads.version(self._resource)
        if self.known is ANY:
            self.known = (self.version,)
        return self.version not in self.known

    async def body(self) -> bytes:
        return await self._reads.body(self._resource, self.known[0] if len(self.known) == 1 else None, self.version)
