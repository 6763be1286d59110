"""Commands to Redis on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("redis")

from aiopurgatory.bus.redis_server import RedisServer, Wire
from aiopurgatory.streams import StoreDownError
from aiopurgatory.streams.redis import Commands, OtherLifeError


class Connection(asyncio.Transport):
    """A connection that answers each command: with an answer, or not. The next write raises *interrupt*, if any."""

    def __init__(self, is_silent: bool) -> None:
        super().__init__()
        self.is_silent = is_silent
        self.is_open = True
        self.interrupt: BaseException | None = None

    def transport(self) -> Connection:
        return self

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol: Any = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            raise interrupt
        if not self.is_silent:
            answers = b"+answer\r\n" * bytes(data).count(b"GET")
            asyncio.get_running_loop().call_soon(self.protocol.data_received, answers)

    def abort(self) -> None:
        self.is_open = False


class Interrupt(BaseException):
    """Raised by a signal handler, such as that of a test's timeout."""


class FakeServer(RedisServer):
    """Its data has a new life at each connection. Connecting takes until *connecting* is set."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1")
        self.connecting = asyncio.Event()
        self.lives = 0
        self.broken: Exception | None = None
        self.is_silent = False
        self.loses_cancellations = False
        self.connections: list[Connection] = []
        self.interrupt: BaseException | None = None

    async def connect_to_master(self, lost: Callable[[Exception], object]) -> Wire:
        with suppress(*[asyncio.CancelledError] * self.loses_cancellations):
            await self.connecting.wait()
        if self.broken is not None:
            raise self.broken
        self.connections.append(Connection(self.is_silent))
        self.connections[-1].interrupt, self.interrupt = self.interrupt, None
        wire = Wire(self.connections[-1], lost)
        self.lives += 1
        wire.life = f"life {self.lives}"
        return wire


def begun(called: Commands, life: str | None, key: str) -> asyncio.Task[Any]:
    return asyncio.create_task(called.call(life, "GET", key))


async def test_call_for_another_life_is_not_sent() -> None:
    server = FakeServer()
    server.connecting.set()
    called = Commands(server, 5.0)
    assert await called.call(None, "GET", "x") == ("life 1", b"answer")
    assert await called.call("life 1", "GET", "x") == ("life 1", b"answer")
    with pytest.raises(OtherLifeError):
        await called.call("life 0", "GET", "x")
    await called.aclose()


async def test_call_cancelled_while_connecting_ends_no_other() -> None:
    server = FakeServer()
    called = Commands(server, 5.0)
    cancelled, other = begun(called, "life 0", "x"), begun(called, None, "y")
    await asyncio.sleep(0)
    cancelled.cancel()
    server.connecting.set()
    assert await other == ("life 1", b"answer")
    assert await called.call(None, "GET", "z") == ("life 1", b"answer")
    await called.aclose()


async def test_mistake_ends_only_the_calls_that_meet_it() -> None:
    server = FakeServer()
    server.connecting.set()
    server.broken = LookupError("a mistake")
    called = Commands(server, 5.0)
    with pytest.raises(LookupError, match="a mistake"):
        await called.call(None, "GET", "x")
    server.broken = None
    assert await called.call(None, "GET", "x") == ("life 1", b"answer")
    await called.aclose()


async def test_call_without_an_answer_fails_all_in_time() -> None:
    server = FakeServer()
    server.connecting.set()
    called = Commands(server, 0.2)
    assert await called.call(None, "GET", "x") == ("life 1", b"answer")
    await asyncio.sleep(0.1)
    server.is_silent = True
    called.renew()
    started = asyncio.get_running_loop().time()
    late = [begun(called, None, "x"), begun(called, None, "y")]
    for answer in late:
        with pytest.raises(StoreDownError, match="did not answer in time"):
            await answer
    assert 0.19 < asyncio.get_running_loop().time() - started < 1.0
    server.is_silent = False
    assert await called.call(None, "GET", "x") == ("life 3", b"answer")
    await called.aclose()


async def test_aclose_ends_calls_that_wait() -> None:
    server = FakeServer()
    called = Commands(server, 5.0)
    waiting = begun(called, None, "x")
    await asyncio.sleep(0.01)
    await called.aclose()
    with pytest.raises(StoreDownError, match="the log was closed"):
        await waiting


async def test_aclose_leaves_no_connection_if_its_cancellation_is_lost() -> None:
    server = FakeServer()
    server.loses_cancellations = True
    called = Commands(server, 5.0)
    waiting = begun(called, None, "x")
    await asyncio.sleep(0.01)
    await called.aclose()
    assert [connection.is_open for connection in server.connections] == [False]
    with pytest.raises(StoreDownError):
        await waiting


async def test_call_after_an_interrupted_one_gets_its_own_answer() -> None:
    server = FakeServer()
    server.connecting.set()
    called = Commands(server, 5.0)
    assert await called.call(None, "GET", "x") == ("life 1", b"answer")
    server.connections[0].interrupt = Interrupt()
    with pytest.raises(Interrupt):
        await called.call(None, "GET", "x")
    async with asyncio.timeout(2.0):
        assert await called.call(None, "GET", "y") == ("life 2", b"answer")
    await called.aclose()


async def test_calls_whose_sending_is_interrupted_all_fail() -> None:
    server = FakeServer()
    server.interrupt = Interrupt()
    called = Commands(server, 5.0)
    interrupted, other = [begun(called, "life 1", key) for key in "xy"]
    server.connecting.set()
    with pytest.raises(Interrupt):
        await asyncio.wait_for(interrupted, 2.0)
    with pytest.raises(StoreDownError):
        await asyncio.wait_for(other, 2.0)
    assert await called.call(None, "GET", "z") == ("life 2", b"answer")
    await called.aclose()


async def test_connection_of_a_first_request_does_not_keep_its_session(requests: Any) -> None:
    server = FakeServer()
    server.connecting.set()
    called = Commands(server, 5.0)

    async def call() -> None:
        await called.call(None, "GET", "x")

    session = await requests.handle(call)
    waiting = begun(called, None, "y")  # the connection goes on
    assert requests.are_over(session)
    await waiting
    await called.aclose()


async def test_connecting_sees_no_session_of_the_first_call(requests: Any) -> None:
    seen = []

    class Looking(FakeServer):
        async def connect_to_master(self, lost: Callable[[Exception], object]) -> Wire:
            seen.append(requests.session.get())
            return await super().connect_to_master(lost)

    server = Looking()
    server.connecting.set()
    called = Commands(server, 5.0)

    async def call() -> None:
        await called.call(None, "GET", "x")

    await requests.handle(call)
    assert seen == [None]
    await called.aclose()
