"""Events of a log, and the errors of its writers and listeners."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..arguments import require, require_text
from ..errors import PurgatoryError
from ..sse import event_text

#: The most bytes of an event's data.
MAX_DATA: Final = 1 << 20
#: What would end the line of an id or a name, or have an EventSource ignore the id.
_ENDS: Final = re.compile(r"[\r\n\0]")
_LOG_NAME: Final = re.compile(r"[\w-]*[^\W_][\w-]*", re.ASCII)
#: Names that an EventSource, or a log, gives a meaning of its own.
RESERVED: Final = frozenset({"end", "error", "gone", "open", "replaced"})


class EndedError(PurgatoryError):
    """The topic has ended, or another producer has taken the run over: nothing can be appended."""


class TopicExistsError(PurgatoryError):
    """The topic has a run already, or many write to it."""


class StoreError(PurgatoryError):
    """The log could not be read, or written to. ``__cause__`` has the error of the client library."""


class StoreDownError(StoreError):
    """The server cannot be reached, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a topic.

    Args:
        id: resume after this. It has no spaces.
        data: its text.
        name: its kind, for the listeners; None: no kind.
        is_end: whether it is the last of its topic. Its name is ``end`` then, and its data the reason.

    Raises: TypeError, ValueError: *id* or *name* is no text, or has a line end or NUL: it would make fields of its own.
    """

    id: str
    data: str
    name: str | None = None
    is_end: bool = False
    _sse: bytes = field(default=b"", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for parameter, text in (("id", self.id), ("name", self.name)):
            # What can be printed needs no further look, as every id of a log.
            if text is not None and not (isinstance(text, str) and text.isprintable()):
                require_text(parameter, text)
                require(not _ENDS.search(text), parameter, "without line ends and NUL", text)

    def sse(self) -> bytes:
        """Return it as a server-sent event. It is rendered once for all listeners (S10)."""
        if not self._sse:
            object.__setattr__(self, "_sse", event_text(self.data, self.name, self.id))
        return self._sse


def _require(parameter: str, text: object, most: int, fits: Callable[[str], bool], rule: str) -> None:
    require_text(parameter, text)
    require(isinstance(text, str) and 1 <= len(text) <= most and fits(text), parameter, rule, text)


def require_log_name(name: object) -> None:
    """Raises: TypeError, ValueError: not every server allows *name* as the name of a log."""
    _require("name", name, 40, lambda text: bool(_LOG_NAME.fullmatch(text)), "1 to 40 letters, digits, _ and -")


def require_topic(topic: object) -> None:
    """Raises: TypeError, ValueError: *topic* is no text of 1 to 200 characters."""
    _require("topic", topic, 200, lambda text: "\0" not in text, "of 1 to 200 characters, without NUL")


def require_event(data: object, name: object) -> None:
    """Raises: TypeError, ValueError: an event cannot have this *data* or *name*."""
    if not isinstance(data, str):
        raise TypeError(f"data must be a str, got {data!r}; json.dumps() makes one")
    require_text("data", data)
    require("\0" not in data, "data", "without NUL: PostgreSQL cannot store it", data)
    if len(data.encode()) > MAX_DATA:
        raise ValueError(f"data must be at most {MAX_DATA:,} bytes, got {len(data.encode()):,}; store it elsewhere")
    if name is not None:
        _require("name", name, 100, str.isprintable, "of 1 to 100 printable characters")
        require(name not in RESERVED, "name", f"none of {', '.join(sorted(RESERVED))}", name)


def require_reason(reason: object) -> None:
    """Raises: TypeError, ValueError: an end cannot have this *reason*."""
    _require("reason", reason, 200, str.isprintable, "of 1 to 200 printable characters")
