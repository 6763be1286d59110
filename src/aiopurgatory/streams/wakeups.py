"""Wake-ups of a log by a bus: the messages that its commits send, and who hears them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, final

from ..bus.keys import encode


def wake_up(name: str, topic: str) -> str:
    """Return the message of a commit to *topic* of the log *name* (S11): the line of a key of the bus."""
    return encode((name, topic))


@final
class WakeUps:
    """A target of a bus.

    Args:
        name: of the log. Others may share the bus.
        notify: called with the topic of each commit.
        notify_all: called when messages may have been lost.
    """

    def __init__(self, name: str, notify: Callable[[str], object], notify_all: Callable[[], object]) -> None:
        self._name: Final = name
        self._notify = notify
        self._notify_all = notify_all

    def notify(self, key: Hashable) -> None:
        match key:
            case (self._name, str(topic)):
                self._notify(topic)

    def notify_all(self) -> None:
        self._notify_all()
