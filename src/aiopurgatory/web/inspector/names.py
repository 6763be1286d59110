"""The names of keys on the live page, and the keys that a search text may mean."""

from __future__ import annotations

import ast
import contextlib
import reprlib
import secrets
import warnings
from collections.abc import Hashable
from hashlib import blake2b
from typing import Any, Final

#: The most characters of a name.
MAX_NAME: Final = 120


class Names(reprlib.Repr):
    """Names keys for the page.

    Args:
        shown: True: a key's name is its ``repr()``, shortened. False: a keyed hash, which does not reveal the key and
            stays the same as long as this object lives.
    """

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.shown = shown
        self.secret = secrets.token_bytes(16)
        self.maxlevel = 3
        self.maxstring = self.maxlong = self.maxother = MAX_NAME

    def of(self, key: Hashable) -> str:
        """The name of *key*, at most MAX_NAME characters. Never raises, even if the key's own methods do."""
        try:
            if self.shown:
                return self.repr(key)[:MAX_NAME]
            number = str(hash(key)).encode()
        except Exception:  # from its own __repr__ or __hash__
            return f"<{kind_of(key)}>"
        return blake2b(number, digest_size=6, key=self.secret).hexdigest()

    def repr_bytes(self, key: bytes, level: int) -> str:
        return repr(key[: self.maxstring])


def kind_of(thing: object) -> str:
    """The name of the class of *thing*, at most MAX_NAME characters."""
    return type(thing).__qualname__[:MAX_NAME]


def readings(text: str) -> list[Any]:
    """The keys that *text* may mean: the text itself, and its value as a Python literal, hashable or not."""
    found: list[Any] = [text]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for an invalid escape sequence
        found.append(ast.literal_eval(text))
    return found
