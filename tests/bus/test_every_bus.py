"""What every bus does, with a server or without: on a bus in memory, and on one between event loops."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.bus import Bus, BusClosedError, LocalBus
from aiopurgatory.testing import MemoryBus, MemoryServer

from .waits import Recorder, Told, said_by_child, until

Maker: TypeAlias = Callable[..., Bus]


@pytest.fixture(params=["server", "local"])
def make_bus(request: pytest.FixtureRequest) -> Maker:
    return LocalBus if request.param == "local" else partial(MemoryBus, MemoryServer())


async def test_publish_wakes_here_and_elsewhere(make_bus: Maker) -> None:
    async with (
        Purgatory("a") as here,
        Purgatory("b") as there,
        make_bus([here]) as bus,
        make_bus([there]),
    ):
        happened: set[str] = set()
        waits = [
            asyncio.create_task(each.wait_for(lambda: "it" in happened, [("orders", 7)], timeout=30.0))
            for each in (here, there)
        ]
        await asyncio.sleep(0.01)
        happened.add("it")
        bus.publish(("orders", 7))
        assert await asyncio.gather(*waits) == [True, True]
        assert bus.statistics().published == 1


async def test_flush_waits_for_the_keys_of_threads(make_bus: Maker) -> None:
    class Slow(Recorder):
        def notify(self, key: Hashable, limit: int | None = None) -> None:
            time.sleep(0.002)  # a slice has 5 ms
            super().notify(key, limit)

    def publish() -> None:
        for number in range(20):
            bus.publish_threadsafe(number)

    here = Slow()
    async with make_bus([here]) as bus:
        await asyncio.to_thread(publish)
        await bus.flush()
        assert (bus.statistics().published, here.keys) == (20, [*range(20)])
        assert bus.statistics().outbox == 0


async def test_start_checks_what_is_parked_already(make_bus: Maker) -> None:
    async with Purgatory() as polls:
        happened: list[int] = []
        wait = asyncio.create_task(polls.wait_for(lambda: len(happened), ["key"], timeout=30.0))
        await asyncio.sleep(0.01)
        happened.append(1)
        async with make_bus([polls]):
            assert await wait == 1


async def test_start_again_after_close_works(make_bus: Maker) -> None:
    there = Recorder()
    bus = make_bus([])
    async with make_bus([there]):
        for number in range(2):
            async with bus:
                bus.publish(number)
        await until(lambda: there.keys == [0, 1])
    assert (bus.statistics().published, bus.statistics().gaps) == (1, 0)


async def test_publish_limit_wakes_so_many_in_each(make_bus: Maker) -> None:
    jobs: list[int] = []
    there = Recorder()
    async with Purgatory("a") as one, Purgatory("b") as other, make_bus([one, there]) as bus, make_bus([other, there]):
        waits = {
            each: [asyncio.create_task(each.wait_for(lambda: len(jobs), ["jobs"], timeout=30.0)) for _ in range(9)]
            for each in (one, other)
        }
        await until(lambda: one.num_delayed == other.num_delayed == 9)
        jobs.append(1)
        for limit in (1, 2, 1):
            bus.publish("jobs", limit=limit)
        await until(lambda: other.num_delayed <= 5)
        await asyncio.sleep(0.02)
        assert [[wait.done() for wait in each] for each in waits.values()] == [[True] * 4 + [False] * 5] * 2
        assert there.limits[:3] == [1, 2, 1]
        bus.publish("jobs")
        bus.publish("jobs", limit=1)
        await asyncio.gather(*waits[one], *waits[other])


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "1"])
async def test_publish_bad_limit_changes_nothing(make_bus: Maker, limit: Any) -> None:
    here = Recorder()
    async with make_bus([here]) as bus:
        with pytest.raises((TypeError, ValueError), match="limit must be an int >= 1, or None, got"):
            bus.publish("key", limit=limit)
        assert (here.keys, bus.statistics().outbox, bus.statistics().published) == ([], 0, 0)


@pytest.mark.parametrize("key", [["list"], object(), ("a", {})])
async def test_publish_bad_key_changes_nothing(make_bus: Maker, key: Any) -> None:
    here = Recorder()
    async with make_bus([here]) as bus:
        with pytest.raises(TypeError, match="key must be"):
            bus.publish(key)
        with pytest.raises(ValueError, match="at most 7800 bytes"):
            bus.publish("x" * 8000)
        assert (here.keys, bus.statistics().outbox, bus.statistics().published) == ([], 0, 0)


async def test_publish_other_thread_is_refused(make_bus: Maker) -> None:
    async with make_bus([]) as bus:
        with pytest.raises(RuntimeError, match=r"use publish_threadsafe\(key\)"):
            await asyncio.to_thread(bus.publish, "key")


async def test_publish_threadsafe_reaches_here_and_there(make_bus: Maker) -> None:
    here, there = Recorder(), Recorder()

    def publish() -> None:
        for number in range(1000):
            bus.publish_threadsafe(("orders", number))

    async with make_bus([here]) as bus, make_bus([there]):
        await asyncio.to_thread(publish)
        await until(lambda: len(there.keys) == 1000)
        assert here.keys == there.keys == [("orders", number) for number in range(1000)]
        assert bus.statistics().published == 1000


async def test_publish_threadsafe_limits_add_up(make_bus: Maker) -> None:
    """As the limits of publish(). Calls without a limit are merged: the control."""
    here, there = Recorder(), Recorder()
    async with make_bus([here]) as bus, make_bus([there]):

        def publish() -> None:
            for _ in range(3):
                bus.publish_threadsafe("limited", limit=2)
                bus.publish_threadsafe("key")
            with pytest.raises(ValueError, match="limit must be"):
                bus.publish_threadsafe("key", limit=0)

        publish()  # before the loop can take any
        await bus.flush()
        await until(lambda: "key" in there.keys and "limited" in there.keys)
        for target in (here, there):
            assert target.keys.count("key") == 1
            assert sum(limit or 0 for limit in target.limits) == 6


async def test_publish_threadsafe_refuses_before_the_loop_runs(make_bus: Maker) -> None:
    bus = make_bus([])
    with pytest.raises(BusClosedError, match="not started"):
        bus.publish_threadsafe("key")
    async with bus:
        with pytest.raises(TypeError):
            await asyncio.to_thread(bus.publish_threadsafe, object())
    with pytest.raises(BusClosedError, match="closed"):
        bus.publish_threadsafe("key")


async def test_publish_threadsafe_key_lost_by_close_is_reported(
    make_bus: Maker, reported: list[dict[str, Any]]
) -> None:
    async with make_bus([]) as bus:
        bus.publish_threadsafe("key")
    await until(lambda: reported)
    assert [type(context["exception"]) for context in reported] == [BusClosedError]


def test_publish_other_loop_is_refused(make_bus: Maker) -> None:
    async def publish(bus: Bus) -> None:
        bus.publish("key")

    async def start(bus: Bus) -> None:
        await bus.start()

    with asyncio.Runner() as first:
        bus = make_bus([])
        first.run(start(bus))
        with asyncio.Runner() as second:
            with pytest.raises(RuntimeError, match="another event loop"):
                second.run(publish(bus))
            with pytest.raises(RuntimeError, match="another event loop"):
                second.run(start(bus))
        with pytest.raises(RuntimeError, match="another event loop"):
            bus.publish("key")
        first.run(bus.aclose())


@pytest.mark.parametrize("name", ["publish", "publish_threadsafe"])
async def test_publish_after_a_fork_is_refused(make_bus: Maker, name: str) -> None:
    def publish() -> str:
        with pytest.raises(RuntimeError) as caught:
            getattr(bus, name)("key")
        found = bus.statistics()
        return f"{found.connected} {found.since_echo} {found.error} {caught.value}"

    async with make_bus([]) as bus:
        started = "the bus was started before a fork"
        assert (await said_by_child(publish)).startswith(f"False None {started}: make and start another one")
        assert bus.statistics().connected


def test_loop_ending_closes_the_bus(make_bus: Maker) -> None:
    async def forget() -> Bus:
        bus = make_bus([])
        await bus.start()
        return bus

    bus = asyncio.run(forget())
    assert not bus.statistics().connected
    with pytest.raises(BusClosedError):
        bus.publish("key")


class Bad:
    def notify(self, key: Hashable, limit: int | None = None) -> None:
        raise asyncio.CancelledError  # as a check that ends an operation with one

    def notify_all(self) -> None:
        raise ZeroDivisionError


async def test_target_that_raises_harms_only_itself(make_bus: Maker, reported: list[dict[str, Any]]) -> None:
    good = Recorder()
    async with make_bus([Bad(), good, good]) as bus, make_bus([]) as other:
        for each in (bus, other):
            each.publish("key")
            each.publish("later")
        await until(lambda: good.keys == ["key", "later"] * 2)
        assert good.everything == 1
        assert (bus.statistics().connected, bus.statistics().gaps) == (True, 0)
    kinds = [type(context["exception"]) for context in reported]
    assert kinds == [ZeroDivisionError, *[asyncio.CancelledError] * 4]


async def test_observers_are_told_once_of_each_life_of_a_bus(make_bus: Maker) -> None:
    told = Told()
    bus = make_bus([], observers=[told])
    for _ in range(2):
        async with bus:
            await bus.start()
        await bus.aclose()
    assert told.what == ["opened", "closed"] * 2


async def test_target_added_late_is_told_until_removed(make_bus: Maker) -> None:
    there = Recorder()
    async with make_bus([]) as one, make_bus([]) as other:
        other.add(there)
        one.publish("a")
        await until(lambda: there.keys == ["a"])
        other.remove(there)
        one.publish("b")
        await asyncio.sleep(0.01)
        assert there.keys == ["a"]


async def test_bus_refuses_targets_that_are_none(make_bus: Maker) -> None:
    with pytest.raises(TypeError, match=r"iterable of Purgatory or LongPolling instances, got <Purgatory .*; pass \["):
        make_bus(Purgatory())
    with pytest.raises(TypeError, match=r"must have a method notify\(\), as a Purgatory has, got .polls"):
        make_bus(["polls"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
async def test_observers_are_not_told_by_the_child_of_a_fork(make_bus: Maker) -> None:
    told = Told()

    def close() -> list[str]:
        with suppress(StopIteration):
            bus.aclose().send(None)
        return told.what

    async with make_bus([], observers=[told]) as bus:
        assert await said_by_child(close) == "['opened']"
    assert told.what == ["opened", "closed"]


@pytest.mark.parametrize("error", [LookupError("broken"), asyncio.CancelledError()], ids=["raises", "cancels"])
async def test_observer_that_raises_harms_nobody(
    make_bus: Maker, reported: list[dict[str, Any]], error: BaseException
) -> None:
    broken, told = Told(error), Told()
    async with make_bus([], observers=[broken, told]):
        pass
    assert told.what == broken.what == ["opened", "closed"]
    assert [context["exception"] for context in reported] == [error] * 2


def test_bus_refuses_what_is_no_observer(make_bus: Maker) -> None:
    with pytest.raises(TypeError, match="observers must be instances of Observer, got 7"):
        make_bus([], observers=[7])


@pytest.mark.parametrize("name", ["", "x" * 64, "\ud800", "\u00e4", 7])
def test_bus_refuses_a_name_that_is_no_channel(make_bus: Maker, name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name must be"):
        make_bus([], name=name)
