"""Commands to Redis on one connection: all that are waiting go out together."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, Final, final

from redis import exceptions

from ..bus.redis_server import HELLO, RedisServer, ReplicaError, require_master
from .event import StoreDownError

#: How the error of a server begins that cannot write now. It is an outage, as if it were not there.
_OUTAGES: Final = ("READONLY", "OOM", "MISCONF", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED")

Command = tuple[str | int, ...]


@final
class Commands:
    """Calls commands on one connection to *server*. It connects when there is a command, and again after each break.

    Args: timeout: seconds that connecting, and each round trip, may take.
    """

    def __init__(self, server: RedisServer, timeout: float) -> None:
        self._server, self._timeout = server, timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Command, asyncio.Future[Any]]] = []
        self._woken: asyncio.Future[None] | None = None
        self._connection: Any = None
        #: Tells one life of the server's data from another; empty: it does not say.
        self.life = ""
        self._task = self._loop.create_task(self._serve(), name="aiopurgatory log: Redis")

    def call(self, *command: str | int) -> asyncio.Future[Any]:
        """Return the answer to *command*.

        Raises: StoreDownError: there is none, so it may or may not have been executed; ResponseError of redis-py.
        """
        answer = self._loop.create_future()
        self._waiting.append((command, answer))
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        return answer

    async def aclose(self) -> None:
        """Disconnect. Commands that wait fail with StoreDownError."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _serve(self) -> None:
        batch: list[tuple[Command, asyncio.Future[Any]]] = []
        try:
            while True:
                if not self._waiting:
                    self._woken = self._loop.create_future()
                    await self._woken
                batch = [one for one in self._waiting if not one[1].done()]
                self._waiting.clear()
                if not batch:
                    continue
                try:
                    async with asyncio.timeout(self._timeout):
                        await self._exchange(batch)
                except (OSError, exceptions.RedisError, ReplicaError) as exc:
                    self._disconnect()
                    self._fail(batch, exc)
        finally:
            self._disconnect()
            self._fail(batch + self._waiting, ConnectionError("the log was closed"))

    async def _exchange(self, batch: list[tuple[Command, asyncio.Future[Any]]]) -> None:
        if self._connection is None:
            await self._connect()
        connection = self._connection
        packed = b"".join([_packed(command) for command, _ in batch])
        await connection.send_packed_command(packed, check_health=False)
        for _, answer in batch:
            try:
                found = await connection.read_response(timeout=inf)
            except exceptions.ResponseError as exc:
                if str(exc).startswith(_OUTAGES) or isinstance(exc, exceptions.ReadOnlyError):
                    raise
                if not answer.done():
                    answer.set_exception(exc)
            else:
                if not answer.done():
                    answer.set_result(found)

    async def _connect(self) -> None:
        await self._server.look_up()
        self._connection = connection = self._server.new_connection()
        await connection.connect()
        await connection.send_command(*HELLO, check_health=False)
        await require_master(connection)
        self.life = await self._server.life(connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _fail(self, batch: list[tuple[Command, asyncio.Future[Any]]], exc: Exception) -> None:
        for _, answer in batch:
            if not answer.done():
                down = StoreDownError(f"cannot use {self._server.where}: {exc or type(exc).__name__}")
                down.__cause__ = exc
                answer.set_exception(down)
                answer.exception()  # retrieved: its task may be gone


def _packed(command: Command) -> bytes:
    """Return *command* as Redis reads it, in a fifth of redis-py's time."""
    parts = [b"*%d\r\n" % len(command)]
    for each in command:
        part = each.encode() if isinstance(each, str) else b"%d" % each
        parts.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(parts)
