"""The lengths in a request, checked before kio reads it: kio takes memory for as many items as an array claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin

#: The most items of all arrays of a request. A broker has fewer partitions and groups to name.
_MOST_ITEMS: Final = 1 << 14
_LONGEST_STRING: Final = (1 << 15) - 1
_SHIFTS: Final = range(0, 35, 7)
_SIZES: Final[Mapping[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "uuid": 16,
}
_STRING: Final = "string"


class _Field(NamedTuple):
    """A field with a length, and the fields of a fixed size before it."""

    before: int
    kind: str
    may_be_null: bool
    #: Those of an array.
    items: _Layout | None


class _Layout(NamedTuple):
    """The fields of an entity. ``after`` is the size of those after the last field with a length."""

    fields: tuple[_Field, ...]
    after: int
    has_tags: bool


class Frame:
    """The bytes of a request, and a place in them. Methods raise ValueError or IndexError if a length is bad."""

    def __init__(self, data: bytes) -> None:
        """Begin after the header, without its tagged fields."""
        self.data = data
        self.place = 8  # API key, version, correlation id
        self._is_compact = False  # the client id never is
        self._items = 0
        self.string()

    def check(self, schema: Any) -> None:
        """Check all lengths in the rest, a request of kio's class *schema*."""
        self._is_compact = schema.__flexible__
        if self._is_compact:
            self._tags()
        self._entity(_layout(schema))

    def string(self) -> None:
        """Skip a string."""
        size = self._length(2)
        if size > _LONGEST_STRING:
            raise ValueError(f"a string must have at most {_LONGEST_STRING} bytes, got {size}")
        if size > 0:
            self.place += size

    def count(self, *, may_be_null: bool = False) -> int:
        """Read how many items an array has. Returns: -1 for null."""
        count = self._length(4)
        if count < 0 and not may_be_null:
            raise ValueError("an array must not be null")
        self._add(count)
        return count

    def _entity(self, layout: _Layout) -> None:
        for before, kind, may_be_null, items in layout.fields:
            self.place += before
            if items:
                for _ in range(self.count(may_be_null=may_be_null)):
                    self._entity(items)
            elif kind == _STRING:
                self.string()
            else:
                size = self._length(4)
                self.place += max(size, 0)
        self.place += layout.after
        if layout.has_tags:
            self._tags()

    def _tags(self) -> None:
        if not (count := self._number()):
            return
        self._add(count)
        for _ in range(count):
            self._number()
            size = self._number()
            self.place += size

    def _add(self, count: int) -> None:
        self._items += count
        if self._items > _MOST_ITEMS:
            raise ValueError(f"a request must have at most {_MOST_ITEMS} items")

    def _length(self, size: int) -> int:
        """Read a length, which has *size* bytes unless it is compact. Returns: -1 for null."""
        if self._is_compact:
            found = self._number() - 1
        else:
            begin = self.place
            self.place += size
            found = int.from_bytes(self.data[begin : self.place], signed=True)
        if not -1 <= found <= len(self.data) - self.place:
            raise ValueError(f"a length is out of range: {found}")
        return found

    def _number(self) -> int:
        """Read a number of variable size."""
        value = 0
        for shift in _SHIFTS:
            byte = self.data[self.place]
            self.place += 1
            if byte < 0x80:
                return value | byte << shift
            value |= (byte & 0x7F) << shift
        raise ValueError("a number has too many bytes")


@cache
def _layout(kind: Any) -> _Layout:
    """Return the layout of kio's class."""
    found, size = list[_Field](), 0
    for field in fields(kind):
        options = (field.type, *get_args(field.type))
        array = next((option for option in options if get_origin(option) is tuple), None)
        name = field.metadata.get("kafka_type", "")
        if "tag" in field.metadata:  # such a field has a size, and none of a request is an array
            continue
        if array is None and name in _SIZES:
            size += _SIZES[name]
            continue
        items = None if array is None else _layout_of_items(get_args(array)[0], name)
        found.append(_Field(size, name, NoneType in options, items))
        size = 0
    return _Layout(tuple(found), size, kind.__flexible__)


def _layout_of_items(kind: Any, name: str) -> _Layout:
    if not name:  # an entity
        return _layout(kind)
    if name in _SIZES:
        return _Layout((), _SIZES[name], has_tags=False)
    return _Layout((_Field(0, name, False, None),), 0, has_tags=False)
