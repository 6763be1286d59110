"""Wake-ups of a log by a bus: the messages that its commits send, and who hears them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, final

from ..bus.keys import encode
from .store import Change, Commit, Notify

#: The most characters of an event that a wake-up carries. All processes get all wake-ups.
MAX_CARRIED: Final = 1_000


def wake_up(name: str, topic: str, commit: Commit) -> str:
    """Return the message of *commit* to *topic* of the log *name* (S11): the line of a key of the bus.

    It carries a short event, so that no process needs to read it.
    """
    if commit.is_plain and len(commit.rows) <= 1 and sum(len(text) for _, text in commit.rows) <= MAX_CARRIED:
        with suppress(ValueError):  # in JSON, it is too long for a bus
            return encode((name, topic, commit.expected, commit.version, *sum(commit.rows, ())))
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
        match key:
            case (self._name, str(topic), str(expected), str(version), int(number), str(text)):
                self._notify(topic, Change(expected, version, [(number, text)]))
            case (self._name, str(topic), str(expected), str(version)):
                self._notify(topic, Change(expected, version, []))
            case (self._name, str(topic), *_):
                self._notify(topic, None)

    def notify_all(self) -> None:
        self._notify_all()
