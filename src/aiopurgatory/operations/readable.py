"""What can be fetched from."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ..errors import PurgatoryError

T_co = TypeVar("T_co", covariant=True)


class SourceError(PurgatoryError):
    """To be raised by a source that cannot be read at an offset, because it is gone or truncated, or is elsewhere now.

    It is the answer for this source, without delay. Any other exception that a source raises fails the fetch.
    """


class Readable(Protocol[T_co]):
    """A source: a log, a table, a queue. It counts in bytes, or in items if it likes."""

    def readable(self, offset: int, /) -> int:
        """The number of bytes that can be read from *offset* on. Called on each check: keep it cheap.

        Raises: SourceError: it cannot be read there.
        """
        ...

    def read(self, offset: int, max_bytes: int, /) -> T_co:
        """At most *max_bytes* from *offset* on; nothing if that is 0.

        If a single record can exceed *max_bytes*, return it whole anyway; otherwise a reader could never get past it.

        Raises: SourceError: it cannot be read there.
        """
        ...


class Reader(Protocol[T_co]):
    """A source whose end is a Watermark: it need not count what is readable."""

    def read(self, offset: int, max_bytes: int, /) -> T_co:
        """As in Readable. Called with *max_bytes* 0 while *offset* is past the end, to raise SourceError or not."""
        ...
