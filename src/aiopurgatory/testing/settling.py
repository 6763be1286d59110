"""Waiting until no task of the event loop moves any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..purgatory import Purgatory

#: Loop iterations in a row without work for a clock task. Callbacks that schedule callbacks cannot be seen: these
#: iterations are for them.
QUIET_ITERATIONS = 10
#: Rounds of these at most: a task that never waits, such as ``while not ready: await sleep(0)``, would keep on moving.
ROUNDS = 100


async def settle(is_idle: Callable[[], bool]) -> None:
    """Run the loop until *is_idle* and no other task can go on by itself."""
    for _ in range(ROUNDS):
        quiet = 0
        while quiet < QUIET_ITERATIONS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if is_idle() else 0
        current = asyncio.current_task()
        if not any(_can_run(task) for task in asyncio.all_tasks() if task is not current):
            return


def _can_run(task: asyncio.Task[object]) -> bool:
    """Is *task* in the loop's queue: not started, after sleep(0), or woken?"""
    # asyncio tells this nowhere else; anyio's wait_all_tasks_blocked() reads the same. A blocked task's waiter is not
    # done. A task of another kind, from a task factory, counts as blocked.
    waiter = getattr(task, "_fut_waiter", task)
    return waiter is None or (waiter is not task and waiter.done())


async def until_pending(purgatory: Purgatory, count: int = 1, *, timeout: float = 5.0) -> None:
    """Wait in real time until at least *count* operations of *purgatory* are pending.

    For requests on their way through a thread or a socket, which ``ManualClock.settle()`` cannot see:

        with TestClient(app) as client, ThreadPoolExecutor() as pool:
            poll = pool.submit(client.get, "/messages")
            client.portal.call(until_pending, purgatory)
            client.portal.call(clock.advance, 30.0)
            assert poll.result().status_code == 204

    Args: timeout: seconds of real time.
    Raises: TimeoutError: fewer were pending when *timeout* was over.
    """
    try:
        async with asyncio.timeout(timeout):
            while purgatory.num_delayed < count:  # noqa: ASYNC110 nothing tells of a new operation
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError(
            f"{purgatory!r} has {purgatory.num_delayed} of {count} operations after {timeout} s"
        ) from None
