"""Results of a source's reads, kept for others that want the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar, final

V = TypeVar("V")

#: Nothing is kept for a client's version or a resource of more characters than this. Clients may send anything.
MAX_KEY: Final = 200
#: Bytes that an entry counts in addition to its own.
_ENTRY: Final = 500


@final
class Kept(Generic[V]):
    """Keeps the newest entries, up to *max_bytes* in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[Hashable, tuple[V, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, wanted: Hashable) -> V | None:
        found = self._entries.get(wanted)
        return None if found is None else found[0]

    def keep(self, wanted: Hashable, value: V, size: int) -> None:
        """Keep *value*, of *size* bytes, in place of an earlier one."""
        self._drop(wanted)
        size += _ENTRY
        if size <= self._max_bytes:
            self._entries[wanted] = value, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, wanted: Hashable) -> None:
        _, size = self._entries.pop(wanted, (None, 0))
        self.bytes -= size


def is_short(resource: Any, since: str | None) -> bool:
    """Whether to keep the body for a client with these."""
    return len(since or "") <= MAX_KEY and len(str(resource)) <= MAX_KEY
