"""Sources: the state that clients poll."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from ..errors import PurgatoryError

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

#: Characters of a client's version whose body is kept for others. Clients may send anything.
MAX_SINCE: Final = 200
#: Bytes that a body counts beside its own.
_ENTRY: Final = 500


class GoneError(PurgatoryError):
    """The client's version is too old, or from an earlier process, to resume from. Answered 410, as in Kubernetes."""


class Source(Protocol[K_contra]):
    """The polled state, in memory. Both methods are called from the event loop, and must not block it."""

    def version(self, resource: K_contra, /) -> str:
        """The version of *resource*: printable ASCII without spaces and quotes.

        It becomes the ETag, and the client resumes from it. The same version must never stand for two bodies: if your
        counters restart with the process, put a random prefix in front. Keep it cheap: it is called at every check.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes:
        """The body for a client that has version *since*, when the state is at *version*.

        Called once for all clients that want the same.

        Args: since: as the client sent it, so it may be anything. None: the client has sent no version, or several.
        Raises: GoneError: a client cannot resume from *since*.
        """
        ...


class AsyncSource(Protocol[K_contra]):
    """The polled state, where it takes I/O to look: in a database, say. The same as Source, but awaited.

    The polls of a resource share each call: one that has begun before a poll asked is none of its own, since it may
    have missed a change. A call that raises is logged once, and its polls are answered 503. Calls have no time-out of
    their own, and a poll waits for the one it has begun, longer than its wait if need be: give yours one.
    """

    async def version(self, resource: K_contra, /) -> str:
        """The version of *resource*, as Source.version() gives it: one short query."""
        ...

    async def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes:
        """The body for a client that has version *since*, as Source.read() gives it. Leave out what is newer than
        *version*, which may have come since: the client would get it twice.

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
            if since is None or len(since) <= MAX_SINCE:
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
