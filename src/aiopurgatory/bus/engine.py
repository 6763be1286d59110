"""The protocol of engines, each of which connects a bus to one kind of server, and the errors of a bus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from ..arguments import require, require_text
from ..errors import PurgatoryError
from .addresses import PasswordError

Hear: TypeAlias = Callable[[str], object]
Lost: TypeAlias = Callable[[Exception], object]

CHANNEL: Final = "aiopurgatory"


class BusConnectError(PurgatoryError):
    """The bus could not start. The message has the reason and the remedy; ``__cause__`` the client library's error."""


#: Why a bus cannot be used yet.
NOT_STARTED: Final = "the bus is not started: use 'async with' or await start(); in a web app, in its lifespan"


class BusClosedError(PurgatoryError):
    """The bus is closed, so a key published now would reach no other process."""


class EchoLostError(PurgatoryError):
    """The server did not acknowledge a message in time, or did not echo it in time. The bus reconnects.

    The text says what the server did. It is to follow the server's name.
    """


class NeverEchoedError(EchoLostError):
    """The server acknowledged the messages of this link, but echoed none."""


class BusyError(Exception):
    """The bus has to wait for another session. The message has the remedy."""


def explained(where: str, exc: Exception, address: str, unheard: str, remedy: str) -> str:
    """Return the reason and the remedy of *exc*.

    Args:
        where: the server, without passwords.
        address: the parameter for its address.
        unheard: why a server may send a bus none of its own messages.
        remedy: unless it is an error that any server may cause.
    """
    match exc:
        case NeverEchoedError():
            return f"{where} {exc}: {unheard}"
        case EchoLostError():
            return f"{where} {exc}"
        case PasswordError() | BusyError():
            return f"cannot use {where}: {exc}"
        case TimeoutError():
            return (
                f"{where} did not answer in time: check host, port and TLS in the {address}, and firewalls; or is it "
                "stopped or overloaded?"
            )
    return f"cannot use {where}: {str(exc).rstrip('.') or type(exc).__name__}; {remedy}"


class Link(Protocol):
    """Two connections to the server: one listens, the other publishes."""

    async def send(self, messages: list[str], /) -> None:
        """Send *messages* on the publishing connection. Return when the server has acknowledged all of them.

        Called by one task at a time. Any exception ends the link. It needs no timeout.

        Args: messages: ASCII, at most 7,899 bytes each.
        """

    async def read(self, first: str, /) -> list[tuple[str, str]]:
        """Return some kept messages in order, each with its id. The first one has the id *first*.

        If that is no longer there, the list may begin anywhere. Called by the task that calls send(), and only if the
        server keeps messages, as missed.py says.
        """
        return []

    def abort(self) -> None:
        """Drop both connections at once, without a closing handshake: the server may not answer. Called once."""


class Engine(Protocol):
    """One kind of server.

    An engine must neither reconnect nor retry, and must turn off both in its client library, because the bus must see
    every gap. It needs no timeouts.
    """

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost, /) -> Link:
        """Connect twice and subscribe. Return when the server has confirmed the subscription.

        If it raises or is cancelled, it must leave no connection open.

        Args:
            channels: the bus' own, then the channels of logs that share it.
            hear: call it in the event loop with each message on the channel of the bus, including this process's own,
                and with those on the others that begin with ``keys.DATA``. Any replacement will do for bytes that are
                not UTF-8.
            lost: call it with the reason when either connection ends.
        """
        ...

    def explain(self, exc: Exception, /) -> str:
        """Return the reason why the bus is not connected, and the remedy, without passwords.

        Args:
            exc: an error of open(), send() or lost(). TimeoutError: open() took too long. NeverEchoedError: no message
                came back on this link. EchoLostError: send() took too long, or messages no longer come back.
        """
        ...


def require_channel(channel: str, parameter: str) -> str:
    """Return *channel*. Raises: TypeError, ValueError: some engine would refuse it as the name of a channel."""
    require_text(parameter, channel)
    plain = channel.isascii() and channel.isprintable() and 1 <= len(channel) <= 63
    require(plain, parameter, "1 to 63 printable ASCII characters", channel)
    return channel
