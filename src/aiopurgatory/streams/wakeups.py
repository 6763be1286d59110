"""Wake-ups of a log by a bus: the messages that its commits send, and their listeners."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from json.encoder import encode_basestring_ascii
from typing import Any, Final, final

from ..bus.keys import MAX_LINE, encode
from .store import Change, Commit, Notify

#: The most characters of an event that a wake-up carries. All processes get all wake-ups.
MAX_CARRIED: Final = 1_000
#: The parts of a wake-up that carries a change: log, topic, versions before and after; with an event, number and text.
_RENEWAL: Final = (str, str, str, str)
_EVENT: Final = (*_RENEWAL, int, str)


def wake_up(name: str, topic: str, commit: Commit) -> str:
    """Return the message of *commit* to *topic* of the log *name* (S11): the line of a key of the bus.

    It carries a short event, so that no process needs to read it.
    """
    if commit.is_plain and len(commit.rows) <= 1:
        number, text = commit.rows[0] if commit.rows else (0, "")
        # The same as encode(), in a third of the time: texts of a log have no surrogates.
        texts = ",".join(map(encode_basestring_ascii, (name, topic, commit.expected, commit.version)))
        line = f"[{texts},{number},{encode_basestring_ascii(text)}]" if commit.rows else f"[{texts}]"
        if len(text) <= MAX_CARRIED and len(line) <= MAX_LINE:  # of 1,000 characters, JSON may make 12,000
            return line
    return encode((name, topic))


@final
class WakeUps:
    """A target of a bus.

    Args:
        name: of the log. Others may share the bus.
        notify: called with the topic of each commit, and with the change if the message carries it.
        notify_all: called when messages may have been lost.
    """

    def __init__(self, name: str, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._name: Final = name
        self._notify = notify
        self._notify_all = notify_all

    def notify(self, key: Hashable) -> None:
        if not isinstance(key, tuple) or key[:1] != (self._name,):
            return
        parts: tuple[Any, ...] = key
        kinds = tuple(map(type, parts))  # not match, which takes several times as long
        if kinds == _EVENT:
            self._notify(parts[1], Change(parts[2], parts[3], [parts[4:]]))
        elif kinds == _RENEWAL:
            self._notify(parts[1], Change(parts[2], parts[3], []))
        elif kinds[1:2] == (str,):
            self._notify(parts[1], None)

    def notify_all(self) -> None:
        self._notify_all()
