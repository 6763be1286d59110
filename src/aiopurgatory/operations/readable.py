"""The protocols of sources to fetch from, and their error."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ..errors import PurgatoryError

T_co = TypeVar("T_co", covariant=True)


class SourceError(PurgatoryError):
    """Raise this in a source that cannot be read at an offset because it is gone, was truncated or has moved.

    It becomes the answer for this source, at once. Any other exception from a source fails the fetch.
    """


class Readable(Protocol[T_co]):
    """A source: a log, a table, a queue. Its sizes are in bytes, or in items: the source decides."""

    def readable(self, offset: int, /) -> int:
        """Return the number of bytes that can be read from *offset* on. Called on each check: keep it cheap.

        Raises: SourceError: it cannot be read there.
        """
        ...

    def read(self, offset: int, max_bytes: int, /) -> T_co:
        """Read at most *max_bytes* from *offset* on; nothing if *max_bytes* is 0.

        If a single record can exceed *max_bytes*, return it whole anyway; otherwise a reader could never get past it.

        Raises: SourceError: it cannot be read there.
        """
        ...
