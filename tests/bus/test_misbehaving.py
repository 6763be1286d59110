"""Engines that hang, swallow cancellations, or answer late: the bus ends within a bound, and keeps its word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import pytest

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.engine import Hear, Lost
from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.server import ServerBus
from aiopurgatory.testing import MemoryBus, MemoryServer

from .waits import OwnLink, Recorder, until


class Stubborn(OwnLink):
    """An engine that hangs at *place*. With *swallows*, it ignores cancellations there."""

    def __init__(self, place: str, swallows: bool) -> None:
        self.place, self.swallows = place, swallows
        self.is_over = False
        self.aborted = 0

    async def hang(self, place: str) -> None:
        while place == self.place and not self.is_over:
            try:
                await asyncio.sleep(30.0)
            except asyncio.CancelledError:
                if not self.swallows:
                    raise
                return  # as redis-py did on Python 3.11: it ignored the cancellation

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> Self:
        await self.hang("open")
        return await super().open(channels, hear, lost)

    async def send(self, messages: list[str]) -> None:
        self.hear(messages[0])
        if any("\n" in message for message in messages):
            await self.hang("send")

    def abort(self) -> None:
        self.aborted += 1


@pytest.mark.parametrize("swallows", [False, True])
async def test_start_engine_hangs_ends_within_the_timeout(swallows: bool) -> None:
    start = asyncio.get_running_loop().time()
    bus = ServerBus(Stubborn("open", swallows), [], timeout=0.2)
    if swallows:  # then it has come up, though late
        await bus.start()
    else:
        with pytest.raises(BusConnectError, match=r"what is wrong: TimeoutError"):
            await bus.start()
    await bus.aclose()
    assert asyncio.get_running_loop().time() - start < 2.0


@pytest.mark.parametrize("swallows", [False, True])
async def test_aclose_engine_hangs_ends_within_a_bound(swallows: bool) -> None:
    engine = Stubborn("send", swallows)
    bus = ServerBus(engine, [], timeout=0.3)
    await bus.start()
    bus.publish("key")
    await asyncio.sleep(0.01)
    start = asyncio.get_running_loop().time()
    await bus.aclose()
    assert asyncio.get_running_loop().time() - start < 0.3 + 2.0
    assert engine.aborted >= 1
    assert not [task for task in asyncio.all_tasks() if "bus" in task.get_name()]


class Forgetful(OwnLink):
    """An engine that loses a cancellation: send() returns, though the server has acknowledged nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, messages: list[str]) -> None:
        is_down = "\n" in messages[0] and not self.sent
        self.sent.append(messages[0])
        if not is_down:
            self.hear(messages[0])
            return
        self.lost(ConnectionResetError("cut"))
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30.0)


async def test_send_lost_cancellation_is_no_acknowledgement() -> None:
    engine = Forgetful()
    async with ServerBus(engine, []) as bus:
        engine.sent.clear()
        bus.publish("key")
        await asyncio.wait_for(bus.flush(), 5.0)
        assert [message.split("\n")[1] for message in engine.sent] == ['"key"', '"key"']


async def test_hear_that_fails_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client library may log it and go on: the keys of the message would be lost."""
    server, there = MemoryServer(), Recorder()
    async with MemoryBus(server, []) as one, MemoryBus(server, [there]) as other:
        before = there.everything

        def fail(self: Exchange, message: str, now: float) -> None:
            monkeypatch.undo()
            raise MemoryError

        monkeypatch.setattr(Exchange, "hear", fail)
        server.deliver(['"key"'])
        await until(lambda: one.statistics().gaps + other.statistics().gaps == 1)
        await until(lambda: one.statistics().connected and other.statistics().connected)
        assert "key" in there.keys or there.everything > before
