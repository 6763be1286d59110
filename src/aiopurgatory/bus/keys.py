"""The wire format: keys as lines of ASCII JSON, and messages of such lines. The same on every engine.

    ("orders", 7)               ["orders",7]
    b"\x00\xff"                 {"$bytes":"00ff"}
    UUID("0000...")             {"$uuid":"0000..."}
    every key                   *
    a limit of 2                +2

A message has one key per line. Its first line may be ``@origin link number``: the sending process, the number of its
link, and the number of the message on that link, from 1 on. A key has no canonical form. Receivers compare decoded keys
as a dict does, so 1, 1.0 and True are one key. The limit of a check stands on the line after its key. A version that
knew no limits would skip that line as malformed, and check the key without a limit.

A message that begins with ``#`` has no keys: it carries data of a log, and only logs hear it. publish() sends none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, Final
from uuid import UUID

from ..arguments import shown

#: The most bytes of a message, on every engine: PostgreSQL's NOTIFY takes less than 8,000.
MAX_MESSAGE: Final = 7_899
#: The most bytes of a key's line. The origin's line must fit above it.
MAX_LINE: Final = MAX_MESSAGE - 99
#: How deep tuples may nest. Deeper ones could exceed the recursion limit of some processes but not of others.
MAX_DEPTH: Final = 16
#: The line that stands for every key.
EVERY_KEY: Final = "*"
#: How a message with data begins. No key's line begins so.
DATA: Final = "#"

#: A line, and the limit on the next one.
_LINE: Final = re.compile(r"([^\n]+)(?:\n\+(\d+)(?![^\n]))?")

#: Longer lines are not cached.
_SHORT: Final = 200

#: Types that a key may hold and that JSON returns unchanged.
_FLAT: Final = frozenset([str, int])
#: Ints below this need no check of their length. Longer ones may have more digits than int() can parse.
_LARGE: Final = 1 << 64

_SUPPORTED: Final = "a str, int, float, bool, None, bytes, UUID, or a tuple of these"


class MalformedError(ValueError):
    """A line that is not a key."""


def encode(key: Hashable) -> str:
    """Return the line for *key*.

    Args: key: a str, int, float, bool, None, bytes, UUID, or a tuple of these, nested up to 16 deep.
    Raises:
        TypeError: *key* holds another type.
        ValueError: its line exceeds 7,800 bytes, or it holds a non-finite float or a surrogate, or is nested deeper.

    Cost: 1 us for a tuple of ints and ASCII text, else up to 3 us.
    """
    line = _flat(key)
    if line is None:
        value = _to_json(key, key, 0)
        try:
            line = _ENCODER.encode(value)
        except ValueError as exc:
            raise ValueError(f"key must hold finite floats, and ints of at most 4,300 digits: {exc}") from None
    if len(line) > MAX_LINE:
        raise ValueError(
            f"key must be at most {MAX_LINE} bytes of JSON, got {len(line)}; publish an id or a hash of it instead"
        )
    return line


def decode(line: str) -> Hashable:
    """Return the key on *line*. Raises: MalformedError: it is not a key. Cost: 0.2 us if cached, else 2 us."""
    return _decode_short(line) if len(line) <= _SHORT else _decode(line)


def _decode(line: str) -> Hashable:
    return decode_all([line])[0]


#: Only short lines are cached: 1,024 long ones would hold more than 100 MB.
_decode_short: Final = lru_cache(1024)(_decode)


def decode_all(lines: list[str]) -> list[Hashable]:
    """Decode *lines* made by encode(), in less than half of decode()'s time per line.

    Raises: MalformedError: at least one is not a key. (Lines that form keys only when joined may pass.)
    """
    try:
        text = f"[{','.join(lines)}]"
        values, end = _DECODER.raw_decode(text)  # decode() would look for spaces around it
        if len(values) != len(lines) or end != len(text):
            raise MalformedError("lines that are not keys")
        return [_from_json(value, 0) for value in values]
    except (ValueError, RecursionError) as exc:  # ValueError: also an int of too many digits
        raise MalformedError(str(exc)) from None


def lines_of(text: str) -> list[tuple[str, int | None]]:
    """Return the lines of *text*, each with its limit; None: it has none."""
    return [(line.strip(), int(limit[:12] or 0) or None) for line, limit in _LINE.findall(text)]


def milliseconds(age: float) -> int:
    """Return *age*, in seconds, as another process may rely on it: its clock may run slower. At most ten days."""
    return int(max(0.0, min(age, 864_000.0)) * 999)


def pack(head: str, number: int, lines: Iterable[str], age: int = 0) -> list[str]:
    """Pack *lines* into as few messages as possible. The first line of each is *head* and its number.

    Args:
        number: the number of the first message; later messages count up from it.
        age: milliseconds since the last keys were acknowledged. 0 is left out.
    """
    messages: list[str] = []
    text = [f"{head} {number} {age}" if age else f"{head} {number}"]
    room = MAX_MESSAGE - len(text[0])
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            messages.append("\n".join(text))
            text = [f"{head} {number + len(messages)}"]
            room = MAX_MESSAGE - len(text[0]) - len(line) - 1
        text.append(line)
    messages.append("\n".join(text))
    return messages


def _flat(key: Hashable) -> str | None:
    """Return the line for a tuple of ints and ASCII text, in a third of the time. None: it is another kind of key."""
    if type(key) is not tuple:
        return None
    texts = []
    for item in key:
        kind = type(item)
        if kind is str and item.isascii():
            texts.append(encode_basestring_ascii(item))  # as the encoder does, without its call in Python
        elif kind is int and -_LARGE < item < _LARGE:
            texts.append(str(item))
        else:
            return None
    return f"[{','.join(texts)}]"


def _to_json(value: Any, key: Hashable, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, tuple):
        if depth >= MAX_DEPTH:
            raise ValueError(f"key must nest tuples at most {MAX_DEPTH} deep, got {shown(key)}")
        if type(value) is not tuple:  # a namedtuple
            value = _plain(value, tuple.__getitem__(value, slice(None)))
        return [_to_json(item, key, depth + 1) for item in value]
    for base, plain, to_json in _SCALARS:
        if isinstance(value, base):
            if type(value) is not base:  # an IntEnum, or asyncpg's UUID
                value = _plain(value, plain(value))
            if base is str and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                # JSON decodes two surrogates side by side as one character.
                raise ValueError(f"key must not contain surrogates, got {shown(key)}")
            return to_json(value)
    raise TypeError(f"key must be {_SUPPORTED}; got {shown(value)} in {shown(key)}")


def _plain(value: Any, plain: Any) -> Any:
    """Return *plain*, of the base class. Raises: TypeError: it is not the same key as *value*."""
    # Not `!=`: a class with an __eq__ of its own inherits its base's __ne__.
    if not value == plain or hash(value) != hash(plain):  # noqa: SIM201
        name = type(value).__name__
        raise TypeError(f"key must be {_SUPPORTED}; got {shown(value)}: {name} does not compare like its base class")
    return plain


#: The classes of keys. For each: a function from an instance of a subclass to a plain one, and one from there to JSON.
_SCALARS: Final[tuple[tuple[type, Callable[[Any], object], Callable[[Any], object]], ...]] = (
    (str, str.__str__, str.__str__),
    (int, int.__int__, int.__int__),
    (float, float.__float__, float.__float__),
    (bytes, bytes, lambda value: {"$bytes": value.hex()}),
    (UUID, lambda value: UUID(int=value.int), lambda value: {"$uuid": str(value)}),
)


def _from_json(value: object, depth: int) -> Hashable:
    if isinstance(value, list):
        if depth >= MAX_DEPTH:
            raise MalformedError(f"arrays deeper than {MAX_DEPTH}")
        if _FLAT.issuperset(map(type, value)):  # as in most keys
            return tuple(value)
        return tuple([_from_json(item, depth + 1) for item in value])
    if isinstance(value, float) and not isfinite(value):  # 1e999
        raise MalformedError("a float out of range")
    return value


def _from_object(pairs: list[tuple[str, object]]) -> Hashable:
    match pairs:
        case [("$bytes", str(digits))]:
            return bytes.fromhex(digits)
        case [("$uuid", str(digits))]:
            return UUID(digits)
    return _refuse("an object that is neither $bytes nor $uuid")


def _refuse(what: str) -> Hashable:
    raise MalformedError(what)


#: Created once: json.dumps() and loads() would create one per call.
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_from_object)
