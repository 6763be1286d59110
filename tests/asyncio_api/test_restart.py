"""A closed purgatory can be started again, in the same event loop or in another one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from bus.waits import Told  # type: ignore[import-not-found]

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import FailingClock, Op, clock_tasks, turns

NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def live(purgatory: Purgatory) -> list[str]:
    """One life of *purgatory*: an operation completes, one expires, and one is pending when it closes."""
    async with purgatory:
        completed, expired, left = (purgatory.watch(Op(timeout), ["key"]) for timeout in (60.0, 0.0, None))
        completed.ready = True
        assert purgatory.check_and_complete("key") == 1
        seen = [await completed, await expired]
        check_invariants(purgatory)
    with pytest.raises(PurgatoryClosedError):
        await left
    check_invariants(purgatory)
    return seen


# started again


def test_start_again_in_two_loops_works(new_loop: NewLoop) -> None:
    told = Told()
    purgatory = Purgatory("again", observers=[told])
    for life in (1, 2):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(live(purgatory)) == ["result", "late"]
        stats = purgatory.statistics()
        assert (stats.completed, stats.expired, stats.failed) == (life, life, life)
        assert (stats.pending, stats.watched_entries) == (0, 0)
    assert told.what == ["opened", "closed"] * 2


async def test_start_again_at_once_outlives_the_old_clock_task(clock: ManualClock) -> None:
    """Nothing awaited in between: the first clock task ends only after the second life has begun."""
    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    await turns(2)
    first = purgatory.watch(Op(1.0), ["key"])
    purgatory.close()
    await purgatory.start()
    second = purgatory.watch(Op(1.0), ["key"])
    await turns(5)
    assert isinstance(first.exception(), PurgatoryClosedError)
    assert (purgatory.is_open, second.outcome, len(clock_tasks())) == (True, None, 1)
    await clock.advance(1.0)
    assert second.expired
    await purgatory.aclose()
    assert clock_tasks() == []


@pytest.mark.parametrize("first_life", ["closed before it began", "clock task cancelled"])
async def test_start_after_an_early_end_works(clock: ManualClock, first_life: str) -> None:
    purgatory = Purgatory(clock=clock)
    if first_life == "clock task cancelled":
        await purgatory.start()
        (task,) = clock_tasks()
        task.cancel()
        await asyncio.wait([task])
        await turns(1)
    else:
        purgatory.close()
    assert not purgatory.is_open
    async with purgatory:
        op = purgatory.watch(Op(1.0), ["key"])
        await clock.advance(1.0)
        assert op.expired


@pytest.mark.usefixtures("leaves_tasks")
@pytest.mark.parametrize("is_closed_first", [True, False])
def test_start_again_after_its_loop_vanished_works(new_loop: NewLoop, is_closed_first: bool) -> None:
    """Its first loop was closed and its tasks were never told: a new life, perhaps after aclose() in another loop."""
    told = Told()
    purgatory = Purgatory(observers=[told])
    loop = new_loop()

    async def begin() -> Op:
        await purgatory.start()
        await turns(2)
        return purgatory.watch(Op(60.0), ["key"])

    left = loop.run_until_complete(begin())
    purgatory.notify_threadsafe("key")  # the loop will never run it
    loop.close()

    async def again() -> list[str]:
        if is_closed_first:
            await purgatory.aclose()
            assert isinstance(left.exception(), PurgatoryClosedError)
        return await live(purgatory)

    assert asyncio.run(again()) == ["result", "late"]
    assert isinstance(left.exception(), PurgatoryClosedError)
    assert told.what == ["opened", "closed"] * 2
    assert purgatory.statistics().failed == 2

    async def threadsafe() -> str:
        async with purgatory:
            op = purgatory.watch(Op(60.0), ["key"])
            op.ready = True
            await asyncio.to_thread(purgatory.notify_threadsafe, "key")
            return await asyncio.wait_for(op, 5.0)

    assert asyncio.run(threadsafe()) == "result"


async def test_start_again_begins_empty(clock: ManualClock) -> None:
    """Marks and stale entries of the first life mean nothing in the second."""
    purgatory = Purgatory(clock=clock, purge_interval=100, max_pending=1)
    async with purgatory:
        purgatory.watch(Op(60.0), ["a", "b", "c"]).force_complete()
        purgatory.watch(Op(60.0), ["key"])
        purgatory.notify("key")
        purgatory.notify_threadsafe("key")
    async with purgatory:
        assert (purgatory.watched_entries, purgatory.num_delayed) == (0, 0)
        tried: list[int] = []

        class Counting(Op):
            def try_complete(self) -> bool:
                tried.append(1)
                return False

        purgatory.watch(Counting(60.0), ["key"])  # max_pending has room
        await turns(10)
        assert len(tried) == 2
        check_invariants(purgatory)


async def test_start_again_makes_a_timer_that_counts_on(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock, tick=0.002, wheel_size=10)
    for life in (1, 2):
        async with purgatory:
            purgatory.watch(Op(0.050), ["gone"]).cancel()  # its bucket stays
            op = purgatory.watch(Op(0.050), ["key"])
            await clock.advance(0.048)
            assert not op.done()
            await clock.advance(0.002)
            known = purgatory.statistics()
            assert (op.expired, known.cascaded, known.pending_by_level) == (True, life, (0, 0))


def test_start_again_keeps_no_first_loop_alive() -> None:
    async def begin() -> weakref.ref[object]:
        async with purgatory:
            op = purgatory.watch(Op(60.0), ["key"])
            op.force_complete()
            return weakref.ref(asyncio.get_running_loop())

    purgatory = Purgatory()
    first = asyncio.run(begin())
    asyncio.run(begin())
    gc.collect()
    assert first() is None


# a start that fails


@pytest.mark.parametrize("is_first", [True, False])
async def test_start_failed_by_its_clock_can_be_repeated(is_first: bool) -> None:
    clock, told = FailingClock(), Told()
    purgatory = Purgatory(clock=clock, observers=[told])
    if not is_first:
        clock.broken = False
        await purgatory.start()
        await purgatory.aclose()
        clock.broken = True
    for _ in range(2):
        with pytest.raises(OSError, match="no time"):
            await purgatory.start()
    clock.broken = False
    assert not purgatory.is_open
    assert clock_tasks() == []
    op = Op(1.0)
    with pytest.raises((RuntimeError, PurgatoryClosedError)):
        purgatory.watch(op, ["key"])
    async with purgatory:
        purgatory.watch(op, ["key"])
        await clock.advance(1.0)
    assert told.what == ["opened", "closed"] * (len(told.what) // 2)
    assert op.expired
