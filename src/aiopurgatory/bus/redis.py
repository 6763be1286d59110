"""The bus on Redis or Valkey: SUBSCRIBE and PUBLISH, with redis-py."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Final, Unpack

from ..arguments import require_int
from .addresses import Password
from .engine import CHANNEL, Hear, Link, Lost, explained
from .keys import DATA, EVERY_KEY, milliseconds
from .redis_server import HELLO, ClusterError, Command, RedisServer, ReplicaError, Wire, exceptions, require_master
from .server import BusOptions, ServerBus
from .targets import Target

#: The least seconds between two questions for the server's role. Each is sent with a message, in one round trip.
_ROLE_INTERVAL: Final = 1.0
#: Kept messages to read at a time.
_PAGE: Final = 100
#: Keeps and publishes messages (R10 of exchange.py): of each, the head, the line feed and the keys. One without keys is
#: not kept. A message goes out with the id of the kept one before it, and its own. Ids count up from 0-1, so that the
#: one before need not be read. The first probe is kept, so that a process knows an id before its first gap. The stream
#: goes a day after the last probe: a name out of use leaves nothing behind. Returns: the id of the last message; of a
#: probe, that before it.
_KEEP: Final = """local last
for place = 3, #ARGV, 3 do
  local head, keys, before, own = ARGV[place], ARGV[place + 1] .. ARGV[place + 2], '-', '-'
  if keys == '' then
    local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
    before = newest[1] and newest[1][1] or redis.call('XADD', KEYS[1], '0-1', 'm', head)
    last = before
  else
    own = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '0-*', 'm', head .. keys)
    if own ~= '0-1' then before = string.format('0-%.0f', tonumber(string.sub(own, 3)) - 1) end
    last = own
  end
  redis.call('PUBLISH', ARGV[1], head .. ' ' .. before .. ' ' .. own .. keys)
end
redis.call('EXPIRE', KEYS[1], 86400)
return last"""
_KEEP_SHA: Final = sha1(_KEEP.encode()).hexdigest()


class RedisBus(ServerBus):
    """A Bus on Redis or Valkey. It keeps two connections open, or one if it only publishes.

    Args:
        url: ``redis://user:password@host:6379``, ``rediss://`` for TLS, or ``unix:///path``. It must lead to a
            master. All databases of a server share its channels, so the database number does not separate buses.
        targets: purgatories and long polls to check, as for Bus. None (default): the bus only publishes.
        replay: how many messages with keys the server keeps at least, in a stream. After a gap, the bus then reads
            the missed ones, and checks only their keys. None or 0 (default): the server keeps none, and a gap
            costs a check of everything. So does a gap that swallowed more, and a loss of data. All processes with the
            same *name* must give it. See "What a gap costs" in docs/workers.md.
        password: a function, plain or ``async def``: returns the password of each new connection, which may change.
            None (default): the URL's.
        options: name, heartbeat, timeout, spread and observers, as for ServerBus. With ACLs, the user needs ``&name``,
            ``+subscribe`` and ``+publish``. Without ``+info``, it takes each reconnect for another server, and then has
            more checked than is needed.
    """

    def __init__(
        self,
        url: str,
        targets: Iterable[Target] | None = None,
        *,
        replay: int | None = None,
        password: Password | None = None,
        **options: Unpack[BusOptions],
    ) -> None:
        require_int("replay", replay or 0, 0)
        engine = RedisEngine(url, options.get("name", CHANNEL), targets is not None, replay or 0, password)
        super().__init__(engine, targets, replays=bool(replay), **options)


class RedisEngine:
    """The engine of a RedisBus, with the same *url* and *channel*.

    Args:
        listens: False: it only publishes, on one connection.
        replay: how many messages the server keeps; 0: none.
        password: as for RedisBus.
    Raises: TypeError, ValueError: *url* is invalid.
    """

    def __init__(
        self, url: str, channel: str, listens: bool = True, replay: int = 0, password: Password | None = None
    ) -> None:
        self._channel, self._listens, self._replay = channel, listens, replay
        # All databases of a server share its channels. They must also share the stream.
        self._redis = RedisServer(url, bool(replay), bool(replay), password)
        #: The server that acknowledged the last message, and None if there was none; and the time.
        self.last_server: object = None
        self.acknowledged_at = 0.0
        #: The id and the head of the last kept message that a server acknowledged.
        self.kept: tuple[str, str] | None = None

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> _RedisLink:
        """Connect twice and subscribe, as ``Engine`` says."""
        # Only this one must reach a master: a listener on a replica receives every message published on the master.
        link = _RedisLink(self, await self._redis.connect_to_master(lost), self._channel, self._replay)
        try:
            if self._replay:
                await link.load()
            if self._listens:
                await self._subscribe(link, channels, hear, lost)
        except BaseException:
            link.abort()
            raise
        return link

    async def _subscribe(self, link: _RedisLink, channels: Sequence[str], hear: Hear, lost: Lost) -> None:
        own = self._channel.encode()

        def heard(channel: bytes, data: bytes) -> None:
            message = data.decode(errors="replace")
            if channel == own or message.startswith(DATA):
                hear(message)

        listener = link.listener = await self._redis.connect(lost, heard)
        for confirmation in listener.call_all([("SUBSCRIBE", name) for name in channels]):
            await confirmation

    def explain(self, exc: Exception) -> str:
        """Return the reason why the bus is not connected, and the remedy, without passwords."""
        where = self._redis.where
        if isinstance(exc, ReplicaError):
            return (
                f"{where} is a replica, and nobody who is connected to its master hears what is published there: "
                "give the bus the address of the master"
            )
        if isinstance(exc, exceptions.TimeoutError):
            exc = TimeoutError()
        if isinstance(exc, ClusterError):
            return f"replay= needs one server: {exc}"
        return explained(where, exc, "url", "does a proxy in between split its commands?", self._remedy(exc))

    def _remedy(self, exc: Exception) -> str:
        if isinstance(exc, exceptions.NoPermissionError):
            if self._replay:
                rights = "+subscribe +publish +script +evalsha +xadd +xrange +xrevrange +expire"
                return f"the user needs {rights} &{self._channel} ~{self._channel}:replay"
            return f"the user needs +subscribe, +publish and &{self._channel}: ACL SETUSER name &{self._channel}"
        return next(remedy for kind, words, remedy in _REMEDIES if isinstance(exc, kind) and words in str(exc))


_LOGIN: Final = (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError)
_TLS: Final = "check the certificates, and ssl_ca_certs in the url"
_DOWN: Final = (OSError, exceptions.ConnectionError)
#: The first that fits holds: the class of an error, or several; words in it; and the remedy.
_REMEDIES: Final[list[tuple[type[Exception] | tuple[type[Exception], ...], str, str]]] = [
    (_LOGIN, "", "check user and password in the url"),
    (Exception, "it is Redis ", "replay= needs Redis 7 or Valkey: leave it out"),
    (exceptions.BusyLoadingError, "", "it is starting"),
    (Exception, "max number of clients", "raise maxclients: a bus takes two per process, or one if it only publishes"),
    (ssl.SSLError, "", _TLS),  # not each of them says "SSL"
    (Exception, "SSL", _TLS),
    (Exception, "No such file", "check the paths in the url: ssl_ca_certs, or the one in unix://"),
    (_DOWN, "", "check that it is running, host and port in the url, and for TLS that it begins with rediss:"),
    (Exception, "", "check the url"),
]


class _RedisLink(Link):
    def __init__(self, engine: RedisEngine, publisher: Wire, channel: str, replay: int) -> None:
        self._engine, self._publisher, self._channel, self._replay = engine, publisher, channel, replay
        self._stream = f"{channel}:replay"
        #: Its data's life tells a server from another. If it does not say, it may be another one.
        self._server: object = publisher.life or object()
        self._loop = asyncio.get_running_loop()
        self._asked_at = self._loop.time()
        #: None: the bus only publishes.
        self.listener: Wire | None = None

    async def load(self) -> None:
        """Load the script that keeps messages."""
        version = self._publisher.facts.get(b"version", b"7").decode()
        if int(version.partition(".")[0]) < 7:
            raise exceptions.ResponseError(f"it is Redis {version}")
        await self._publisher.call("SCRIPT", "LOAD", _KEEP)

    async def send(self, messages: list[str]) -> None:
        if self._engine.last_server not in (None, self._server) and not await self._has_kept():
            # Processes connected to this server may have missed the messages that the other one has acknowledged, at
            # least since it became a replica. Processes that connected later have checked everything since.
            age = milliseconds(self._loop.time() - self._engine.acknowledged_at)
            messages = [f"{'@ 0 0' + chr(10) if self._replay else ''}{EVERY_KEY}{age}", *messages]
        commands = self._commands(messages)
        count = len(commands)
        now = self._loop.time()
        if now >= self._asked_at + _ROLE_INTERVAL:
            self._asked_at = now
            commands.append(HELLO)
        answers = self._publisher.call_all(commands)
        last = [await answer for answer in answers[:count]][-1]
        head, _, body = messages[-1].partition("\n")
        if self._replay and body:
            self._engine.kept = last.decode(), head
        self._engine.last_server, self._engine.acknowledged_at = self._server, self._loop.time()
        for role in answers[count:]:
            await require_master(role)

    async def read(self, first: str) -> list[tuple[str, str]]:
        return await self._range(first, "+", _PAGE)

    def _commands(self, messages: list[str]) -> list[Command]:
        if not self._replay:
            return [("PUBLISH", self._channel, message) for message in messages]
        parts = [part for message in messages for part in message.partition("\n")]
        return [("EVALSHA", _KEEP_SHA, 1, self._stream, self._channel, self._replay, *parts)]

    async def _has_kept(self) -> bool:
        """Whether this server has the messages that another one acknowledged to this process."""
        if not self._replay:
            return False
        if self._engine.kept is None:  # there were none
            return True
        last, head = self._engine.kept
        entries = await self._range(last, last, 1)
        return [text.partition("\n")[0] for _, text in entries] == [head]

    async def _range(self, first: str, last: str, count: int) -> list[tuple[str, str]]:
        answer = await self._publisher.call("XRANGE", self._stream, first, last, "COUNT", count)
        return [(id_.decode(), fields[1].decode()) for id_, fields in answer]

    def abort(self) -> None:
        self._publisher.abort()
        if self.listener is not None:
            self.listener.abort()
