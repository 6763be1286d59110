"""Other tasks settle: the manual clock goes on when none can move by itself."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock, until_pending


class Never(DelayedOperation[None]):
    def try_complete(self) -> bool:
        return False


async def hop(times: int, then: asyncio.Event) -> None:
    """Yield *times* to the loop, as a request does in layers of middleware."""
    for _ in range(times):
        await asyncio.sleep(0)
    then.set()


async def test_settle_waits_for_a_task_of_many_steps(clock: ManualClock) -> None:
    done = asyncio.Event()
    task = asyncio.create_task(hop(200, done))
    await clock.settle()
    assert done.is_set()
    assert task.done()
    assert clock.time() == 0.0


@pytest.mark.parametrize("steps", range(1, 25))
async def test_settle_waits_for_a_task_behind_a_shield(clock: ManualClock, steps: int) -> None:
    """Between the end of the inner task and the wake-up of the outer one, only callbacks are due."""

    async def outer() -> None:
        await asyncio.shield(asyncio.create_task(hop(steps, asyncio.Event())))

    task = asyncio.create_task(outer())
    await clock.settle()
    assert task.done()


async def test_advance_settles_between_instants(clock: ManualClock, purgatory: Purgatory) -> None:
    seen: list[float] = []

    async def poll_again() -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await purgatory.wait_for(lambda: False, ["key"], timeout=1.0)
            await hop(50, asyncio.Event())
            seen.append(clock.time())

    task = asyncio.create_task(poll_again())
    await clock.advance(3.0)
    assert seen == [1.0, 2.0, 3.0]
    assert task.done()


async def test_settle_leaves_a_task_that_never_waits(clock: ManualClock) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())
    async with asyncio.timeout(10):
        await clock.settle()
        await clock.advance(1.0)
    assert not task.done()
    task.cancel()


async def test_settle_does_not_wait_for_real_time(clock: ManualClock) -> None:
    task = asyncio.create_task(asyncio.sleep(30.0))
    async with asyncio.timeout(10):
        await clock.settle()
    task.cancel()


async def test_until_pending_waits_for_a_thread(real_purgatory: Purgatory) -> None:
    loop = asyncio.get_running_loop()

    def ask_from_a_thread() -> bool:
        wait = real_purgatory.wait_for(lambda: is_ready, ["key"], timeout=None)
        answer: bool = asyncio.run_coroutine_threadsafe(wait, loop).result(10)
        return answer

    is_ready = False
    asking = asyncio.create_task(asyncio.to_thread(ask_from_a_thread))
    await until_pending(real_purgatory)
    is_ready = True
    assert real_purgatory.check_and_complete("key") == 1
    assert await asking


async def test_until_pending_in_vain_says_how_many(purgatory: Purgatory) -> None:
    with pytest.raises(TimeoutError, match=r"has 0 of 2 pending operations after 0\.01 s"):
        await until_pending(purgatory, 2, timeout=0.01)


async def test_advance_twice_at_once_never_goes_back(clock: ManualClock) -> None:
    seen: list[float] = []

    async def move(seconds: float) -> None:
        await clock.advance(seconds)
        seen.append(clock.time())

    await asyncio.gather(move(10.0), move(5.0))
    assert seen == sorted(seen)
    assert clock.time() == 10.0


@pytest.mark.parametrize("is_closed", [False, True])
def test_advance_in_another_loop_than_its_purgatory_is_refused(is_closed: bool) -> None:
    """As a test does that calls it beside a TestClient, not through its portal: nothing would happen there."""
    clock = ManualClock()
    purgatory = Purgatory(clock=clock)

    async def park() -> None:
        await purgatory.start()
        purgatory.watch(Never(30.0), ["key"])

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(park())
        if is_closed:
            first.run(purgatory.aclose())
            second.run(clock.advance(1.0))
        else:
            with pytest.raises(RuntimeError, match=r"in the loop of purgatory 'default'.*portal\.call"):
                second.run(clock.advance(1.0))
            first.run(clock.advance(1.0))
        assert clock.time() == 1.0
