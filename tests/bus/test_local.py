"""LocalBus: threads, each with an event loop and a purgatory of its own, joined without a server."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Hashable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.bus import BusClosedError, LocalBus
from aiopurgatory.testing import check_invariants

from .waits import NewLoop, Recorder, Told, said_by_child, until

T = TypeVar("T")


class Side:
    """A thread with a loop, a purgatory, a recorder and a bus of its own."""

    def __init__(self, new_loop: NewLoop) -> None:
        self.loop = new_loop()
        self.purgatory = Purgatory()
        self.heard = Recorder()
        self.bus = LocalBus([self.purgatory, self.heard])
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.run(self.purgatory.start())
        self.run(self.bus.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def publish(self, *keys: Hashable) -> None:
        for key in keys:
            self.loop.call_soon_threadsafe(self.bus.publish, key)
        self.run(asyncio.sleep(0))

    def until_heard(self, count: int) -> None:
        eventually(lambda: len(self.heard.keys) >= count)

    def die(self) -> None:
        """End the thread and close the loop, without closing the bus."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.run(self.bus.aclose())
            self.run(self.purgatory.aclose())
            check_invariants(self.purgatory)
            self.die()


@pytest.fixture
def make_side(new_loop: NewLoop) -> Iterator[Callable[[], Side]]:
    """Make a side on one kind of loop."""
    with ExitStack() as stack:

        def make(new_loop: NewLoop = new_loop) -> Side:
            side = Side(new_loop)
            stack.callback(side.close)
            return side

        yield make


def eventually(condition: Callable[[], object]) -> None:
    asyncio.run(until(condition))


def test_ping_pong_between_threads_loses_no_event(make_side: Callable[[], Side]) -> None:
    """One lost wake-up would stop both for 20 s."""
    rounds, counts = 1000, [0, 0]

    async def play(me: int, side: Side) -> None:
        def has_reached(number: int) -> bool:
            return counts[1 - me] >= number

        for number in range(1, rounds + 1):
            if me == 0:
                counts[0] = number
                side.bus.publish(("turn", 0))
            await side.purgatory.wait_for(partial(has_reached, number), [("turn", 1 - me)], timeout=20.0)
            if me == 1:
                counts[1] = number
                side.bus.publish(("turn", 1))

    sides = [make_side(), make_side()]
    playing = [asyncio.run_coroutine_threadsafe(play(*each), each[1].loop) for each in enumerate(sides)]
    for each in playing:
        each.result(40)
    assert counts == [rounds, rounds]


def test_every_thread_hears_every_key_in_order(make_side: Callable[[], Side]) -> None:
    sides = [make_side() for _ in range(4)]
    keys = [[(me, number) for number in range(1000)] for me in range(4)]
    threads = [threading.Thread(target=side.publish, args=own) for side, own in zip(sides, keys, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for side in sides:
        side.until_heard(4000)
        for me, own in enumerate(keys):
            assert [key for key in side.heard.keys if isinstance(key, tuple) and key[0] == me] == own
        found = side.bus.statistics()
        assert (found.published, found.received, found.gaps, found.error) == (1000, 3000, 0, None)


@pytest.mark.usefixtures("leaves_tasks")
def test_loop_that_died_breaks_no_other_and_is_freed(make_side: Callable[[], Side]) -> None:
    one, dead, other = make_side(), make_side(), make_side()
    heard = weakref.ref(dead.heard)
    dead.die()
    one.publish("key")
    eventually(lambda: other.heard.keys == ["key"])
    assert heard().keys == []  # type: ignore[union-attr]
    found = dead.bus.statistics()
    assert (found.connected, found.since_echo) == (False, None)
    assert "closed without aclose()" in str(found.error)
    with pytest.raises(BusClosedError, match="closed without aclose"):
        dead.bus.publish_threadsafe("key")
    asyncio.run(dead.bus.aclose())
    assert dead.bus.statistics().error is None
    dead.purgatory.close()


def test_bus_forgotten_with_its_loop_is_freed(make_side: Callable[[], Side]) -> None:
    async def forget() -> weakref.ref[Recorder]:
        there = Recorder()
        await LocalBus([there]).start()
        return weakref.ref(there)

    there = asyncio.run(forget())
    one = make_side()
    one.publish("key")
    gc.collect()
    assert there() is None


def test_loop_that_stands_still_gets_everything_later(make_side: Callable[[], Side], new_loop: NewLoop) -> None:
    one, there = make_side(), Recorder()
    with asyncio.Runner(loop_factory=new_loop) as still:
        bus = LocalBus([there])
        still.run(bus.start())
        before = there.everything
        one.publish(*range(30_000))
        assert (there.keys, there.everything) == ([], before)
        still.run(until(lambda: there.everything > before))
        assert there.everything == before + 1
        assert there.keys == list(range(10_000))
        one.publish("next")
        still.run(until(lambda: "next" in there.keys))
        still.run(bus.aclose())


def test_loop_without_targets_is_not_woken(make_side: Callable[[], Side], monkeypatch: pytest.MonkeyPatch) -> None:
    one = make_side()
    with asyncio.Runner() as still:
        woken: list[object] = []
        monkeypatch.setattr(still.get_loop(), "call_soon_threadsafe", lambda *args: woken.append(args))
        for bus, count in ((LocalBus(), 0), (LocalBus([Recorder()]), 1)):
            still.run(bus.start())
            one.publish("key")
            assert len(woken) == count
            still.run(bus.aclose())


def test_key_under_way_to_an_earlier_life_is_dropped(make_side: Callable[[], Side]) -> None:
    one, there = make_side(), Recorder()
    bus = LocalBus([there])
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(bus.start())
        first.get_loop().call_soon(one.publish, "old")  # its wake-up comes in the loop's next iteration
        first.run(bus.aclose())
        second.run(bus.start())
        first.run(asyncio.sleep(0.01))
        assert there.keys == []
        one.publish("new")
        second.run(until(lambda: there.keys == ["new"]))
        second.run(bus.aclose())


async def test_buses_of_other_names_hear_nothing() -> None:
    here, there = Recorder(), Recorder()
    async with LocalBus([here]) as one, LocalBus([there], name="other") as other:
        one.publish("a")
        other.publish("b")
        await asyncio.sleep(0.01)
        assert (here.keys, there.keys) == (["a"], ["b"])
        assert (one.name, other.name) == ("aiopurgatory", "other")
        assert "other" in repr(other)


async def test_publish_only_refuses_targets() -> None:
    async with LocalBus() as bus:
        bus.publish("key")
        with pytest.raises(RuntimeError, match=r"only publishes: make it with targets, such as \[\]"):
            bus.add(Recorder())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
async def test_child_of_a_fork_has_its_own_buses() -> None:
    told, here = Told(), Recorder()

    async def publish() -> list[Hashable]:
        there = Recorder()
        async with LocalBus([there]), LocalBus() as bus:
            bus.publish("child")
            await until(lambda: there.keys)
        return there.keys

    def say() -> tuple[Any, ...]:
        heard = asyncio.new_event_loop().run_until_complete(publish())
        return heard, here.keys, "fork" in str(bus.statistics().error)

    async with LocalBus([here], observers=[told]) as bus:
        assert await said_by_child(say) == "(['child'], [], True)"
        bus.publish("parent")
        assert here.keys == ["parent"]
