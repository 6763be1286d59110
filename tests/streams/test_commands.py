"""Commands to Redis on one connection, to a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from private_servers import Redis

pytest.importorskip("redis")

from aiopurgatory.bus.redis_server import RedisServer, Wire
from aiopurgatory.streams import StoreDownError
from aiopurgatory.streams.redis import Commands, OtherLifeError


class Interrupt(BaseException):
    """Raised by a signal handler, such as a test's timeout has."""


def interrupt(wire: Any) -> None:
    """Let a signal arrive while *wire* sends its next command."""

    def write(data: bytes) -> None:
        raise Interrupt

    wire._transport = SimpleNamespace(write=write)


class ManyLives(RedisServer):
    """Its data has a new life at each connection. Connecting takes until *connecting* is set."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connecting, self.is_asked = asyncio.Event(), asyncio.Event()
        self.wires: list[Wire] = []
        self.is_silent = self.interrupts = self.loses_cancellations = False

    async def connect_to_master(self, lost: Callable[[Exception], object]) -> Wire:
        self.is_asked.set()
        with suppress(*[asyncio.CancelledError] * self.loses_cancellations):
            await self.connecting.wait()
        wire = await super().connect_to_master(lost)
        self.wires.append(wire)
        wire.life = f"life {len(self.wires)}"
        if self.is_silent:
            wire._transport.pause_reading()  # type: ignore[attr-defined]
        if self.interrupts:
            self.interrupts = False
            interrupt(wire)
        return wire


def begun(called: Commands, life: str | None, text: str) -> asyncio.Task[Any]:
    return asyncio.create_task(called.call(life, "ECHO", text))


@pytest.fixture
def server(own_redis: Redis) -> ManyLives:
    return ManyLives(own_redis.url())


@pytest.fixture
async def called(server: ManyLives) -> AsyncIterator[Commands]:
    """Commands to a server that takes long to connect to."""
    called = Commands(server, 5.0)
    yield called
    await called.aclose()


@pytest.fixture
async def up(server: ManyLives, called: Commands) -> Commands:
    """Commands to a server that is connected to at once."""
    server.connecting.set()
    return called


async def test_call_for_another_life_is_not_sent(up: Commands) -> None:
    assert await up.call(None, "ECHO", "x") == ("life 1", b"x")
    assert await up.call("life 1", "ECHO", "x") == ("life 1", b"x")
    with pytest.raises(OtherLifeError):
        await up.call("life 0", "ECHO", "x")


async def test_call_cancelled_while_connecting_ends_no_other(server: ManyLives, called: Commands) -> None:
    cancelled, other = begun(called, "life 0", "x"), begun(called, None, "y")
    await asyncio.sleep(0)
    cancelled.cancel()
    server.connecting.set()
    assert await other == ("life 1", b"y")
    assert await called.call(None, "ECHO", "z") == ("life 1", b"z")


async def test_call_without_an_answer_fails_all_in_time(server: ManyLives) -> None:
    server.connecting.set()
    called = Commands(server, 2.5)
    assert await called.call(None, "ECHO", "x") == ("life 1", b"x")
    await asyncio.sleep(0.1)
    server.is_silent = True
    server.wires[0]._transport.abort()
    await asyncio.sleep(0.01)
    started = asyncio.get_running_loop().time()
    late = [begun(called, None, "x"), begun(called, None, "y")]
    for answer in late:
        with pytest.raises(StoreDownError, match="did not answer in time"):
            await answer
    assert 2.49 < asyncio.get_running_loop().time() - started < 10.0
    server.is_silent = False
    assert await called.call(None, "ECHO", "x") == ("life 3", b"x")
    await called.aclose()


@pytest.mark.parametrize("loses", [False, True], ids=["cancelled", "cancellation_lost"])
async def test_aclose_ends_calls_that_wait(server: ManyLives, called: Commands, loses: bool) -> None:
    server.loses_cancellations = loses
    waiting = begun(called, None, "x")
    await server.is_asked.wait()
    await called.aclose()
    assert [wire._transport.is_closing() for wire in server.wires] == [True] * loses
    with pytest.raises(StoreDownError):
        await waiting


async def test_call_after_an_interrupted_one_gets_its_own_answer(server: ManyLives, up: Commands) -> None:
    assert await up.call(None, "ECHO", "x") == ("life 1", b"x")
    interrupt(server.wires[0])
    with pytest.raises(Interrupt):
        await up.call(None, "ECHO", "x")
    async with asyncio.timeout(20.0):
        assert await up.call(None, "ECHO", "y") == ("life 2", b"y")


async def test_calls_whose_sending_is_interrupted_all_fail(server: ManyLives, called: Commands) -> None:
    server.interrupts = True
    interrupted, other = [begun(called, "life 1", key) for key in "xy"]
    server.connecting.set()
    with pytest.raises(Interrupt):
        await asyncio.wait_for(interrupted, 20.0)
    with pytest.raises(StoreDownError, match=r"interrupted|has ended"):  # and not after the 5 s of its timeout
        await asyncio.wait_for(other, 20.0)
    assert await called.call(None, "ECHO", "z") == ("life 2", b"z")
