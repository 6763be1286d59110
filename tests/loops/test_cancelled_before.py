"""The end of an operation interrupts a read whose task is already being cancelled: both must be counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError

Wait = Callable[[Purgatory], Awaitable[object]]
End = Callable[[Purgatory], object]


class LeaderLostError(Exception):
    """The argument of fail_for_key()."""


async def never_read(since: object = None) -> None:
    await asyncio.Event().wait()


async def follow(purgatory: Purgatory) -> str:
    async for _ in purgatory.follow(["key"], never_read):
        pass
    return "closed"


async def wait_for(purgatory: Purgatory) -> str:
    with suppress(PurgatoryClosedError):
        await purgatory.wait_for(never_read, ["key"], timeout=None)
    return "closed"


@pytest.fixture(params=[follow, wait_for])
def wait(request: pytest.FixtureRequest) -> Wait:
    """Something that awaits a read, and returns "closed" after close()."""
    wait: Wait = request.param
    return wait


@pytest.fixture(params=["close", "fail_for_key"])
def end(request: pytest.FixtureRequest) -> End:
    if request.param == "close":
        return Purgatory.close
    return lambda purgatory: purgatory.fail_for_key("key", LeaderLostError())


async def ended(wait: Wait, purgatory: Purgatory, end: End) -> object:
    """Return how *wait* ended when *end* was called during its read."""
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, end, purgatory)
    try:
        return await wait(purgatory)
    except LeaderLostError:
        return "failed"


def expected(end: End) -> str:
    return "closed" if end is Purgatory.close else "failed"


async def test_read_in_a_shielded_clean_up_ends(purgatory: Purgatory, wait: Wait, end: End) -> None:
    found = None
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep(1)
        finally:
            with anyio.CancelScope(shield=True):
                found = await ended(wait, purgatory, end)
    task = asyncio.current_task()
    assert task is not None
    assert (found, scope.cancelled_caught, task.cancelling()) == (expected(end), True, 0)


async def test_read_after_a_swallowed_cancellation_ends(purgatory: Purgatory, wait: Wait, end: End) -> None:
    async def main() -> object:
        with suppress(asyncio.CancelledError):  # as many libraries do: without uncancel()
            await asyncio.Event().wait()
        return await ended(wait, purgatory, end)

    task = asyncio.create_task(main())
    await asyncio.sleep(0)
    task.cancel()
    assert (await task, task.cancelling()) == (expected(end), 1)


@pytest.mark.parametrize("is_first", [False, True])
async def test_scope_and_end_in_one_iteration_leave_nothing(
    purgatory: Purgatory, wait: Wait, end: End, is_first: bool
) -> None:
    loop = asyncio.get_running_loop()

    def both() -> None:
        calls: list[Callable[[], object]] = [scope.cancel, lambda: end(purgatory)]
        for call in calls if is_first else reversed(calls):
            call()

    with anyio.CancelScope() as scope:
        loop.call_soon(loop.call_soon, both)
        with suppress(LeaderLostError):
            await wait(purgatory)
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_cancelled_from_outside_and_closed_is_cancelled(purgatory: Purgatory, wait: Wait, end: End) -> None:
    """The control: somebody's own cancellation is passed on."""
    task = asyncio.ensure_future(wait(purgatory))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    end(purgatory)
    await asyncio.wait([task])
    assert task.cancelled()
