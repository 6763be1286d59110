"""A fetch is answered as soon as there is enough to read, or with what there is when its time is up."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from ..errors import PurgatoryError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .arguments import require_int

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SourceError(PurgatoryError):
    """To be raised by a Source: it cannot be read at that offset (gone, truncated), or no longer here.

    It is the answer for this source, without delay. Whatever else a source raises is a fault and fails the fetch.
    """


class Source(Protocol[T_co]):
    """What can be fetched from: a log, a table, a feed. It counts in bytes, or in items if it likes."""

    def readable(self, offset: int) -> int:
        """How many bytes are there to read from *offset* on. Asked at each check: keep it cheap.

        Raises: SourceError: it cannot be read there.
        """
        ...

    def read(self, offset: int, max_bytes: int) -> T_co:
        """What is there from *offset* on, of *max_bytes* at most; nothing if that is 0.

        Whose records may be longer than that gives the first one whole, or its reader never gets past it.

        Raises: SourceError: it cannot be read there.
        """
        ...


class DelayedFetch(DelayedOperation[dict[K, T | SourceError]]):
    """Waits until its sources together have enough to read. Its result: what was read, or the error, for each key.

        class Feed:
            def __init__(self, *items: str) -> None:
                self.items = list(items)
            def readable(self, offset: int) -> int:
                return len(self.items) - offset
            def read(self, offset: int, max_bytes: int) -> list[str]:
                return self.items[offset : offset + max_bytes]

        async with Purgatory("fetch") as purgatory:
            op = DelayedFetch({("feed", 0): (Feed("a"), 0), ("feed", 1): (Feed("b", "c"), 1)}, 30.0, min_bytes=2)
            assert await purgatory.watch(op, keys=op.positions) == {("feed", 0): ["a"], ("feed", 1): ["c"]}

    An error of one source ends the wait at once. What was readable is read again in the end: an answer is never old.

    Args:
        positions: for each watch key, the source and the offset to read from.
        timeout: seconds, or None. 0 or less: answer now, and never park.
        min_bytes: wait for so many in all; more than *max_bytes* counts as *max_bytes*.
        max_bytes: read so many in all, in the order of *positions*. None: no limit.

    Raises: ValueError: *positions* is empty, or an argument is out of its range.

    Source: Kafka DelayedFetch.
    """

    __slots__ = ("_max_bytes", "_min_bytes", "positions")

    def __init__(
        self,
        positions: Mapping[K, tuple[Source[T], int]],
        timeout: float | None,
        *,
        min_bytes: int = 1,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(0.0 if isinstance(timeout, (int, float)) and timeout < 0 else timeout)
        require_int("min_bytes", min_bytes, 0)
        if max_bytes is not None:
            require_int("max_bytes", max_bytes, 0)
        if not positions:
            raise ValueError("positions must name at least one source, got none")
        self.positions = dict(positions)
        self._max_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._min_bytes = min(min_bytes, self._max_bytes)

    def try_complete(self) -> bool:
        return (self.timeout == 0 or self._is_enough()) and self.force_complete()

    def _is_enough(self) -> bool:
        readable = 0
        for source, offset in self.positions.values():
            try:
                readable += max(source.readable(offset), 0)  # one that is past its end takes nothing from the others
            except SourceError:
                return True
        return readable >= self._min_bytes

    def on_complete(self) -> dict[K, T | SourceError]:
        answers: dict[K, T | SourceError] = {}
        left = self._max_bytes
        for key, (source, offset) in self.positions.items():
            try:
                size = min(max(source.readable(offset), 0), left)
                answers[key] = source.read(offset, size)
                left -= size
            except SourceError as exc:
                exc.__traceback__ = None  # an answer and no fault; its frames would keep the operation
                answers[key] = exc
        return answers


class Topic(Generic[K, T]):
    """One source, and who waits for it.

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
            orders = Topic(purgatory, "orders", log)
            poll = asyncio.create_task(orders.fetch(0, min_bytes=5, timeout=30.0))
            await asyncio.sleep(0)
            for part in (b"hel", b"lo"):
                log.data += part
                orders.changed()
            assert await poll == b"hello"
            assert await orders.fetch(5, timeout=0.01) == b""

    Args: purgatory: where they wait; key: the watch key; source: what they read.
    """

    __slots__ = ("key", "purgatory", "source")

    def __init__(self, purgatory: Purgatory, key: K, source: Source[T]) -> None:
        hash(key)
        self.purgatory = purgatory
        self.key = key
        self.source = source

    async def fetch(
        self, offset: int, min_bytes: int = 1, timeout: float | None = 0.5, *, max_bytes: int | None = None
    ) -> T:
        """Wait until there are *min_bytes* to read from *offset* on. The defaults are Kafka's.

        Args: as in DelayedFetch.
        Returns: what there is, if only at the deadline; that may be nothing.
        Raises: SourceError: what the source reported; whatever watch() raises.
        """
        positions = {self.key: (self.source, offset)}
        answers = await self.purgatory.watch(
            DelayedFetch(positions, timeout, min_bytes=min_bytes, max_bytes=max_bytes), (self.key,)
        )
        answer = answers[self.key]
        if not isinstance(answer, SourceError):
            return answer
        try:
            raise answer
        finally:
            del answers, answer  # what is raised keeps this frame

    def changed(self) -> int:
        """The source has more to read, or less: answer whom that concerns. Returns: how many that answered.

        From another thread, or for a key with very many waiters, call the purgatory's ..._threadsafe() or ..._soon().
        """
        return self.purgatory.check_and_complete(self.key)
