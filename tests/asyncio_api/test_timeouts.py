"""purgatory.timeout(), beyond CPython's own tests of asyncio.timeout() (test_timeouts_cpython)."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from decimal import Decimal

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import CountingClock, turns


async def sleep_within(purgatory: Purgatory, seconds: float | None) -> None:
    async with purgatory.timeout(seconds):
        await asyncio.Event().wait()


async def started(purgatory: Purgatory, seconds: float | None) -> asyncio.Task[None]:
    task = asyncio.create_task(sleep_within(purgatory, seconds))
    await asyncio.sleep(0)
    return task


async def cancelled(purgatory: Purgatory) -> asyncio.Task[None]:
    task = await started(purgatory, 30.0)
    task.cancel()
    await asyncio.wait([task])
    return task


async def test_timeout_after_the_clock_was_set_back_still_comes() -> None:
    clock = CountingClock()
    async with Purgatory(clock=clock) as purgatory:
        tasks = [await started(purgatory, 1.0)]
        await clock.manual.advance(1.0)
        clock.manual = ManualClock(0.5)
        tasks.append(await started(purgatory, 0.1))
        check_invariants(purgatory)
        await clock.manual.advance(0.6)
        assert all(task.done() and isinstance(task.exception(), TimeoutError) for task in tasks)


async def test_block_left_in_time_leaves_nothing_behind(purgatory: Purgatory) -> None:
    async with purgatory.timeout(30.0) as timeout:
        assert purgatory.statistics().timeouts == 1
        check_invariants(purgatory)
    ended = weakref.ref(await cancelled(purgatory))
    gc.collect()
    assert not timeout.expired()
    assert purgatory.statistics().timeouts == 0
    assert ended() is None
    check_invariants(purgatory)


async def test_close_ends_blocks_with_purgatory_closed_error() -> None:
    purgatory = Purgatory("fetch")
    await purgatory.start()
    task = await started(purgatory, 30.0)
    purgatory.close()
    with pytest.raises(PurgatoryClosedError, match="purgatory 'fetch' was closed"):
        await task
    assert purgatory.statistics().timeouts == 0
    await purgatory.start()  # and its timer is as good as new
    with pytest.raises(TimeoutError):
        await sleep_within(purgatory, 0.001)
    await purgatory.aclose()


@pytest.mark.parametrize("is_reading", [False, True])
@pytest.mark.parametrize("blocks", [1, 2])
async def test_close_ends_a_follow_in_a_block_quietly(purgatory: Purgatory, is_reading: bool, blocks: int) -> None:
    async def read(since: object) -> None:
        if is_reading:
            await asyncio.Event().wait()

    async def follow(blocks: int) -> int:
        if blocks > 0:
            async with purgatory.timeout(30.0):
                await follow(blocks - 1)
        else:
            async for _ in purgatory.follow(["key"], read):
                pass
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    following = asyncio.create_task(follow(blocks))
    await turns(3)
    purgatory.close()
    assert await following == 0
    check_invariants(purgatory)


async def test_close_ends_a_block_that_does_more_than_follow(purgatory: Purgatory) -> None:
    """Its deadline would never come."""

    async def read(since: object) -> tuple[int, int]:
        return 1, 1

    async def follow() -> None:
        async with purgatory.timeout(30.0):
            async for _ in purgatory.follow(["key"], read):
                await asyncio.Event().wait()

    following = asyncio.create_task(follow())
    await turns(3)
    purgatory.close()
    with pytest.raises(PurgatoryClosedError, match="purgatory 'test' was closed"):
        await following


async def test_close_in_its_own_block_cancels_no_later_await(purgatory: Purgatory) -> None:
    task = asyncio.current_task()
    async with purgatory.timeout(30.0):
        purgatory.close()
    await turns(3)
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_close_in_its_own_block_ends_the_next_await(purgatory: Purgatory, is_restarted: bool) -> None:
    task = asyncio.current_task()

    async def close_and_wait() -> None:
        async with purgatory.timeout(30.0) as block:
            purgatory.close()
            if is_restarted:
                await purgatory.start()
                block.reschedule(block.when())
            else:
                with pytest.raises(PurgatoryClosedError):
                    block.reschedule(block.when())
            await asyncio.Event().wait()

    with pytest.raises(PurgatoryClosedError, match="purgatory 'test' was closed"):
        await close_and_wait()
    assert task is not None
    assert (task.cancelling(), purgatory.statistics().timeouts) == (0, 0)
    check_invariants(purgatory)


async def test_close_in_an_inner_block_ends_the_outer_await(purgatory: Purgatory) -> None:
    async def nested() -> None:
        async with purgatory.timeout(30.0):
            async with purgatory.timeout(20.0):
                purgatory.close()
            await asyncio.Event().wait()

    with pytest.raises(PurgatoryClosedError, match="purgatory 'test' was closed"):
        await nested()


async def test_block_of_a_closed_purgatory_is_refused(purgatory: Purgatory) -> None:
    purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await sleep_within(purgatory, 30.0)


@pytest.mark.parametrize("make", [Purgatory.timeout, Purgatory.timeout_at])
async def test_timeout_before_the_first_start_is_refused(
    make: Callable[[Purgatory, float | None], AbstractAsyncContextManager[object]],
) -> None:
    purgatory = Purgatory("fetch")
    for seconds in (5.0, 0.0, None):
        with pytest.raises(RuntimeError, match=r"^purgatory 'fetch' is not started; use 'async with' "):
            make(purgatory, seconds)
    async with purgatory, make(purgatory, None):
        await asyncio.sleep(0)


async def test_expire_all_and_max_pending_leave_blocks_alone() -> None:
    async with Purgatory(max_pending=1) as purgatory:
        blocks = [await started(purgatory, 30.0) for _ in range(3)]
        assert purgatory.expire_all() == 0
        assert purgatory.num_delayed == 0
        assert not any(block.done() for block in blocks)
        for block in blocks:
            block.cancel()
        await asyncio.gather(*blocks, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_reschedule_to_none_and_back(purgatory: Purgatory, clock: ManualClock, seconds: float) -> None:
    async with purgatory.timeout(seconds) as timeout:
        timeout.reschedule(None)
        await clock.advance(100.0)
        assert timeout.when() is None
        assert purgatory.statistics().timeouts == 0
        timeout.reschedule(clock.time() + 5.0)
        assert timeout.when() == 105.0
        await clock.advance(4.0)
        assert not timeout.expired()


async def test_deadline_may_be_any_number(purgatory: Purgatory) -> None:
    assert purgatory.timeout_at(Decimal("105.5")).when() == 105.5


async def test_await_of_a_timeout_names_the_remedy(purgatory: Purgatory) -> None:
    with pytest.raises(TypeError, match="async with"):
        await purgatory.timeout(1.0)


async def test_timeout_stands_behind_each_error_of_a_group(purgatory: Purgatory) -> None:
    """Each was raised during the cancellation, of which the timeout was the cause."""
    errors: list[ValueError] = []

    async def clean_up_badly(purgatory: Purgatory) -> None:
        async with purgatory.timeout(0.0):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                for _ in range(2):
                    try:
                        raise ValueError
                    except ValueError as exc:
                        errors.append(exc)
                raise ExceptionGroup("both", errors) from None

    with pytest.raises(ExceptionGroup):
        await clean_up_badly(purgatory)
    assert [type(exc.__context__) for exc in errors] == [TimeoutError] * 2
    assert all(isinstance(exc.__context__.__cause__, asyncio.CancelledError) for exc in errors if exc.__context__)
