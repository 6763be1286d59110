"""After a stall of the loop, events that had arrived in time are read before anything expires (I2)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.operations import Heartbeats

from .parts import Op, turns


class StallingClock:
    """A clock that stands still, and jumps: so it looks if the loop, or the process, was stopped for a while."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.armed: list[Alarm] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> Alarm:
        self.armed.append(Alarm(when, callback))
        return self.armed[-1]

    def jump(self, seconds: float) -> None:
        """Let *seconds* pass. Due calls are made on the next loop iteration, as after a stall."""
        self.now += seconds
        for alarm in self.armed:
            if alarm.when <= self.now and not alarm.is_over:
                alarm.is_over = True
                asyncio.get_running_loop().call_soon(alarm.callback)


class Alarm:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


@pytest.fixture
def stalling() -> StallingClock:
    return StallingClock()


@pytest.fixture
async def stalled(stalling: StallingClock) -> AsyncIterator[Purgatory]:
    async with Purgatory(clock=stalling) as purgatory:
        yield purgatory


class Client:
    """A client at one end of a connection, and a handler that calls *told* for each line at the other."""

    def __init__(self, told: Callable[[], object]) -> None:
        self.told = told
        self.here, self.there = socket.socketpair()

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection(sock=self.there)
        self.task = asyncio.create_task(self.handle())
        await turns(3)
        return self

    async def handle(self) -> None:
        async for _ in self.reader:
            self.told()

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        self.here.close()
        self.writer.close()
        await asyncio.wait([self.task])


async def ended(op: Op) -> Outcome | None:
    """Return the outcome of *op* after at most 20 loop iterations."""
    for _ in range(20):
        if op.done():
            break
        await turns(1)
    return op.outcome


@pytest.mark.parametrize("is_awake", [False, True])
@pytest.mark.parametrize("has_arrived", [True, False])
async def test_stall_event_that_arrived_in_time_wins(
    stalled: Purgatory, stalling: StallingClock, has_arrived: bool, is_awake: bool
) -> None:
    op = stalled.watch(Op(1.0), ["key"])

    def complete() -> None:
        op.ready = True
        stalled.check_and_complete("key")

    async with Client(complete) as client:
        await turns(3)
        if has_arrived:
            client.here.send(b"news\n")
        if is_awake:  # a notification wakes the clock task before its alarm rings
            stalled.watch(Op(None), ["other"])
            stalled.notify("other")
        stalling.jump(1.5)
        assert await ended(op) is (Outcome.COMPLETED if has_arrived else Outcome.EXPIRED)


async def test_stall_heartbeats_in_the_sockets_keep_every_member(stalled: Purgatory, stalling: StallingClock) -> None:
    missed: list[int] = []
    beats = Heartbeats(stalled, "group", timeout=1.0, on_missed=missed.append)
    clients = [Client(partial(beats.beat, number)) for number in range(20)]
    for client in clients:
        await client.__aenter__()
        client.here.send(b"beat\n")
    while len(beats) < 20:
        await turns(1)
    for client in clients[1:]:
        client.here.send(b"beat\n")
    stalling.jump(1.5)
    await turns(20)
    assert (missed, len(beats)) == ([0], 19)
    for client in clients:
        await client.__aexit__()


@pytest.mark.parametrize(("late", "is_done"), [(0.0, True), (0.009, True), (0.012, False)])
async def test_alarm_in_time_expires_at_once(
    stalled: Purgatory, stalling: StallingClock, late: float, is_done: bool
) -> None:
    op = stalled.watch(Op(0.015), ["key"])
    await turns(3)
    stalling.jump(0.015 + late)
    await turns(1)
    assert op.done() is is_done
    assert await ended(op) is Outcome.EXPIRED


async def test_stall_block_left_in_time_raises_nothing(stalled: Purgatory, stalling: StallingClock) -> None:
    news = asyncio.Event()
    async with Client(news.set) as client:
        client.here.send(b"news\n")
        async with stalled.timeout(1.0):
            stalling.jump(1.5)
            await news.wait()
