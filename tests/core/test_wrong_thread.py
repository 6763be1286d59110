"""A call from a wrong thread raises an error with the remedy, and changes nothing, also without debug mode (I15)."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import CALLS, Op, turns

REMEDY = "call_soon_threadsafe|notify_threadsafe"


@pytest.mark.parametrize("name", CALLS)
async def test_wrong_thread_is_refused_with_the_remedy(purgatory: Purgatory, clock: ManualClock, name: str) -> None:
    assert not asyncio.get_running_loop().get_debug()
    op = purgatory.watch(Op(60.0), ["key", "other"])
    op.ready = True
    await clock.advance(0)
    before = purgatory.statistics(), op.tries, op.keys, op.timeout
    with pytest.raises(RuntimeError, match=REMEDY):
        await asyncio.to_thread(CALLS[name], purgatory, op)
    assert (purgatory.statistics(), op.tries, op.keys, op.timeout) == before
    await turns(5)  # nor does it come late
    assert (purgatory.statistics(), op.tries, op.ran, op.outcome) == (before[0], before[1], [], None)
    check_invariants(purgatory)
    assert purgatory.check_and_complete("key") == 1


@pytest.mark.parametrize("name", ["force_complete", "fail", "cancel"])
async def test_wrong_thread_leaves_an_awaiting_task_waiting(purgatory: Purgatory, name: str) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    task = asyncio.create_task(asyncio.wait_for(op, None))
    await turns(1)
    with pytest.raises(RuntimeError, match=REMEDY):
        await asyncio.to_thread(CALLS[name], purgatory, op)
    await turns(3)
    assert not task.done()
    assert op.force_complete()
    assert await task == "result"


async def test_wrong_thread_with_a_loop_of_its_own_is_refused(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["key"])

    async def complete() -> None:
        op.force_complete()

    with pytest.raises(RuntimeError, match=REMEDY):
        await asyncio.to_thread(asyncio.run, complete())
    assert op.outcome is None


async def test_wrong_thread_remedy_works(purgatory: Purgatory) -> None:
    """Each message names another call, and that call does the work of the refused one."""
    checked, cancelled = (purgatory.watch(Op(60.0), [key]) for key in ("a", "b"))
    messages: list[str] = []

    def from_a_thread() -> None:
        calls: list[Callable[[], object]] = [lambda: purgatory.check_and_complete("a"), cancelled.cancel]
        for refused in calls:
            with pytest.raises(RuntimeError) as raised:
                refused()
            messages.append(str(raised.value))
        purgatory.notify_threadsafe("a")
        loop.call_soon_threadsafe(cancelled.cancel)

    loop = asyncio.get_running_loop()
    checked.ready = True
    await asyncio.to_thread(from_a_thread)
    await turns(5)
    assert re.search("notify_threadsafe", messages[0])
    assert re.search("call_soon_threadsafe", messages[1])
    assert (checked.done(), cancelled.cancelled()) == (True, True)


def test_close_from_a_thread_after_the_loop_stopped_works() -> None:
    loop = asyncio.new_event_loop()
    purgatory = Purgatory(clock=ManualClock())
    loop.run_until_complete(purgatory.start())
    op = Op(60.0)

    async def watch() -> None:
        purgatory.watch(op, ["key"])

    loop.run_until_complete(watch())
    thread = threading.Thread(target=purgatory.close)
    thread.start()
    thread.join()
    assert isinstance(op.exception(), PurgatoryClosedError)
    loop.run_until_complete(purgatory.aclose())  # its task may end
    loop.close()
