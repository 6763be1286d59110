"""Wake-ups of a log by a bus: the messages that its commits send, and the stores that hear them."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from ..arguments import require, require_seconds
from ..bus import Bus, BusConnectError
from ..bus.engine import require_channel
from ..bus.keys import DATA, MAX_MESSAGE, MalformedError, decode_all
from ..bus.server import hear_data
from ..bus.targets import DataTarget
from .event import StoreDownError, require_log_name
from .log import LogOptions
from .store import Change, Commit, Notify, Store

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


def told_by(name: str, message: str) -> tuple[str, Change | None] | None:
    """Return what *message*, of wake_up(), tells: the topic of a commit, and the change if it carries that.

    Returns: None: it is not of the log *name*. Others may share the bus.
    """
    tag = _tag(name)
    if not message.startswith(tag):
        return None
    try:
        parts: Any = decode_all([message[len(tag) :]])[0]
    except MalformedError:  # not of a log
        return None
    kinds = tuple(map(type, parts)) if isinstance(parts, tuple) else ()  # not match: it takes several times as long
    if kinds == _EVENT:
        return parts[0], Change(parts[1], parts[2], [parts[3:]])
    if kinds == _RENEWAL:
        return parts[0], Change(parts[1], parts[2], [])
    return (parts[0], None) if kinds[:1] == (str,) else None


class ServerStore(Store, DataTarget):
    """A store on a server, which hears of commits by a bus: a shared one, or one of its own.

    Args:
        kind: the class of the bus.
        address: of the server, for a bus of its own.
        shared: None: it makes its own.
        log: the options of the log, whose observers are also told of the bus. An iterator of them becomes a tuple.
        prefix: of its channel, and of its name on the server.
        options: of a bus of its own: heartbeat, timeout and password.

    Raises: TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self, kind: type[Any], address: str, shared: Any, log: LogOptions, prefix: str = "", **options: Any
    ) -> None:
        name = log.get("name", "events")
        require_log_name(name)
        for parameter in ("heartbeat", "timeout"):
            require_seconds(parameter, options[parameter], 0.01, 3600.0)
        require(isinstance(shared, kind | None), "bus", f"a {kind.__name__} or None", shared, TypeError)
        observers = log["observers"] = tuple(log.get("observers", ()))
        self._name: Final = prefix + name
        #: One for all processes, whether they share a bus or not.
        self._channel: Final = require_channel(prefix + "aiopurgatory." + name, "prefix + 'aiopurgatory.' + name")
        self._timeout: Final[float] = options["timeout"]
        self._is_shared: Final = shared is not None
        self._bus: Final[Bus] = shared or kind(address, [], name=self._channel, observers=observers, **options)
        if shared is not None:
            hear_data(shared, self._channel)
        self._notify: Notify = lambda topic, change: None
        self._notify_all: Callable[[], object] = lambda: None

    @property
    def error(self) -> str | None:
        bus = self._bus.statistics()
        return bus.error or (None if bus.connected else "its bus is closed")

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        """Start the bus, and hear messages from then on. Raises: StoreDownError: it cannot connect."""
        self._notify, self._notify_all = notify, notify_all
        self._bus.add(self)
        try:
            await self._bus.start()
        except BusConnectError as exc:
            raise StoreDownError(str(exc)) from exc

    async def aclose(self) -> None:
        self._bus.remove(self)
        if not self._is_shared:
            await self._bus.aclose()

    def hear(self, message: str) -> None:
        told = told_by(self._name, message)
        if told is not None:
            self._notify(*told)

    def notify_all(self) -> None:
        self._notify_all()


def _tag(name: str) -> str:
    return f"{DATA}{name} "
