"""What a server must offer to carry a bus: the protocol of an engine, and the errors of a bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from ..arguments import require
from ..errors import PurgatoryError

Hear: TypeAlias = Callable[[str], object]
Lost: TypeAlias = Callable[[Exception], object]

CHANNEL: Final = "aiopurgatory"


class BusConnectError(PurgatoryError):
    """The bus could not be started: what is wrong, and what to do. The cause is what the client library raised."""


class BusClosedError(PurgatoryError):
    """The bus is closed: what is published now would reach no other process."""


class EchoLostError(PurgatoryError):
    """The server did not answer in time, or the bus did not hear its own message. The bus connects anew."""


class Link(Protocol):
    """Two connections to the server: one listens, the other one publishes."""

    async def send(self, messages: list[str], /) -> None:
        """Publish each of *messages*, on the connection that does not listen. Return when the server has all of them.

        It is called by one task at a time. Whatever it raises ends the link. It needs no timeout.

        Args: messages: ASCII, at most 7,899 bytes each.
        """
        ...

    def abort(self) -> None:
        """Drop both connections at once, without a goodbye: the server may not answer. It is called once."""
        ...


class Engine(Protocol):
    """One kind of server.

    An engine does not reconnect and does not retry, and turns off what its client library does of that: the bus has to
    know of every gap. It needs no timeouts either.
    """

    async def open(self, hear: Hear, lost: Lost, /) -> Link:
        """Connect twice, and subscribe. Return when the server has confirmed the subscription.

        If this raises or is cancelled, it leaves no connection open.

        Args:
            hear: to be called in the event loop with each message on the channel, those of this process, too. Bytes
                that are no UTF-8 may be replaced by anything.
            lost: to be called with the reason when either connection ends.
        """
        ...

    def explain(self, exc: Exception, /) -> str:
        """What is wrong if open() raised *exc* or the bus did not hear itself, and what to do; without passwords.

        Args: exc: what open(), send() or lost() came with; TimeoutError: open() took too long; EchoLostError.
        """
        ...


def require_channel(channel: object, parameter: str = "channel") -> str:
    """Raises: TypeError, ValueError: *channel* is not the name of a channel on every engine."""
    if not isinstance(channel, str):
        raise TypeError(f"{parameter} must be a str, got {channel!r}")
    plain = channel.isascii() and channel.isprintable() and 1 <= len(channel) <= 63
    require(plain, parameter, "1 to 63 printable ASCII characters", channel)
    return channel


def address(url: str) -> str:
    """Where *url* leads to, without user, password and options, for messages."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.hostname or 'the default host'}{port}{parts.path}"
    except ValueError:
        return "an address that is no URL"
