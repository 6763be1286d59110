"""Wake-ups of a log by a bus: the messages that its commits send, their target, and the bus."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, Final, final

from ..arguments import require_seconds
from ..bus import Bus, BusConnectError
from ..bus.engine import require_channel
from ..bus.keys import DATA, MAX_MESSAGE, MalformedError, decode
from ..bus.server import hear_data
from ..bus.targets import DataTarget
from .event import StoreDownError, require_log_name
from .log import LogOptions
from .store import Change, Commit, Notify

#: The most characters of an event that a wake-up carries. All processes get all wake-ups.
MAX_CARRIED: Final = 1_000
#: The parts of a wake-up that carries a change: topic, versions before and after; with an event, number and text.
_RENEWAL: Final = (str, str, str)
_EVENT: Final = (*_RENEWAL, int, str)


def wake_up(name: str, topic: str, commit: Commit) -> str:
    """Return the message of *commit* to *topic* of the log *name* (S11): its tag, and a JSON array.

    It carries a short event, so that no process needs to read it.
    """
    if commit.is_plain and len(commit.rows) <= 1:
        number, text = commit.rows[0] if commit.rows else (0, "")
        # The same as json.dumps(), in a third of the time: texts of a log have no surrogates.
        texts = ",".join(map(encode_basestring_ascii, (topic, commit.expected, commit.version)))
        event = f",{number},{encode_basestring_ascii(text)}" if commit.rows else ""
        message = f"{_tag(name)}[{texts}{event}]"
        if len(text) <= MAX_CARRIED and len(message) <= MAX_MESSAGE:  # of 1,000 characters, JSON may make 12,000
            return message
    return f"{_tag(name)}[{encode_basestring_ascii(topic)}]"


@final
class WakeUps(DataTarget):
    """A target of a bus.

    Args:
        name: of the log. Others may share the bus.
        notify: called with the topic of each commit, and with the change if the message carries it.
        notify_all: called when messages may have been lost.
    """

    def __init__(self, name: str, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._tag: Final = _tag(name)
        self._notify = notify
        self._notify_all = notify_all

    def hear(self, message: str) -> None:
        if not message.startswith(self._tag):
            return
        try:
            parts: Any = decode(message[len(self._tag) :])
        except MalformedError:  # not of a log
            return
        kinds = tuple(map(type, parts)) if isinstance(parts, tuple) else ()  # not match: it takes several times as long
        if kinds == _EVENT:
            self._notify(parts[0], Change(parts[1], parts[2], [parts[3:]]))
        elif kinds == _RENEWAL:
            self._notify(parts[0], Change(parts[1], parts[2], []))
        elif kinds[:1] == (str,):
            self._notify(parts[0], None)

    def notify_all(self) -> None:
        self._notify_all()


@final
class LogBus:
    """The bus of a log: a shared one, or one of its own.

    Args:
        kind: the class of the bus.
        address: of the server, for a bus of its own.
        shared: None: it makes its own.
        log: the options of the log, whose observers are told of the bus, too. An iterator of them becomes a tuple.
        prefix: of its channel.
        options: of a bus of its own: heartbeat, timeout and password.

    Raises: TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self, kind: type[Any], address: str, shared: Any, log: LogOptions, prefix: str = "", **options: Any
    ) -> None:
        #: The log's.
        self.name: Final = log.get("name", "events")
        require_log_name(self.name)
        for parameter in ("heartbeat", "timeout"):
            require_seconds(parameter, options[parameter], 0.01, 3600.0)
        if shared is not None and not isinstance(shared, kind):
            raise TypeError(f"bus must be a {kind.__name__} or None, got {shared!r}")
        observers = log["observers"] = tuple(log.get("observers", ()))
        self._tagged, self._is_shared = prefix + self.name, shared is not None
        #: One for all processes, whether they share a bus or not.
        self._channel: Final = require_channel(f"{prefix}aiopurgatory.{self.name}", "prefix + 'aiopurgatory.' + name")
        self._bus: Final[Bus] = shared or kind(address, [], name=self._channel, observers=observers, **options)
        if shared is not None:
            hear_data(shared, self._channel)
        self._wake_ups: WakeUps | None = None

    @property
    def error(self) -> str | None:
        """Why it hears nothing now; None: it does."""
        return self._bus.statistics().error

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        """Start the bus, and hear messages from then on. Raises: StoreDownError: it cannot connect."""
        self._forget()  # of a loop that was closed
        self._wake_ups = WakeUps(self._tagged, notify, notify_all)
        self._bus.add(self._wake_ups)
        try:
            await self._bus.start()
        except BusConnectError as exc:
            raise StoreDownError(str(exc)) from exc

    async def aclose(self) -> None:
        self._forget()
        if not self._is_shared:
            await self._bus.aclose()

    def wake_up(self, topic: str, commit: Commit) -> tuple[str, str]:
        """Return the channel and the message of *commit*."""
        return self._channel, wake_up(self._tagged, topic, commit)

    def _forget(self) -> None:
        if self._wake_ups is not None:
            self._bus.remove(self._wake_ups)
            self._wake_ups = None


def _tag(name: str) -> str:
    return f"{DATA}{name} "
