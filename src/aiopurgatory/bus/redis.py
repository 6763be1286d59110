"""The bus on Redis or Valkey: SUBSCRIBE and PUBLISH, with redis-py."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from math import inf
from typing import Any, Final

try:
    from redis import exceptions
    from redis.asyncio.connection import (
        AbstractConnection,
        Connection,
        SSLConnection,
        UnixDomainSocketConnection,
        parse_url,
    )
except ImportError as exc:
    raise ImportError("aiopurgatory.bus.redis needs redis-py: pip install 'aiopurgatory[redis]'") from exc

from .bus import Bus, BusObserver
from .engine import CHANNEL, EchoLostError, Hear, Lost, address, require_channel
from .targets import Target

#: Options that the URL must not override. On Python 3.11, redis-py's timeouts lose cancellations. Retries hide gaps.
_OPTIONS: Final[dict[str, Any]] = {
    "socket_timeout": None,
    "socket_connect_timeout": None,
    "health_check_interval": 0,
    "retry": None,
    "retry_on_timeout": False,
    "decode_responses": False,
    "protocol": 2,
}


class RedisBus(Bus):
    """A Bus whose server is Redis or Valkey. It keeps two connections open.

    Args:
        url: ``redis://user:password@host:6379``, ``rediss://`` for TLS, or ``unix:///path``. All databases of a server
            share its channels, so the database number does not separate buses.
        targets: purgatories and long polls to check, as for Bus.
        channel: 1 to 63 printable ASCII characters. With ACLs, the user needs ``&channel``, ``+subscribe`` and
            ``+publish``.
        heartbeat: seconds, as for Bus; default 5.
        timeout: seconds, as for Bus; default 5.
        observers: as for Bus.
    """

    def __init__(
        self,
        url: str,
        targets: Iterable[Target],
        *,
        channel: str = CHANNEL,
        heartbeat: float = 5.0,
        timeout: float = 5.0,
        observers: Iterable[BusObserver] = (),
    ) -> None:
        engine = RedisEngine(url, require_channel(channel))
        super().__init__(engine, targets, heartbeat=heartbeat, timeout=timeout, observers=observers, name=channel)


class RedisEngine:
    """The engine of a RedisBus, with the same *url* and *channel*. Raises: TypeError, ValueError: *url* is invalid."""

    def __init__(self, url: str, channel: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"url must be a str, got {type(url).__name__}")
        self._address, self._channel = address(url), channel
        self._options: dict[str, Any] = {**parse_url(url), **_OPTIONS}
        self._kind = _KINDS[self._options.pop("connection_class", Connection)]

    async def open(self, hear: Hear, lost: Lost) -> _RedisLink:
        """Connect twice and subscribe, as ``Engine`` says."""
        listener, publisher = self._kind(**self._options), self._kind(**self._options)
        try:
            for connection in (listener, publisher):
                await connection.connect()
            await listener.send_command("SUBSCRIBE", self._channel, check_health=False)
            await listener.read_response(timeout=inf)
        except BaseException:
            listener.abort()
            publisher.abort()
            raise
        return _RedisLink(listener, publisher, self._channel, hear, lost)

    def explain(self, exc: Exception) -> str:
        """Say why the bus is not connected and what to do, without passwords."""
        where = f"Redis at {self._address}"
        match exc:
            case EchoLostError():
                return f"{where} does not send the bus its own messages: does a proxy in between split its commands?"
            case exceptions.AuthenticationError() | exceptions.AuthenticationWrongNumberOfArgsError():
                remedy = "check user and password in the url"
            case exceptions.NoPermissionError():
                remedy = f"the user needs +subscribe, +publish and &{self._channel}: ACL SETUSER name &{self._channel}"
            case TimeoutError() | exceptions.TimeoutError():
                return f"{where} did not answer in time: check host, port and TLS in the url, and firewalls"
            case _ if isinstance(exc, ssl.SSLError) or "SSL" in str(exc):
                remedy = "check the certificates, and ssl_ca_certs in the url"
            case _ if "No such file" in str(exc):
                remedy = "check the paths in the url: ssl_ca_certs, or that of unix://"
            case _ if "NOAUTH" in str(exc) or "Authentication required" in str(exc):
                remedy = "the url needs a password: redis://user:password@host"
            case OSError() | exceptions.ConnectionError():
                remedy = "check that it is running, host and port in the url, and for TLS that it begins with rediss:"
            case _:
                remedy = "check the url"
        return f"cannot use {where}: {exc}; {remedy}"


class _Abortable(AbstractConnection):
    """Adds abort() to redis-py's connections, whose own methods to close them wait until everything is sent."""

    def abort(self) -> None:
        writer = self._writer
        self._reader = self._writer = None
        if writer is not None:
            writer.transport.abort()


class _Tcp(_Abortable, Connection):
    pass


class _Tls(_Abortable, SSLConnection):
    pass


class _Unix(_Abortable, UnixDomainSocketConnection):
    pass


_KINDS: Final[dict[type, type[Any]]] = {Connection: _Tcp, SSLConnection: _Tls, UnixDomainSocketConnection: _Unix}


class _RedisLink:
    def __init__(self, listener: Any, publisher: Any, channel: str, hear: Hear, lost: Lost) -> None:
        self._listener, self._publisher, self._channel = listener, publisher, channel
        self._hear, self._lost = hear, lost
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="aiopurgatory bus: Redis")

    async def send(self, messages: list[str]) -> None:
        publisher = self._publisher
        commands = publisher.pack_commands([("PUBLISH", self._channel, message) for message in messages])
        await publisher.send_packed_command(commands, check_health=False)
        for _ in messages:
            await publisher.read_response(timeout=inf)

    def abort(self) -> None:
        self._listener.abort()
        self._publisher.abort()
        self._reader.cancel()

    async def _read(self) -> None:
        try:
            while True:
                kind, _, data = await self._listener.read_response(timeout=inf)
                if kind == b"message":
                    self._hear(data.decode(errors="replace"))
        except Exception as exc:
            self._lost(exc)
