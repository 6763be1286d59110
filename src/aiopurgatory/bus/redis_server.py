"""A Redis or Valkey server: its URL, connections to it and what they carry, its role and its run."""

from __future__ import annotations

import re
from asyncio import Protocol, WriteTransport
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Any, Final, cast, final

try:
    import hiredis
    from redis import exceptions
    from redis.asyncio.connection import (
        AbstractConnection,
        Connection,
        SSLConnection,
        UnixDomainSocketConnection,
        parse_url,
    )
    from redis.credentials import CredentialProvider
except ImportError as exc:
    raise ImportError('aiopurgatory.bus.redis needs redis-py and hiredis: pip install "aiopurgatory[redis]"') from exc

from .addresses import HostNames, Password, parse, password_of

Command = tuple[str | int, ...]

#: Its stub knows tuples of one part only.
_pack: Final = cast(Callable[[Command], bytes], hiredis.pack_command)

#: A reader returns this if it has no whole answer.
MORE: Final = object()
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


#: Of privileges, commands, types of keys, scripts and a cluster. Redis before 7 puts the error of a command in a script
#: into a text of its own.
_MISTAKES: Final = re.compile(
    r"\b(NOPERM|NOSCRIPT|WRONGTYPE|MOVED|CROSSSLOT)\b|executing the script can't|ACL failure|unknown (Redis )?command|"
    "wrong number of arg|Error compiling script",
    re.IGNORECASE,
)


class ReplicaError(Exception):
    """The server is a replica."""


def is_mistake(exc: exceptions.ResponseError) -> bool:
    """Is *exc* a mistake, which does not heal? All else that a server refuses is an outage."""
    return bool(_MISTAKES.search(str(exc))) or isinstance(exc, exceptions.NoPermissionError)


class _Credentials(CredentialProvider):
    """Asks *password* for each connection."""

    def __init__(self, user: str | None, password: Callable[[], Awaitable[str]]) -> None:
        self._user, self._password = user, password

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        password = await self._password()
        return (self._user, password) if self._user else (password,)


class RedisServer:
    """The server at *url*, of redis-py's form.

    Args:
        is_in_first: whether to use database 0, even if the URL names another.
        password: returns the password of each connection, in place of the URL's.

    Raises: TypeError, ValueError: *url* is invalid.
    """

    def __init__(self, url: str, is_in_first: bool = False, password: Password | None = None) -> None:
        address = parse(url, "url", "redis://user:password@host:6379", ("redis", "rediss", "unix"))
        #: Without its password, to be shown.
        self.where: Final = f"Redis at {address.where}"
        self._hosts, self._names = address.hosts, HostNames()
        self._options: dict[str, Any] = {**parse_url(url), **_OPTIONS}
        if is_in_first:
            self._options["db"] = 0
        if called := password_of(password):
            self._options.pop("password", None)
            self._options["credential_provider"] = _Credentials(self._options.pop("username", None), called)
        self._kind = _KINDS[self._options.pop("connection_class", Connection)]
        try:
            self._kind(**self._options)
        except TypeError:  # its message may show a part of a password with an & in it
            raise ValueError("url must have only options of redis-py's connections") from None

    async def look_up(self) -> None:
        """Look up its host: redis-py does so again, and then does not hang."""
        for host in self._hosts:
            await self._names.addresses(host)

    def new_connection(self) -> Any:
        """Return a connection of redis-py with an abort(), not connected yet."""
        return self._kind(**self._options)

    async def life(self, connection: Any) -> str:
        """Return a text for the incarnation of the server's data: a restart or a failover changes it.

        Returns: an empty text if the server does not say.
        """
        await connection.send_command("INFO", "replication", check_health=False)
        return await _found(connection, rb"^master_replid:(\w+)")


#: Asks for the server's role. No ACL can forbid it. Redis before 6.2 demands the protocol's version.
HELLO: Final = ("HELLO", "2")


async def require_master(connection: Any) -> dict[bytes, Any]:
    """Read the answer to HELLO. Returns: what it says. Raises: ReplicaError: the server is a replica."""
    try:
        answer = await connection.read_response(timeout=inf)
    except exceptions.ResponseError as exc:  # Redis before 6, or renamed: the role stays unknown
        if not is_mistake(exc):
            raise
        return {}
    facts: dict[bytes, Any] = dict(zip(answer[::2], answer[1::2], strict=False))
    # In a cluster, every node forwards messages, replicas too.
    if facts.get(b"role") == b"replica" and facts.get(b"mode") != b"cluster":
        raise ReplicaError("it is a replica")
    return facts


async def run_id(connection: Any) -> object:
    """Read the answer to INFO. Returns: the id of this run of the server; a new object if the id is not known."""
    return await _found(connection, rb"^run_id:(\w+)") or object()


async def _found(connection: Any, pattern: bytes) -> str:
    """Read the answer to INFO. Returns: the match of the group of *pattern*; empty: nothing."""
    try:
        answer = await connection.read_response(timeout=inf)
    except exceptions.ResponseError as exc:  # forbidden, or renamed
        if not is_mistake(exc):
            raise
        return ""
    found = re.search(pattern, answer, re.MULTILINE)
    return found[1].decode() if found else ""


class _Abortable(AbstractConnection):
    """Adds abort() to redis-py's connections. Their own methods to close wait until everything is sent."""

    def transport(self) -> WriteTransport:
        writer = self._writer
        assert writer is not None, "it is connected"
        return writer.transport

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


@final
class Wire(Protocol):
    """Takes *connection* over from redis-py. There, every answer passes a stream and five coroutines.

    Args:
        connection: it is open, and no answer is missing on it.
        heard: called with each answer. An error of the server is a ResponseError. Its text begins with its code.
        lost: called with the reason when the connection ends, unless abort() was called before.
    """

    def __init__(self, connection: Any, heard: Callable[[Any], object], lost: Callable[[Exception], object]) -> None:
        self._connection, self._heard, self._lost = connection, heard, lost
        self._reader = hiredis.Reader(exceptions.InvalidResponse, exceptions.ResponseError, notEnoughData=MORE)
        self._is_over = False
        self._transport: WriteTransport = connection.transport()
        self._transport.set_protocol(self)

    def send(self, commands: Iterable[Command]) -> None:
        self._transport.write(b"".join(map(_pack, commands)))

    def abort(self) -> None:
        """Close it at once: the server may not answer. Idempotent."""
        self._is_over = True
        self._connection.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while not self._is_over and (answer := self._reader.gets()) is not MORE:
                self._heard(answer)
        except Exception as exc:
            self._end(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server has closed the connection"))

    def _end(self, why: Exception) -> None:
        if not self._is_over:
            self.abort()
            self._lost(why)
