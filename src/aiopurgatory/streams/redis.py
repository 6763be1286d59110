"""The log on Redis or Valkey: a stream and a state for each topic, with redis-py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import Context
from hashlib import sha1
from typing import Any, Final, Unpack, final

from ..bus.addresses import Password
from ..bus.redis import RedisBus
from ..bus.redis_server import RedisServer, ReplicaError, Wire, exceptions, is_mistake
from ..errors import PurgatoryError
from .event import StoreDownError
from .log import EventLog, LogOptions
from .store import NEWEST, Commit, Notify, Page, Row
from .tasks import Tasks
from .wakeups import ServerStore, wake_up


class RedisLog(EventLog):
    """An EventLog on Redis (from 6.2 on) or Valkey. It keeps three connections open, or one if it gets a *bus*.

    Each topic has two keys, ``name:{topic}:state`` and ``name:{topic}:events``. Both expire with the topic. Events that
    Redis loses at a crash or a failover are lost: up to a second of them without ``appendfsync always``, more
    without an AOF. Listeners that have seen them, or miss them, are told ``gone``.

    Args:
        url: as for RedisBus. The server must be a master, not a cluster.
        bus: a RedisBus on the same server; the log uses its connections. None (default): it makes its own.
        heartbeat: seconds, for its own RedisBus; default 5.
        timeout: seconds that Redis may take to connect and to answer; default 5.
        prefix: what the names of all its keys and of its channel begin with, such as ``app1:`` for a user who may use
            only ``~app1:*`` and ``&app1:*``; printable ASCII characters; default none. Logs with different prefixes are
            different logs.
        password: as for RedisBus, also for its own.
        options: as for EventLog.

    Raises: TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        bus: RedisBus | None = None,
        heartbeat: float = 5.0,
        timeout: float = 5.0,
        prefix: str = "",
        password: Password | None = None,
        **options: Unpack[LogOptions],
    ) -> None:
        own = {"heartbeat": heartbeat, "timeout": timeout, "password": password}
        store = RedisStore(url, bus, options, prefix, **own)
        if bus is not None and bus.replays:  # the commits' scripts publish without keeping: gaps must check everything
            raise ValueError("bus must not have replay=, got one that has; leave it out, and the log makes its own")
        super().__init__(store, **options)


#: Keys: state, events. Arguments: the expected version, the new one, the new state, the number of the first event to
#: keep, milliseconds until both expire, the channel and the message, the new archive if it changes, then number and
#: text of each new event.
#: The version is last: what a failed script has done stays.
_COMMIT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local version = redis.call('HMGET', KEYS[1], 'version')[1] or ''
if version ~= ARGV[1] then
    local was = redis.call('HMGET', KEYS[1], 'state', 'touched', 'archive')
    return {now, version, was[1] or '', was[2] or now, was[3] or ''}
end
if ARGV[1] == '' then
    redis.call('DEL', KEYS[2])
end
for i = 9, #ARGV, 2 do
    redis.call('XADD', KEYS[2], ARGV[i] .. '-0', 'e', ARGV[i + 1])
end
if ARGV[8] ~= '' then
    redis.call('HSET', KEYS[1], 'archive', ARGV[8])
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'state', ARGV[3], 'touched', now)
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return {now}
"""
#: Keys: state, events. Arguments: the number of the last event not wanted, the most events, the bytes after which to
#: add none. XRANGE cannot be told how many bytes to load, so it loads few events at a time, fewer if they are large.
_READ: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'version', 'state', 'touched', 'archive')
local answer = {now, found[1] or '', found[2] or '', found[3] or now, found[4] or ''}
local after, rows, size, step = ARGV[1] .. '-0', tonumber(ARGV[2]), tonumber(ARGV[3]), 4
while rows > 0 and size > 0 do
    local count, largest = math.min(rows, step), 1
    local entries = redis.call('XRANGE', KEYS[2], '(' .. after, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
        local id, text = entry[1], entry[2][2]
        answer[#answer + 1] = string.sub(id, 1, -3)
        answer[#answer + 1] = text
        after, rows, size, largest = id, rows - 1, size - #text, math.max(largest, #text)
        if size <= 0 then
            break
        end
    end
    if #entries < count then
        break
    end
    step = math.max(1, math.min(16, 2 * step, math.floor(size / largest)))
end
return answer
"""


#: Of a user with a log. The connection needs no right to HELLO, and without +info, no restart is noticed.
_RIGHTS: Final = "+eval +evalsha +time +hmget +hset +del +xadd +xrange +xtrim +pexpire +publish"


class RedisStore(ServerStore):
    """The store of a RedisLog. Args: as for ServerStore."""

    def __init__(self, url: str, bus: RedisBus | None, log: LogOptions, prefix: str, **own: Any) -> None:
        super().__init__(RedisBus, url, bus, log, prefix, **own)
        self._server = RedisServer(url, has_keys=True, password=own["password"])
        self._commands: Commands | None = None

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._commands = Commands(self._server, self._timeout)
        await super().open(notify, notify_all)
        self._commands.hold()
        try:
            await self.read("", NEWEST, 0, 0)
        except exceptions.ResponseError as exc:
            remedy = f"its user needs {_RIGHTS} ~{self._name}:*"
            raise PurgatoryError(f"the log {self._name!r} cannot use {self._server.where}: {exc}; {remedy}") from exc

    async def aclose(self) -> None:
        commands, self._commands = self._commands, None
        try:
            await super().aclose()
        finally:
            if commands is not None:
                await commands.aclose()

    def notify_all(self) -> None:
        if self._commands is not None:
            self._commands.renew()  # the bus may have left a master that was demoted
        super().notify_all()

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        life, answer = await self._evaluate(None, _READ, topic, after, rows, size)
        found = [(int(answer[at]), answer[at + 1].decode()) for at in range(5, len(answer), 2)]
        return _page(life, answer, found)

    async def commit(self, topic: str, commit: Commit) -> Page:
        wake = self._channel, wake_up(self._name, topic, commit)
        rows = [part for row in commit.rows for part in row]
        change = commit.expected, commit.version, commit.state, commit.first, int(commit.keep * 1000), *wake
        try:
            life, answer = await self._evaluate(commit.server, _COMMIT, topic, *change, commit.archive, *rows)
        except OtherLifeError:
            return await self.read(topic, NEWEST, 1, 1)
        if len(answer) == 1:
            return Page(commit.version, commit.state, 0.0, answer[0] / 1000, life, [])
        return _page(life, answer, [])

    async def _evaluate(
        self, life: str | None, script: str, topic: str, *arguments: str | int
    ) -> tuple[str, list[Any]]:
        assert self._commands is not None, "it is open"
        key = self._name + ":{" + topic + "}"  # f"" takes an enum's name
        rest = (2, f"{key}:state", f"{key}:events", *arguments)
        try:
            try:
                return await self._commands.call(life, "EVALSHA", _HASHES[script], *rest)
            except exceptions.NoScriptError:
                return await self._commands.call(life, "EVAL", script, *rest)
        except exceptions.ResponseError as exc:
            raise _naming(exc, script) from exc


class OtherLifeError(Exception):
    """The server's data has another life than the command is for, so it was not sent."""


@final
class Commands:
    """Calls commands on one connection to *server*. It connects when there is a command, and again after each break.

    Args: timeout: seconds that a command or connecting may take.
    """

    def __init__(self, server: RedisServer, timeout: float) -> None:
        self._server, self._timeout = server, timeout
        self._tasks = Tasks()
        self._connecting: asyncio.Task[Wire] | None = None
        self._wire: Wire | None = None

    async def call(self, life: str | None, *command: str | int) -> tuple[str, Any]:
        """Call *command*. Args: life: the incarnation that the server's data must have; None: any.

        Returns: the incarnation of the server's data, and the answer.

        Raises:
            OtherLifeError: the data have another incarnation.
            StoreDownError: there is no answer, so the command may have been executed.
            ResponseError: of redis-py: a mistake.
        """
        wire: Wire | None = None
        try:
            wire = self._wire or await self._connected()
            if life not in (None, wire.life):
                raise OtherLifeError
            return wire.life, await wire.call(*command)
        except (OSError, exceptions.RedisError, ReplicaError) as exc:
            if wire is not None and is_mistake(exc):
                raise
            if wire is self._wire:
                self._drop(exc)
            why = "it did not answer in time" if isinstance(exc, TimeoutError) else str(exc) or type(exc).__name__
            raise StoreDownError(f"cannot use {self._server.where}: {why}") from exc

    def hold(self) -> None:
        """Hang up when the loop ends, which cancels all tasks."""
        holding = Context().run(self._tasks.begin, asyncio.Event().wait(), "connection")
        holding.add_done_callback(lambda _: self._drop(ConnectionError("the loop has ended")), context=Context())

    def renew(self) -> None:
        """Connect anew for the next command. Those under way fail with StoreDownError."""
        self._drop(ConnectionError("another server may be the master now"))

    async def aclose(self) -> None:
        """Disconnect. Commands that wait fail with StoreDownError."""
        closed = ConnectionError("the log was closed")
        self._drop(closed)
        await self._tasks.aclose()
        self._drop(closed)  # redis-py may have lost the cancellation, and connected

    async def _connected(self) -> Wire:
        if self._connecting is None:
            # In an empty context: the connection outlives the request that calls this.
            self._connecting = Context().run(self._tasks.begin, self._connect(), "Redis")
        connecting = self._connecting
        await asyncio.wait([connecting])  # and do not cancel it: other commands may wait for it
        if connecting.cancelled():
            raise ConnectionError("the log was closed")
        return connecting.result()

    async def _connect(self) -> Wire:
        try:
            async with asyncio.timeout(self._timeout):
                self._wire = wire = await self._server.connect_to_master(self._drop)
            wire.limit(self._timeout)
            return wire
        finally:
            self._connecting = None

    def _drop(self, why: Exception) -> None:
        """End the connection. Commands under way fail."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abort(why)


def _naming(exc: exceptions.ResponseError, script: str) -> exceptions.ResponseError:
    """Return *exc*, of *script*, with the command that failed. Redis 7 names only the line."""
    place = re.search(r"user_script:(\d+)", str(exc))
    command = place and re.search(r"call\('(\w+)'", script.splitlines()[int(place[1]) - 1])
    return exceptions.ResponseError(f"{exc}, in {command[1]}") if command else exc


def _page(life: str, answer: list[Any], rows: list[Row]) -> Page:
    now, version, state, touched, archive = answer[:5]
    idle = max(0, now - int(touched)) / 1000
    return Page(version.decode(), state.decode(), idle, now / 1000, life, rows, archive.decode())


_HASHES: Final = {script: sha1(script.encode()).hexdigest() for script in (_COMMIT, _READ)}
