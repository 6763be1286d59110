"""A call from a wrong thread raises an error with the remedy, and changes nothing, also without debug mode (I15)."""

from __future__ import annotations

import asyncio
import threading

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


async def test_wrong_thread_with_a_loop_of_its_own_is_refused(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["key"])

    async def complete() -> None:
        op.force_complete()

    with pytest.raises(RuntimeError, match=REMEDY):
        await asyncio.to_thread(asyncio.run, complete())
    assert op.outcome is None


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
