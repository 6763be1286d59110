"""Keys as lines of ASCII JSON, and lines as messages: what all engines and foreign publishers agree on.

    ("orders", 7)               ["orders",7]
    b"\x00\xff"                 {"$bytes":"00ff"}
    UUID("0000...")             {"$uuid":"0000..."}
    every key                   *

A message is a few lines, one key each. The first line may name the process that sends it, as ``@origin``. A key has no
canonical form: receivers compare decoded keys, as a dict does, so that 1, 1.0 and True are one key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from math import isfinite
from typing import Any, Final
from uuid import UUID

#: Bytes of a message, on every engine: PostgreSQL's NOTIFY takes less than 8,000.
MAX_MESSAGE: Final = 7_899
#: Bytes of a key's line, so that the line of the origin fits above it.
MAX_LINE: Final = MAX_MESSAGE - 99
#: Tuples in tuples. Deeper ones could be decoded in one process, and exceed the recursion limit of another.
MAX_DEPTH: Final = 16
#: The line that stands for every key.
EVERY_KEY: Final = "*"

#: What may be in a key, and comes from JSON as it is.
_FLAT: Final = frozenset([str, int])
#: Ints below it are written at once: longer ones may have more digits than int() would read.
_LARGE: Final = 1 << 64

_SUPPORTED: Final = "a str, int, float, bool, None, bytes, UUID, or a tuple of these"


class MalformedError(ValueError):
    """A line that is no key."""


def encode(key: Hashable) -> str:
    """The line for *key*.

    Args: key: a str, int, float, bool, None, bytes, UUID, or a tuple of these, nested up to 16 deep.
    Raises: TypeError: it holds something else. ValueError: its line would be longer than 7,800 bytes; it holds a float
        that is not finite, or a surrogate; tuples are nested too deep.
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


@lru_cache(1024)
def decode(line: str) -> Hashable:
    """The key on *line*. Raises: MalformedError: there is none. Cost: 0.08 us if it is cached, else 2 us."""
    try:
        return _from_json(_DECODER.decode(line), 0)
    except MalformedError:
        raise
    except (ValueError, RecursionError) as exc:  # ints of too many digits, and depths beyond any reason, too
        raise MalformedError(str(exc)) from None


def decode_all(lines: list[str]) -> list[Hashable]:
    """decode() of lines that encode() has made: an eighth of the time for each.

    Raises: MalformedError: at least one of them is no key. (But lines that make keys only together may pass for these.)
    """
    try:
        values = _DECODER.decode(f"[{','.join(lines)}]")
        if len(values) != len(lines):
            raise MalformedError("lines that are no keys")
        return [_from_json(value, 0) for value in values]
    except MalformedError:
        raise
    except (ValueError, RecursionError) as exc:
        raise MalformedError(str(exc)) from None


def pack(head: str, lines: Iterable[str]) -> list[str]:
    """*lines* in as few messages as they fit into, each under the line *head*."""
    messages = []
    text, room = [head], MAX_MESSAGE - len(head)
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            messages.append("\n".join(text))
            text, room = [head], MAX_MESSAGE - len(head) - len(line) - 1
        text.append(line)
    messages.append("\n".join(text))
    return messages


def _flat(key: Hashable) -> str | None:
    """The line for what most keys are, in a third of the time: a tuple of ints and ASCII text. None: it is another."""
    if type(key) is not tuple:
        return None
    texts = []
    for item in key:
        kind = type(item)
        if kind is str and item.isascii():
            texts.append(_ENCODER.encode(item))
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
            raise ValueError(f"key must have tuples in tuples at most {MAX_DEPTH} deep, got {_short(key)}")
        return [_to_json(item, key, depth + 1) for item in value]
    for base, plain, to_json in _SCALARS:
        if isinstance(value, base):
            if type(value) is not base:  # an IntEnum, or asyncpg's UUID
                value = _plain(value, plain(value))
            if base is str and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                # Two of them side by side would come back as one character.
                raise ValueError(f"key must hold text without surrogates, got {_short(key)}")
            return to_json(value)
    raise TypeError(f"key must be {_SUPPORTED}; got {_short(value)} in {_short(key)}")


def _plain(value: object, plain: object) -> object:
    """*plain*, of the base class, if it is the same key as *value*."""
    if value != plain or hash(value) != hash(plain):
        name = type(value).__name__
        raise TypeError(f"key must be {_SUPPORTED}; got {_short(value)}: {name} is not compared as its base class is")
    return plain


#: The classes of keys, what makes an instance of a subclass a plain one, and how that is written.
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
        raise MalformedError("a float beyond the range")
    return value if type(value) in _FLAT or isinstance(value, Hashable) else _refuse(repr(value))


def _from_object(pairs: list[tuple[str, object]]) -> Hashable:
    match pairs:
        case [("$bytes", str(digits))]:
            return bytes.fromhex(digits)
        case [("$uuid", str(digits))]:
            return UUID(digits)
    return _refuse("an object that is neither $bytes nor $uuid")


def _refuse(what: str) -> Hashable:
    raise MalformedError(what)


#: Made once: json.dumps() and loads() would make one each time.
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_from_object)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of too many digits, or tuples without end
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
