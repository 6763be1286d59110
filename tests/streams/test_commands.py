"""Commands to Redis on one connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("redis")

from aiopurgatory.bus.redis_server import RedisServer
from aiopurgatory.streams import commands
from aiopurgatory.streams.commands import Commands, OtherLifeError


class Connection:
    """A connection that answers with what was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def connect(self) -> None: ...

    async def send_command(self, *command: str, check_health: bool) -> None: ...

    async def send_packed_command(self, packed: bytes, check_health: bool) -> None:
        self.sent.append(packed)

    async def read_response(self, timeout: float) -> str:
        return "answer"

    def abort(self) -> None: ...


class FakeServer(RedisServer):
    """A server whose data has a new life at each connection, which takes as long as *connecting* is not set."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1")
        self.connecting = asyncio.Event()
        self.lives = 0
        self.broken: Exception | None = None

    async def look_up(self) -> None:
        await self.connecting.wait()

    def new_connection(self) -> Any:
        return Connection()

    async def life(self, connection: Any) -> str:
        if self.broken is not None:
            raise self.broken
        self.lives += 1
        return f"life {self.lives}"


@pytest.fixture(autouse=True)
def master(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_one(connection: Any) -> None: ...

    monkeypatch.setattr(commands, "require_master", is_one)


async def test_call_for_another_life_is_not_sent() -> None:
    server = FakeServer()
    server.connecting.set()
    called = Commands(server, 5.0)
    assert await called.call(None, "GET", "x") == ("life 1", "answer")
    assert await called.call("life 1", "GET", "x") == ("life 1", "answer")
    with pytest.raises(OtherLifeError):
        await called.call("life 0", "GET", "x")
    await called.aclose()


async def test_call_cancelled_while_connecting_ends_no_other() -> None:
    server = FakeServer()
    called = Commands(server, 5.0)
    cancelled, other = called.call("life 0", "GET", "x"), called.call(None, "GET", "y")
    await asyncio.sleep(0)
    cancelled.cancel()
    server.connecting.set()
    assert await other == ("life 1", "answer")
    assert await called.call(None, "GET", "z") == ("life 1", "answer")
    await called.aclose()


async def test_mistake_ends_only_the_calls_that_meet_it() -> None:
    server = FakeServer()
    server.connecting.set()
    server.broken = LookupError("a mistake")
    called = Commands(server, 5.0)
    with pytest.raises(LookupError, match="a mistake"):
        await called.call(None, "GET", "x")
    server.broken = None
    assert await called.call(None, "GET", "x") == ("life 1", "answer")
    await called.aclose()
