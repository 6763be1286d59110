"""The compiled half of Feed: the fetch from a source with a Watermark as its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, final

from ...core.kit import AwaitableOperation, seconds_of
from ...operation import wait
from ..readable import PlainReadable, SourceError
from .watermark import AnyWatermark, as_int, as_watermark


@final
class FeedFetch(AwaitableOperation):
    """Waits until there is enough between *offset* and *end*. Its result: the data, or the SourceError.

    With a timeout of 0 it reads at once and never parks.
    """

    __slots__ = ("_end", "_max_bytes", "_min_bytes", "_offset", "_source")

    def __init__(
        self,
        source: PlainReadable[Any],
        end: AnyWatermark,
        offset: object,
        min_bytes: int,
        max_bytes: int,
        timeout: Any,
    ) -> None:
        super().__init__(timeout)
        self._source: Final = source
        self._end: Final = as_watermark("end", end)
        self._offset: Final = as_int("offset", offset)
        self._max_bytes: Final = max_bytes
        self._min_bytes: Final = min_bytes if seconds_of(self) > 0.0 else 0

    def __await__(self) -> Generator[Any, None, Any]:
        return wait(self)

    def try_complete(self) -> bool:
        readable = self._end.value - self._offset
        if max(readable, 0) >= self._min_bytes:
            return self.force_complete()
        return readable < 0 and isinstance(self._read(0), SourceError) and self.force_complete()

    def on_complete(self) -> Any:
        return self._read(min(max(self._end.value - self._offset, 0), self._max_bytes))

    def _read(self, size: int) -> Any:
        try:
            return self._source.read(self._offset, size)
        except SourceError as exc:
            exc.__traceback__ = None  # an answer, not a fault; its frames would keep the operation alive
            return exc
