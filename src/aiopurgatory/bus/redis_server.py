"""A Redis or Valkey server: its URL, its role, and connections to it with the commands that they carry."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from math import inf
from typing import Any, Final, TypeAlias, cast, final

from ..arguments import extra

with extra("redis"):
    import hiredis
    from redis import exceptions as exceptions
    from redis.asyncio.connection import AbstractConnection, Connection, DefaultParser, parse_url
    from redis.credentials import CredentialProvider

from ..errors import PurgatoryError
from .addresses import HostNames, Password, parse, password_of
from .engine import Lost

Command: TypeAlias = tuple[str | int, ...]
#: Of a command, to be awaited. It raises what the server, or the end of the connection, says.
Reply: TypeAlias = asyncio.Future[Any]

#: Its stub knows tuples of one part only. The one in redis-py has no types.
_pack: Final = cast(Callable[[Command], bytes], hiredis.pack_command)

_parse: Final = cast(Callable[[str], Exception], DefaultParser.parse_error)

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

#: Asks for the server's role. No ACL can forbid it. Redis before 6.2 demands the protocol's version.
HELLO: Final = ("HELLO", "2")


class ReplicaError(Exception):
    """The server is a replica."""


class ClusterError(PurgatoryError):
    """The server is a node of a cluster, and has only some of the keys."""


def is_mistake(exc: Exception) -> bool:
    """Is *exc* a mistake, which does not heal? All else that a server refuses is an outage."""
    return isinstance(exc, exceptions.ResponseError) and bool(_MISTAKES.search(str(exc)))


class _Credentials(CredentialProvider):
    """Asks *password* for each connection."""

    def __init__(self, user: str | None, password: Callable[[], Awaitable[str]]) -> None:
        self._user, self._password = user, password

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        password = await self._password()
        return (self._user, password) if self._user else (password,)


class _Abortable(AbstractConnection):
    """Adds abort() to redis-py's connections. Their own methods to close wait until everything is sent."""

    def transport(self) -> asyncio.WriteTransport:
        assert self._writer is not None, "it is connected"
        return self._writer.transport

    def abort(self) -> None:
        writer = self._writer
        self._reader = self._writer = None
        if writer is not None:
            writer.transport.abort()


class RedisServer:
    """The server at *url*, of redis-py's form.

    Args:
        is_in_first: whether to use database 0, even if the URL names another.
        has_keys: whether it is used for more than messages.
        password: returns the password of each connection, in place of the URL's.

    Raises: TypeError, ValueError: *url* is invalid.
    """

    def __init__(
        self, url: str, is_in_first: bool = False, has_keys: bool = False, password: Password | None = None
    ) -> None:
        where, self._hosts = parse(url, "url", "redis://user:password@host:6379", ("redis", "rediss", "unix"))
        #: Without its password, to be shown.
        self.where: Final = f"Redis at {where}"
        self._names, self._has_keys = HostNames(), has_keys
        self._options: dict[str, Any] = {**parse_url(url), **_OPTIONS}
        if is_in_first:
            self._options["db"] = 0
        if called := password_of(password):
            self._options.pop("password", None)
            self._options["credential_provider"] = _Credentials(self._options.pop("username", None), called)
        kind = self._options.pop("connection_class", Connection)
        self._kind: Any = type(kind.__name__, (_Abortable, kind), {})
        try:
            self._kind(**self._options)
        except TypeError:  # its message may show a part of a password with an & in it
            raise ValueError("url must have only options of redis-py's connections") from None

    async def connect(self, lost: Lost, heard: Callable[[bytes, bytes], object] | None = None) -> Wire:
        """Connect, and log in. Args: as for Wire."""
        for host in self._hosts:  # redis-py looks it up again, and then does not hang
            await self._names.addresses(host)
        connection = self._kind(**self._options)
        try:
            await connection.connect()
            return Wire(connection, lost, heard)
        except BaseException:
            connection.abort()
            raise

    async def connect_to_master(self, lost: Lost) -> Wire:
        """Connect, and learn the facts and the life. Raises: ReplicaError, ClusterError."""
        wire = await self.connect(lost)
        try:
            role, info = wire.call_all([HELLO, ("INFO", "replication")])
            wire.facts = await require_master(role)
            if self._has_keys and wire.facts.get(b"mode") == b"cluster":
                raise ClusterError(
                    f"{self.where} is a Redis Cluster, where each node has some of the keys: use another"
                )
            found = re.search(rb"^master_replid:(\w+)", await _unless_refused(info) or b"", re.MULTILINE)
            wire.life = found[1].decode() if found else ""
        except BaseException:
            wire.abort()
            raise
        return wire


async def require_master(role: Reply) -> dict[bytes, Any]:
    """Return the facts in the answer to HELLO. Raises: ReplicaError: the server is a replica."""
    answer = await _unless_refused(role) or ()  # Redis before 6, or renamed: the role stays unknown
    facts: dict[bytes, Any] = dict(zip(answer[::2], answer[1::2], strict=False))
    # In a cluster, every node forwards messages, replicas too.
    if facts.get(b"role") == b"replica" and facts.get(b"mode") != b"cluster":
        raise ReplicaError("it is a replica")
    return facts


async def _unless_refused(answer: Reply) -> Any:
    """Return *answer*; None: its command is forbidden, renamed or unknown."""
    try:
        return await answer
    except exceptions.ResponseError as exc:
        if not is_mistake(exc):
            raise
        return None


@final
class Wire(asyncio.Protocol):
    """Takes *connection* over from redis-py. There, every answer passes a stream and five coroutines.

    Args:
        connection: it is open, and no answer is missing on it.
        lost: called with the reason when the connection ends, unless abort() was called before.
        heard: called with the channel and the data of each message.
    """

    def __init__(self, connection: Any, lost: Lost, heard: Callable[[bytes, bytes], object] | None = None) -> None:
        self._connection, self._lost, self._heard = connection, lost, heard
        self._reader = hiredis.Reader(exceptions.InvalidResponse, _error, notEnoughData=MORE)
        self._loop = asyncio.get_running_loop()
        #: The answers that the server owes, the oldest first, each with the time at which it is overdue.
        self._owed: deque[tuple[float, Reply]] = deque()
        self._timeout = inf
        #: Looks at the oldest answer. Not set anew for each.
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        #: Of connect_to_master(): what the server tells of itself, and the incarnation of its data, which a restart or
        #: a failover changes; empty: it does not say.
        self.facts: dict[bytes, Any] = {}
        self.life = ""
        self._transport: asyncio.WriteTransport = connection.transport()
        self._transport.set_protocol(self)

    def limit(self, timeout: float) -> None:
        """From here on, the connection ends if the server takes longer than *timeout* seconds to answer."""
        self._timeout = timeout

    def call(self, *command: str | int) -> Reply:
        """Call a command. Raises: ConnectionError: the connection has ended."""
        return self.call_all([command])[0]

    def call_all(self, commands: Collection[Command]) -> list[Reply]:
        """Call *commands*, sent together. Raises: ConnectionError: the connection has ended."""
        if self._is_over:
            raise ConnectionError("the connection has ended")
        answers = [self._loop.create_future() for _ in commands]
        due = inf if self._timeout == inf else self._loop.time() + self._timeout
        if self._timer is None and due < inf:  # in an empty context: it outlives the request that calls this
            self._timer = self._loop.call_at(due, self._look, context=Context())
        try:
            self._owed += [(due, answer) for answer in answers]
            self._transport.write(b"".join(map(_pack, commands)))
        except BaseException as exc:  # as of a signal handler: some may be unsent
            self._end(ConnectionError(f"a command was interrupted by {type(exc).__name__}"))
            raise
        return answers

    def abort(self, why: Exception | None = None) -> None:
        """Close it at once: the server may not answer. Calls fail with *why*. Idempotent."""
        self._is_over = True
        self._connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        while self._owed:
            _fail(self._owed.popleft()[1], why or ConnectionError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while not self._is_over and (found := self._reader.gets()) is not MORE:
                self._take(found)
        except Exception as exc:
            self._end(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server has closed the connection"))

    def _take(self, found: Any) -> None:
        if self._heard is not None and isinstance(found, list) and found[0] == b"message":
            self._heard(found[1], found[2])
            return
        _, answer = self._owed.popleft()
        if isinstance(found, Exception):
            _fail(answer, found)
        elif not answer.done():
            answer.set_result(found)

    def _look(self) -> None:
        self._timer = None
        if self._owed:
            due = self._owed[0][0]
            if due <= self._loop.time():
                self._end(TimeoutError())
            else:
                self._timer = self._loop.call_at(due, self._look)

    def _end(self, why: Exception) -> None:
        if not self._is_over:
            self.abort(why)
            self._lost(why)


def _error(text: str) -> Exception:
    """Return redis-py's error for *text*, but with the server's code, which redis-py leaves out."""
    exc = _parse(text)
    BaseException.__init__(exc, text)
    return exc


def _fail(answer: Reply, exc: Exception) -> None:
    if not answer.done():
        answer.set_exception(exc)
        answer.exception()  # retrieved: its task may be gone
