"""Commands to Redis on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
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
        self.is_silent = False
        self.loses_cancellations = False
        self.connections: list[Connection] = []
        self.interrupt: BaseException | None = None

    async def connect_to_master(self, lost: Callable[[Exception], object]) -> Wire:
        with suppress(*[asyncio.CancelledError] * self.loses_cancellations):
            await self.connecting.wait()
        self.connections.append(Connection(self.is_silent))
        self.connections[-1].interrupt, self.interrupt = self.interrupt, None
        wire = Wire(self.connections[-1], lost)
        self.lives += 1
        wire.life = f"life {self.lives}"
        return wire


def begun(called: Commands, life: str | None, key: str) -> asyncio.Task[Any]:
    return asyncio.create_task(called.call(life, "GET", key))


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def called(server: FakeServer) -> AsyncIterator[Commands]:
    """Commands to a server that takes long to connect to."""
    called = Commands(server, 5.0)
    yield called
    await called.aclose()


@pytest.fixture
async def up(server: FakeServer, called: Commands) -> Commands:
    """Commands to a server that is connected to at once."""
    server.connecting.set()
    return called


async def test_call_for_another_life_is_not_sent(up: Commands) -> None:
    assert await up.call(None, "GET", "x") == ("life 1", b"answer")
    assert await up.call("life 1", "GET", "x") == ("life 1", b"answer")
    with pytest.raises(OtherLifeError):
        await up.call("life 0", "GET", "x")


async def test_call_cancelled_while_connecting_ends_no_other(server: FakeServer, called: Commands) -> None:
    cancelled, other = begun(called, "life 0", "x"), begun(called, None, "y")
    await asyncio.sleep(0)
    cancelled.cancel()
    server.connecting.set()
    assert await other == ("life 1", b"answer")
    assert await called.call(None, "GET", "z") == ("life 1", b"answer")


async def test_call_without_an_answer_fails_all_in_time(server: FakeServer) -> None:
    server.connecting.set()
    called = Commands(server, 0.2)
    assert await called.call(None, "GET", "x") == ("life 1", b"answer")
    await asyncio.sleep(0.1)
    server.is_silent = True
    server.connections[0].protocol.connection_lost(ConnectionError("it is lost"))
    started = asyncio.get_running_loop().time()
    late = [begun(called, None, "x"), begun(called, None, "y")]
    for answer in late:
        with pytest.raises(StoreDownError, match="did not answer in time"):
            await answer
    assert 0.19 < asyncio.get_running_loop().time() - started < 1.0
    server.is_silent = False
    assert await called.call(None, "GET", "x") == ("life 3", b"answer")
    await called.aclose()


@pytest.mark.parametrize("loses", [False, True], ids=["cancelled", "cancellation_lost"])
async def test_aclose_ends_calls_that_wait(server: FakeServer, called: Commands, loses: bool) -> None:
    server.loses_cancellations = loses
    waiting = begun(called, None, "x")
    await asyncio.sleep(0.01)
    await called.aclose()
    assert [connection.is_open for connection in server.connections] == [False] * loses
    with pytest.raises(StoreDownError):
        await waiting


async def test_call_after_an_interrupted_one_gets_its_own_answer(server: FakeServer, up: Commands) -> None:
    assert await up.call(None, "GET", "x") == ("life 1", b"answer")
    server.connections[0].interrupt = Interrupt()
    with pytest.raises(Interrupt):
        await up.call(None, "GET", "x")
    async with asyncio.timeout(2.0):
        assert await up.call(None, "GET", "y") == ("life 2", b"answer")


async def test_calls_whose_sending_is_interrupted_all_fail(server: FakeServer, called: Commands) -> None:
    server.interrupt = Interrupt()
    interrupted, other = [begun(called, "life 1", key) for key in "xy"]
    server.connecting.set()
    with pytest.raises(Interrupt):
        await asyncio.wait_for(interrupted, 2.0)
    with pytest.raises(StoreDownError):
        await asyncio.wait_for(other, 2.0)
    assert await called.call(None, "GET", "z") == ("life 2", b"answer")
