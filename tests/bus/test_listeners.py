"""Callbacks under keys: the ready-made target of a bus."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Hashable
from random import Random
from typing import Any

import pytest

from aiopurgatory.bus import Listeners
from aiopurgatory.bus.targets import Target
from aiopurgatory.testing import MemoryBus, MemoryServer

from .waits import until


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


@pytest.fixture
def called() -> list[Hashable]:
    return []


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_notify_calls_each_callback_of_the_key(listeners: Listeners, called: list[Hashable]) -> None:
    listeners.add(lambda key: called.append(("one", key)), ["a", "b"])
    listeners.add(lambda key: called.append(("other", key)), ["a"])
    for key in ("a", "b", "c"):
        listeners.notify(key)
    assert called == []  # soon, not now: a callback may do anything
    await turn()
    assert called == [("one", "a"), ("other", "a"), ("one", "b")]


async def test_notify_repeated_is_merged(listeners: Listeners, called: list[Hashable]) -> None:
    listeners.add(called.append, ["a", "b"])
    for key in "abaab":
        listeners.notify(key)
    await turn()
    assert called == ["a", "b"]
    listeners.notify("a")
    await turn()
    assert called == ["a", "b", "a"]


async def test_notify_in_a_callback_calls_again(listeners: Listeners, called: list[Hashable]) -> None:
    def callback(key: Hashable) -> None:
        called.append(key)
        if len(called) < 3:
            listeners.notify("a")

    listeners.add(callback, ["a"])
    listeners.notify("a")
    await turn()
    assert called == ["a"] * 3


async def test_add_keys_twice_count_once(listeners: Listeners, called: list[Hashable]) -> None:
    remove = listeners.add(called.append, iter(["a", "a", "b", "c", "a"]))
    listeners.notify_all()
    await turn()
    assert called == ["a", "b", "c"]
    remove()
    assert len(listeners) == 0


async def test_add_the_same_callback_twice_calls_it_twice(listeners: Listeners, called: list[Hashable]) -> None:
    removes = [listeners.add(called.append, ["a"]) for _ in range(2)]
    listeners.notify("a")
    await turn()
    assert called == ["a", "a"]
    removes[0]()
    listeners.notify("a")
    await turn()
    assert called == ["a", "a", "a"]


async def test_remove_leaves_nothing_and_is_idempotent(listeners: Listeners) -> None:
    class Owner:
        def hear(self, key: Hashable) -> None: ...

    owner = Owner()
    gone = weakref.ref(owner)
    remove = listeners.add(owner.hear, ["a", "b"])
    other = listeners.add(print, ["b"])
    assert repr(listeners) == "<Listeners callbacks=2 keys=2>"
    remove()
    remove()
    assert repr(listeners) == "<Listeners callbacks=1 keys=1>"
    del owner
    gc.collect()
    assert gone() is None  # though its remove() is still there
    other()
    assert (len(listeners), repr(listeners)) == (0, "<Listeners callbacks=0 keys=0>")


async def test_remove_before_the_call_prevents_it(listeners: Listeners, called: list[Hashable]) -> None:
    removes = [listeners.add(lambda key: removes[1](), ["a"]), listeners.add(called.append, ["a", "b"])]
    listeners.notify_all()
    await turn()
    assert called == []


async def test_callback_raising_harms_only_itself(
    listeners: Listeners, called: list[Hashable], reported: list[dict[str, Any]]
) -> None:
    errors: list[BaseException] = [ZeroDivisionError(), asyncio.CancelledError()]

    def fail(key: Hashable) -> None:
        raise errors[len(reported)]

    listeners.add(fail, ["a", "b"])
    listeners.add(called.append, ["a", "b"])
    listeners.notify_all()
    await turn()
    assert called == ["a", "b"]
    assert [context["exception"] for context in reported] == errors
    assert "a listener raised" in reported[0]["message"]


async def test_callback_that_cannot_be_shown_is_followed_by_the_others(
    listeners: Listeners, called: list[Hashable], reported: list[dict[str, Any]]
) -> None:
    class Unshowable:
        def __call__(self, key: Hashable) -> None:
            raise ZeroDivisionError

        def __repr__(self) -> str:
            raise ValueError

    listeners.add(Unshowable(), ["a"])
    listeners.add(called.append, ["a"])
    listeners.notify("a")
    await turn()
    assert called == ["a"]
    (context,) = reported
    assert isinstance(context["exception"], ZeroDivisionError)
    assert context["message"] == "aiopurgatory: a listener raised: <Unshowable>"


def test_callback_interrupted_is_followed_by_the_others(listeners: Listeners, called: list[Hashable]) -> None:
    def interrupt(key: Hashable) -> None:
        raise KeyboardInterrupt

    listeners.add(interrupt, ["a"])
    listeners.add(called.append, ["a"])
    loop = asyncio.new_event_loop()
    loop.call_soon(listeners.notify, "a")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(1))
    loop.run_until_complete(turn())
    loop.close()
    assert called == ["a"]


def test_notify_in_a_later_loop_works(listeners: Listeners, called: list[Hashable]) -> None:
    """Calls that the first loop left undone do not block the second."""
    listeners.add(called.append, ["a"])

    async def notify(turns: int) -> None:
        listeners.notify("a")
        for _ in range(turns):
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    loop.call_soon(listeners.notify, "a")
    loop.run_forever()
    loop.close()
    called.clear()
    asyncio.run(notify(3))
    assert called == ["a"]


async def test_notify_all_many_yields_every_turn_budget(called: list[Hashable]) -> None:
    def slow(key: Hashable) -> None:
        called.append(key)
        time.sleep(0.0005)

    listeners = Listeners(turn_budget=0.002)
    listeners.add(slow, range(100))
    listeners.notify_all()
    longest, last = 0.0, time.perf_counter()
    turns = 0
    while len(called) < 100:
        await asyncio.sleep(0)
        turns += 1
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert turns >= 20
    assert called == list(range(100))


async def test_notify_one_hot_key_yields_too(called: list[Hashable]) -> None:
    listeners = Listeners(turn_budget=0.002)
    for _ in range(40):
        listeners.add(lambda key: time.sleep(0.0005), ["hot"])
    listeners.add(called.append, ["hot"])
    listeners.notify("hot")
    await turn()
    assert called == []
    await until(lambda: called)


async def test_notify_nobody_there_arms_nothing(listeners: Listeners) -> None:
    listeners.notify("nobody's")
    listeners.notify_all()
    assert listeners._loop is None


@pytest.mark.parametrize(
    ("callback", "keys", "kind"),
    [
        (print, "text", TypeError),
        (print, [], ValueError),
        (print, [[]], TypeError),
        (print, 7, TypeError),
        (None, ["a"], TypeError),
        (asyncio.sleep, ["a"], TypeError),
    ],
)
async def test_add_wrong_arguments_leaves_nothing(
    listeners: Listeners, callback: Any, keys: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"callback must|key.* must"):
        listeners.add(callback, keys)
    assert repr(listeners) == "<Listeners callbacks=0 keys=0>"


async def test_add_key_that_cannot_be_compared_leaves_nothing(listeners: Listeners) -> None:
    class Odd:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    listeners.add(print, ["a"])
    with pytest.raises(ZeroDivisionError):
        listeners.add(print, ["b", Odd()])
    assert repr(listeners) == "<Listeners callbacks=1 keys=1>"


async def test_random_adds_and_removes_match_a_naive_model(listeners: Listeners) -> None:
    random, called = Random(7), list[tuple[int, Hashable]]()
    naive: dict[int, tuple[Any, set[int]]] = {}
    for number in range(500):
        keys = {random.randrange(20) for _ in range(random.randint(1, 5))}

        def callback(key: Hashable, number: int = number) -> None:
            called.append((number, key))

        naive[number] = listeners.add(callback, keys), keys
        while random.random() < 0.6 and naive:
            naive.pop(random.choice(list(naive)))[0]()
        key = random.randrange(20)
        listeners.notify(key)
        await turn()
        assert sorted(called) == sorted((number, key) for number, (_, keys) in naive.items() if key in keys)
        called.clear()
    listeners.notify_all()
    await turn()
    assert sorted(called) == sorted((number, key) for number, (_, keys) in naive.items() for key in keys)


async def test_listeners_on_a_bus_hear_other_processes_and_gaps(called: list[Hashable]) -> None:
    server, listeners = MemoryServer(), Listeners()
    assert isinstance(listeners, Target)
    async with MemoryBus(server, []) as one, MemoryBus(server, [listeners]) as other:
        remove = listeners.add(called.append, [("orders", 7)])
        one.publish(("orders", 7))
        one.publish(("orders", 8))
        await until(lambda: called == [("orders", 7)])
        await other.gap()
        await until(lambda: called == [("orders", 7)] * 2)
        remove()
        one.publish(("orders", 7))
        await one.flush()
        await turn()
        assert called == [("orders", 7)] * 2
