"""Sources: the state that clients poll, and its cached bodies."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from ..errors import PurgatoryError

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

#: A body for a longer client version or resource than this many characters is not cached. Clients may send anything.
MAX_KEY: Final = 200
#: Bytes that a cached body counts in addition to its own.
_ENTRY: Final = 500


class GoneError(PurgatoryError):
    """Raise this if a client cannot resume from its version. The answer is 410, as in Kubernetes."""


class Source(Protocol[K_contra]):
    """The polled state, in memory. Both methods are called in the event loop and must not block it."""

    def version(self, resource: K_contra, /) -> str:
        """Return the version of *resource*: printable ASCII without spaces and quotes.

        It becomes the ETag, and the client resumes from it. One version must never stand for two states: if your
        counters restart with the process, add a random prefix. Keep it cheap: it is called on every check.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes:
        """Return the body for a client at version *since*, when the state is at *version*.

        Called once for all clients that want the same. If *since* or ``str(resource)`` is longer than 200 characters,
        called for each: the body is not cached.

        Args: since: as the client sent it, so it may be anything; None: the client sent no version, or several.
        Raises: GoneError: a client cannot resume from *since*.
        """
        ...


class AsyncSource(Protocol[K_contra]):
    """The polled state where reading it takes I/O, as in a database. Same as Source, but awaited.

    Polls that want the same share a call, unless it began before the poll asked: then it may have missed a change. An
    exception is logged once, and the polls of that call are answered 503. Give each call a timeout: a poll waits for
    the call it needs, even beyond its own wait.
    """

    async def version(self, resource: K_contra, /) -> str:
        """Return the version of *resource*, as Source.version() does. Make it one short query."""
        ...

    async def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes:
        """Return the body for a client at version *since*, as Source.read() does.

        Leave out anything newer than *version*: the client would get it twice.

        Raises: GoneError: a client cannot resume from *since*.
        """
        ...


class Bodies(Generic[K]):
    """The bodies of *source*, the newest of them kept for other polls that want the same, up to *max_bytes*."""

    def __init__(self, source: Source[K], max_bytes: int) -> None:
        self._read = source.read
        self._max_bytes = max_bytes
        self._kept: dict[tuple[K, str | None, str], bytes] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, resource: K, since: str | None, version: str) -> bytes:
        wanted = (resource, since, version)
        body = self._kept.get(wanted)
        if body is None:
            body = self._read(resource, since, version)
            if not isinstance(body, bytes):
                raise TypeError(f"Source.read() must return bytes, got {type(body).__name__}")
            if len(since or "") <= MAX_KEY and len(str(resource)) <= MAX_KEY:
                self._keep(wanted, body)
        return body

    def _keep(self, wanted: tuple[K, str | None, str], body: bytes) -> None:
        size = len(body) + _ENTRY
        if size <= self._max_bytes:
            self._kept[wanted] = body
            self.bytes += size
            while self.bytes > self._max_bytes:
                oldest = next(iter(self._kept))
                self.bytes -= len(self._kept.pop(oldest)) + _ENTRY
