"""Commands to Redis on one connection: all that are waiting go out together."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from functools import partial
from typing import Any, final

from redis import exceptions

from ..bus.redis_server import HELLO, Command, RedisServer, ReplicaError, Wire, is_mistake, require_master
from .event import StoreDownError

#: The life of the server's data, and the answer of a command.
Answer = asyncio.Future[tuple[str, Any]]


class OtherLifeError(Exception):
    """The server's data has another life than the command is for, so it was not sent."""


@final
class Commands:
    """Calls commands on one connection to *server*. It connects when there is a command, and again after each break.

    Args: timeout: seconds that connecting, and each answer, may take.
    """

    def __init__(self, server: RedisServer, timeout: float) -> None:
        self._server, self._timeout = server, timeout
        self._loop = asyncio.get_running_loop()
        #: Commands until it is connected, and the life that each is for.
        self._waiting: list[tuple[str | None, Command, Answer]] = []
        self._connecting: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        #: The life of the server's data; empty: it does not say.
        self._life = ""
        #: The answers that are owed, the oldest first, and when each is overdue.
        self._owed: deque[tuple[float, Answer]] = deque()
        #: Looks at the oldest one, or at one that was owed before.
        self._timer: asyncio.TimerHandle | None = None

    def call(self, life: str | None, *command: str | int) -> Answer:
        """Call *command*. Args: life: the incarnation that the server's data must have; None: any.

        Returns: the incarnation of the server's data, and the answer.

        Raises:
            OtherLifeError: the data have another incarnation.
            StoreDownError: there is no answer, so the command may have been executed.
            ResponseError: of redis-py: a mistake, beginning with the server's code.
        """
        answer: Answer = self._loop.create_future()
        if self._wire is not None:
            self._send(self._wire, [(life, command, answer)])
        else:
            self._waiting.append((life, command, answer))
            if self._connecting is None:
                # In an empty context: the connection outlives the request that calls this.
                begin = partial(self._loop.create_task, self._connect(), name="aiopurgatory log: Redis")
                self._connecting = Context().run(begin)
        return answer

    def renew(self) -> None:
        """Connect anew for the next command. Those under way fail with StoreDownError."""
        if self._wire is not None:
            self._break(ConnectionError("another server may be the master now"))

    async def aclose(self) -> None:
        """Disconnect. Commands that wait fail with StoreDownError."""
        closed = ConnectionError("the log was closed")
        self._break(closed)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
            self._break(closed)  # redis-py may have lost the cancellation, and connected
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, wire: Wire, calls: list[tuple[str | None, Command, Answer]]) -> None:
        try:
            self._write(wire, calls)
        except BaseException as exc:  # as of a signal handler: a command may be unsent
            self._waiting += calls
            self._break(exc)
            raise

    def _write(self, wire: Wire, calls: list[tuple[str | None, Command, Answer]]) -> None:
        commands = []
        due = self._loop.time() + self._timeout
        for life, command, answer in calls:
            if answer.done():  # its task was cancelled while this connected
                continue
            if life not in (None, self._life):
                answer.set_exception(OtherLifeError())
                continue
            commands.append(command)
            self._owed.append((due, answer))
        wire.send(commands)
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._look, context=Context())  # it sets the next one

    def _heard(self, found: Any) -> None:
        _, answer = self._owed.popleft()
        if not isinstance(found, exceptions.ResponseError):
            if not answer.done():
                answer.set_result((self._life, found))
        elif not is_mistake(found):
            self._owed.appendleft((0.0, answer))
            self._break(found)
        elif not answer.done():
            answer.set_exception(found)

    def _look(self) -> None:
        """End the connection if an answer is overdue. The timer is not set anew for each answer."""
        self._timer = None
        if self._owed:
            due, _ = self._owed[0]
            if due <= self._loop.time():
                self._break(TimeoutError("it did not answer in time"))
            else:
                self._timer = self._loop.call_at(due, self._look)

    async def _connect(self) -> None:
        connection: Any = None
        try:
            async with asyncio.timeout(self._timeout):
                await self._server.look_up()
                connection = self._server.new_connection()
                await connection.connect()
                await connection.send_command(*HELLO, check_health=False)
                await require_master(connection)
                self._life = await self._server.life(connection)
            self._wire = Wire(connection, self._heard, self._break)
            waiting, self._waiting = self._waiting, []
            self._send(self._wire, waiting)
        except BaseException as exc:
            if connection is not None:
                connection.abort()
            self._break(exc)
            if not isinstance(exc, Exception):
                raise
        finally:
            self._connecting = None

    def _break(self, exc: BaseException) -> None:
        """End the connection, and every call with *exc*, or StoreDownError for an outage."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abort()
        failed = [answer for _, answer in self._owed] + [answer for _, _, answer in self._waiting]
        self._owed.clear()
        self._waiting.clear()
        for answer in failed:
            if not answer.done():
                answer.set_exception(self._failure(exc))
                answer.exception()  # retrieved: its task may be gone

    def _failure(self, exc: BaseException) -> Exception:
        """Return the callers' exception for *exc*. A mistake is no outage: later calls would wait for ever."""
        if isinstance(exc, Exception) and not isinstance(exc, OSError | exceptions.RedisError | ReplicaError):
            return exc
        down = StoreDownError(f"cannot use {self._server.where}: {exc or type(exc).__name__}")
        down.__cause__ = exc
        return down
