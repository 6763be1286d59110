"""A bound on the bytes that a broker keeps for its groups: their members, plans and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from sys import getsizeof
from typing import Final, Generic, TypeVar

from kio.schema.errors import ErrorCode

from .errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")

#: Bytes of an entry without its contents: its place in a dict, and the objects around the contents.
_ENTRY: Final = 200


class Budget:
    """Bytes that are still free."""

    def __init__(self, most: int) -> None:
        self.free = most


class Kept(MutableMapping[K, V], Generic[K, V]):
    """A dict that takes bytes of a *budget*.

    Args:
        size: returns the bytes of a key with its value. They must not change while it is in the dict.
        code: of the error if they are not free.
    """

    def __init__(self, budget: Budget, size: Callable[[K, V], int], code: ErrorCode) -> None:
        self._budget = budget
        self._size = size
        self._code = code
        self._items: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __setitem__(self, key: K, value: V) -> None:
        self.put({key: value})

    def __delitem__(self, key: K) -> None:
        self._budget.free += self._taken(key)
        del self._items[key]

    def put(self, items: Mapping[K, V]) -> None:
        """Set all *items*. Raises: KafkaError: they are too large; none is set."""
        more = sum(_ENTRY + self._size(key, value) - self._taken(key) for key, value in items.items())
        if more > self._budget.free:
            raise KafkaError(self._code)
        self._budget.free -= more
        self._items.update(items)

    def _taken(self, key: K) -> int:
        return _ENTRY + self._size(key, self._items[key]) if key in self._items else 0


def bytes_of(*values: object) -> int:
    """Return the bytes of strings and bytes in memory."""
    return sum(map(getsizeof, values))
