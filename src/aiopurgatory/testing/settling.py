"""Waits until no task of the event loop can run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..clock import running_loop
from ..purgatory import Purgatory

#: Loop iterations in a row without work for a clock task: callbacks may schedule callbacks, unseen by this module.
QUIET_ITERATIONS = 10
#: The most rounds of these iterations. A task such as ``while not ready: await sleep(0)`` never stops.
ROUNDS = 100


async def settle(is_idle: Callable[[], bool]) -> None:
    """Run the loop until *is_idle* and no other task can go on by itself."""
    running_loop()
    for _ in range(ROUNDS):
        quiet = 0
        while quiet < QUIET_ITERATIONS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if is_idle() else 0
        current = asyncio.current_task()
        if not any(_can_run(task) for task in asyncio.all_tasks() if task is not current):
            return


def _can_run(task: asyncio.Task[object]) -> bool:
    """Return True if *task* is in the loop's queue: not started, after sleep(0), or woken."""
    # asyncio has no public way to ask; anyio's wait_all_tasks_blocked() reads the same attribute. The waiter of a
    # blocked task is not done. A task of another class, from a task factory, counts as blocked.
    waiter = getattr(task, "_fut_waiter", task)
    return waiter is None or (waiter is not task and waiter.done())


async def until_pending(purgatory: Purgatory, count: int = 1, *, timeout: float = 5.0) -> None:
    """Wait in real time until at least *count* operations of *purgatory* are pending.

    Use it for requests on their way through a thread or a socket, as ``ManualClock.settle()`` cannot see these:

        with TestClient(app) as client, ThreadPoolExecutor() as pool:
            poll = pool.submit(client.get, "/messages")
            client.portal.call(until_pending, purgatory)
            client.portal.call(clock.advance, 30.0)
            assert poll.result().status_code == 204

    Args:
        purgatory: its operations are counted.
        count: the number to wait for; default 1.
        timeout: seconds of real time; default 5.

    Raises: TimeoutError: fewer were pending after *timeout* seconds.
    """
    running_loop()
    try:
        async with asyncio.timeout(timeout):
            while purgatory.num_delayed < count:  # noqa: ASYNC110 nothing reports a new operation
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError(
            f"{purgatory!r} has {purgatory.num_delayed} of {count} pending operations after {timeout} s"
        ) from None
