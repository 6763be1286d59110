"""Fetches end as soon as there is enough to read. At the deadline they return less, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..arguments import described, require_int
from ..core.kit import park_awaited
from ..delayed_operation import DelayedOperation
from ..errors import PurgatoryError
from ..purgatory import Purgatory
from .thresholds import Collection

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
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


class DelayedFetch(DelayedOperation[dict[K, T | SourceError]]):
    """Waits until its sources together have enough to read. Its result: for each key the data, or the SourceError."""

    __slots__ = ("_max_bytes", "_min_bytes", "_positions")

    def __init__(
        self,
        positions: Mapping[K, tuple[Readable[T], int]],
        timeout: float | None,
        min_bytes: int,
        max_bytes: int | None,
    ) -> None:
        super().__init__(timeout)
        self._max_bytes = require_int("max_bytes", sys.maxsize if max_bytes is None else max_bytes, 0)
        self._min_bytes = min(require_int("min_bytes", min_bytes, 0), self._max_bytes)
        self._positions = positions

    def try_complete(self) -> bool:
        return self._is_enough() and self.force_complete()

    def _is_enough(self) -> bool:
        readable = 0
        for source, offset in self._positions.values():
            try:
                size = source.readable(offset)
            except SourceError:
                return True
            if size > 0:  # a position past its end takes nothing from the others
                readable += size
        return readable >= self._min_bytes

    def on_complete(self) -> dict[K, T | SourceError]:
        answers: dict[K, T | SourceError] = {}
        left = self._max_bytes
        for key, (source, offset) in self._positions.items():
            try:
                size = min(max(source.readable(offset), 0), left)
                answers[key] = source.read(offset, size)
                left -= size
            except SourceError as exc:
                exc.__traceback__ = None  # an answer, not a fault; its frames would keep the operation alive
                answers[key] = exc
        return answers


async def fetch(
    purgatory: Purgatory,
    positions: Mapping[K, tuple[Readable[T], int]],
    *,
    timeout: float | None,
    min_bytes: int = 1,
    max_bytes: int | None = None,
) -> dict[K, T | SourceError]:
    """Read from several sources, once they have enough together. For a single source, use Feed.

        class Queue:
            def __init__(self, *items: str) -> None:
                self.items = list(items)
            def readable(self, offset: int) -> int:
                return len(self.items) - offset
            def read(self, offset: int, max_bytes: int) -> list[str]:
                return self.items[offset : offset + max_bytes]

        async with Purgatory("fetch") as purgatory:
            one, two = Queue("a"), Queue("b")
            positions = {("queue", 1): (one, 0), ("queue", 2): (two, 1)}
            poll = asyncio.create_task(fetch(purgatory, positions, min_bytes=2, timeout=30.0))
            await asyncio.sleep(0)
            two.items.append("c")
            assert purgatory.check_and_complete(("queue", 2)) == 1
            assert await poll == {("queue", 1): ["a"], ("queue", 2): ["c"]}

    Each key of *positions* is a watch key: check it when its source has more to read, or less. Every source is read
    when the fetch ends, so no answer is stale.

    Args:
        purgatory: holds the fetch.
        positions: for each watch key, the source and the offset to read from.
        timeout: seconds, or None for no deadline. 0 or less: read at once, and do not wait.
        min_bytes: wait until this many can be read in all (default 1), limited to *max_bytes*.
        max_bytes: read at most this many in all, in the order of *positions*. None (default): no limit.

    Returns: for each key the data, or the SourceError that its source raised.

    Such an error ends the wait at once. It is returned because the other sources also have answers.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: *positions* is empty, or a size is negative.
        Exception: raised by a source (other than SourceError) or by watch() of the purgatory.

    Cost: a try calls readable() of every source.
    """
    # Source: Kafka DelayedFetch.
    if not positions:
        raise ValueError("positions must name at least one source, got none")
    # No variable holds the operation: an exception keeps this frame, and the operation keeps the exception.
    return await park_awaited(purgatory, DelayedFetch(dict(positions), timeout, min_bytes, max_bytes), tuple(positions))


class Feed(Collection, Generic[K, T]):
    """One source, and the fetches waiting for it.

        class Log:
            def __init__(self) -> None:
                self.data = b""
            def readable(self, offset: int) -> int:
                if offset > len(self.data):
                    raise SourceError(f"truncated to {len(self.data)}")
                return len(self.data) - offset
            def read(self, offset: int, max_bytes: int) -> bytes:
                return self.data[offset : offset + max_bytes]

        async with Purgatory("fetch") as purgatory:
            log = Log()
            orders = Feed(purgatory, "orders", log)
            poll = asyncio.create_task(orders.fetch(0, min_bytes=5, timeout=30.0))
            await asyncio.sleep(0)
            for part in (b"hel", b"lo"):
                log.data += part
                orders.check_and_complete()
            assert await poll == b"hello"
            assert await orders.fetch(5, timeout=0.01) == b""

    A check tries every fetch that waits. With thousands of them on one log, let them wait for its end instead, with
    ``Thresholds.reached(offset + min_bytes)``, and read then: an advance touches only the waits it satisfies.
    ``len()`` counts the waiting fetches.

    Args:
        purgatory: holds the fetches.
        key: their watch key.
        source: the source they read.

    Raises: TypeError: *key* is not hashable.
    """

    __slots__ = ("_source",)

    if TYPE_CHECKING:  # with its type

        @property
        def key(self) -> K: ...

    def __init__(self, purgatory: Purgatory, key: K, source: Readable[T]) -> None:
        super().__init__(purgatory, key)
        self._source = source

    def __repr__(self) -> str:
        return f"<Feed {described(self._key)} waiting={len(self)}>"

    def __len__(self) -> int:
        return len(self._purgatory.waiting(self._key))

    async def fetch(self, offset: int, *, min_bytes: int = 1, max_bytes: int | None = None, timeout: float | None) -> T:
        """Wait until *min_bytes* can be read from *offset* on.

        Args:
            offset: the first offset to read.
            min_bytes: answer as soon as this many bytes can be read (default: 1).
            max_bytes: answer with at most this many (default: all). A single record may be longer.
            timeout: seconds, or None for no deadline. 0 or less: read at once, and do not wait.

        Returns: the data; at the deadline, that may be less than *min_bytes*, or nothing.

        Raises:
            SourceError: raised by the source. (fetch() returns it instead: there are other answers.)
            TypeError: an argument has the wrong type.
            ValueError: a size is negative, or *timeout* is NaN.
            Exception: raised by the source or by watch() of the purgatory.
        """
        # No variable holds the operation: an exception keeps this frame, and the operation keeps the exception.
        positions = {self._key: (self._source, offset)}
        answers = await park_awaited(
            self._purgatory, DelayedFetch(positions, timeout, min_bytes, max_bytes), (self._key,)
        )
        answer = answers.pop(self._key)
        if not isinstance(answer, SourceError):
            return answer
        try:
            raise answer
        finally:
            del answer  # an exception keeps this frame

    def check_and_complete(self) -> int:
        """Complete the fetches that now have enough to read. Call this when the source has more to read, or less.

        From another thread, or for a feed with very many fetches, call ``notify_threadsafe(key)`` or
        ``notify(key)`` of the purgatory.

        Returns: how many fetches ended.
        Raises: RuntimeError: called from another thread, while something waits.
        """
        return self._purgatory.check_and_complete(self._key)
