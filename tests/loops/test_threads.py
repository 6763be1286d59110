"""Other threads: the one call made for them, and the others refused."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock

THREADS = 8
CALLS = 10_000


class Wait(DelayedOperation[None]):
    def __init__(self, ready: Callable[[], bool]) -> None:
        super().__init__(timeout=None)
        self.ready = ready
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready() and self.force_complete()


class Key:
    pass


async def in_threads(call: Callable[[int], object]) -> None:
    """Call *call* in THREADS threads at once, with the number of each."""
    async with asyncio.TaskGroup() as group:
        for number in range(THREADS):
            group.create_task(asyncio.to_thread(call, number))


async def test_threadsafe_eight_threads_lose_no_call(purgatory: Purgatory) -> None:
    happened: set[Hashable] = set()

    def notify(thread: int) -> None:
        for n in range(CALLS):
            happened.add((thread, n))
            purgatory.notify_threadsafe((thread, n))

    def watch(key: Hashable) -> Wait:
        return purgatory.watch(Wait(lambda: key in happened), [key])

    ops = [watch((thread, n)) for thread in range(THREADS) for n in range(CALLS)]
    async with asyncio.timeout(50):
        await in_threads(notify)
        for op in ops:
            await op
    assert purgatory.statistics().completed == THREADS * CALLS


async def test_threadsafe_many_calls_take_few_wakeups(purgatory: Purgatory) -> None:
    calls = [0] * THREADS

    def notify(thread: int) -> None:
        for _ in range(CALLS):
            calls[thread] += 1
            purgatory.notify_threadsafe("hot")

    op = purgatory.watch(Wait(lambda: sum(calls) == THREADS * CALLS), ["hot"])
    async with asyncio.timeout(30):
        await in_threads(notify)
        await op
    # A wake-up of the loop for each call would be a try for each.
    assert op.tries < THREADS * CALLS / 10


async def test_threadsafe_many_keys_come_in_slices(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=0.0005) as purgatory:
        ops = [purgatory.watch(Wait(bool), [number]) for number in range(10_000)]
        tries = [op.tries for op in ops]

        def notify() -> None:
            for number in range(len(ops)):
                purgatory.notify_threadsafe(number)

        thread = threading.Thread(target=notify)
        thread.start()
        thread.join()  # the loop stands still meanwhile
        turns = 0
        while ops[-1].tries == tries[-1]:
            await asyncio.sleep(0)
            turns += 1
            assert turns < 5_000, "a turn for each key"
        assert turns > 5
        assert [op.tries for op in ops] == [before + 1 for before in tries]


@pytest.mark.parametrize("error", [asyncio.CancelledError, TypeError])
async def test_threadsafe_key_that_cannot_be_checked_stops_no_other(
    purgatory: Purgatory, error: type[BaseException], reported: list[dict[str, Any]]
) -> None:
    class Odd:
        def __hash__(self) -> int:
            return hash("watched")

        def __eq__(self, other: object) -> bool:
            raise error

    purgatory.watch(Wait(bool), ["watched"])
    for _ in range(2):
        ready = asyncio.Event()
        op = purgatory.watch(Wait(ready.is_set), ["key"])
        ready.set()
        purgatory.notify_threadsafe(Odd())
        purgatory.notify_threadsafe("key")
        async with asyncio.timeout(5):
            await op
    assert [type(context["exception"]) for context in reported] == [error] * 2


@pytest.mark.parametrize("key", [[], {}, {1}, ([],)], ids=["list", "dict", "set", "tuple"])
@pytest.mark.parametrize("state", ["new", "open", "closed"])
async def test_threadsafe_unhashable_key_fails_in_the_caller(clock: ManualClock, key: Any, state: str) -> None:
    purgatory = Purgatory(clock=clock)
    if state != "new":
        await purgatory.start()
    if state == "closed":
        purgatory.close()
    with pytest.raises(TypeError, match="key must be hashable, got "):
        await asyncio.to_thread(purgatory.notify_threadsafe, key)
    with pytest.raises(TypeError, match="key must be hashable, got "):
        purgatory.notify_threadsafe(key)
    await clock.settle()
    if state == "open":  # later calls still arrive
        ready: list[bool] = []
        op = purgatory.watch(Wait(lambda: bool(ready)), ["key"])
        ready.append(True)
        purgatory.notify_threadsafe("key")
        await clock.settle()
        assert op.done()
    await purgatory.aclose()


async def test_threadsafe_after_close_is_silent_keeps_nothing(purgatory: Purgatory) -> None:
    purgatory.close()
    key = Key()
    await asyncio.to_thread(purgatory.notify_threadsafe, key)
    left = weakref.ref(key)
    del key
    gc.collect()  # the thread's remains
    assert left() is None


def test_loop_that_goes_on_in_another_thread_is_at_home_there() -> None:
    loop = asyncio.new_event_loop()
    purgatory = Purgatory()
    loop.run_until_complete(purgatory.start())

    async def work() -> str:
        purgatory.watch(Wait(bool), ["other"])
        return await purgatory.wait_for(lambda: "value", ["key"], timeout=1.0)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert asyncio.run_coroutine_threadsafe(work(), loop).result(10) == "value"
        with pytest.raises(RuntimeError, match="in another thread"):
            purgatory.check_and_complete("other")
    finally:
        asyncio.run_coroutine_threadsafe(purgatory.aclose(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
