"""Once its user lets go, nothing of an operation is left, without a pass of the garbage collector: it is off here."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import weakref

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.timer import Timer, TimerTask

pytestmark = pytest.mark.usefixtures("without_gc")


class Thing:
    """A key, a payload or a result."""


class Fetch(DelayedOperation[Thing]):
    ready = False
    late_error: Exception | None = None

    def __init__(self) -> None:
        super().__init__(timeout=30.0)
        self.payload = Thing()
        self.granted = Thing()

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> Thing:
        return self.granted

    def on_expiration(self) -> None:
        if self.late_error is not None:
            raise self.late_error


async def wait(ops: list[Fetch]) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await ops.pop()


async def end(how: str, op: Fetch, tasks: list[asyncio.Task[None]], purgatory: Purgatory, clock: ManualClock) -> None:
    key = op.keys[0]
    op.ready = how.startswith("complete")
    match how:
        case "complete" | "complete, then cancel tasks":
            purgatory.check_and_complete(key)
        case "complete soon":
            purgatory.notify(key)
        case "complete threadsafe":
            purgatory.notify_threadsafe(key)
        case "expire":
            await clock.advance(30.0)
        case "expire, raising":
            op.late_error = TimeoutError("late")
            await clock.advance(30.0)
        case "cancel":
            op.cancel()
        case "fail":
            op.fail(ValueError("failed"))
        case "close":
            purgatory.close()
    if how.endswith("cancel tasks"):
        for task in tasks:
            task.cancel()
    await clock.advance(0.0)
    assert op.done()


async def live_and_end(how: str, awaiters: int, purgatory: Purgatory, clock: ManualClock) -> list[weakref.ref[object]]:
    op, key = Fetch(), Thing()
    purgatory.watch(op, [key, "shared"])
    tasks = [asyncio.create_task(wait([op])) for _ in range(awaiters)]
    await asyncio.sleep(0)
    await end(how, op, tasks, purgatory, clock)
    assert all(task.done() for task in tasks)
    return [weakref.ref(thing) for thing in (op, key, op.payload, op.granted)]


ENDS = ["complete", "complete soon", "complete threadsafe", "expire", "expire, raising", "cancel", "fail", "close"]
LEAVING = ["cancel tasks", "complete, then cancel tasks"]


@pytest.mark.parametrize(
    ("how", "awaiters"), [(how, awaiters) for awaiters in (0, 1, 2) for how in ENDS + LEAVING * (awaiters > 0)]
)
async def test_operation_ended_is_gone_without_gc(
    purgatory: Purgatory, clock: ManualClock, how: str, awaiters: int
) -> None:
    refs = await live_and_end(how, awaiters, purgatory, clock)
    assert [ref() for ref in refs if ref() is not None] == []
    assert (purgatory.watched_entries, purgatory.statistics().keys) == (0, 0)


@pytest.mark.parametrize("chain", ["in_a_timer", "in_a_purgatory", "each_holds_the_next", "awaiting_one"])
def test_long_chain_dropped_is_freed(chain: str) -> None:
    # In a process of its own, which is all that a stack overflow may take along.
    subprocess.run([sys.executable, __file__, chain], check=True, timeout=50)


LINKS = 300_000


class Link(DelayedOperation[None]):
    __slots__ = ("after",)

    def __init__(self, after: Link | None = None) -> None:
        super().__init__(timeout=30.0)
        self.after = after

    def try_complete(self) -> bool:
        return False


def in_a_timer() -> object:
    timer = Timer()
    for _ in range(LINKS):
        timer.add(TimerTask(deadline=5))
    return timer


def each_holds_the_next() -> object:
    link = None
    for _ in range(LINKS):
        link = Link(link)
    return link


async def in_a_purgatory() -> object:
    purgatory = Purgatory(clock=ManualClock())
    await purgatory.start()
    for _ in range(LINKS):
        purgatory.watch(Link(), ["key"])
    return purgatory


async def awaiting_one() -> object:
    purgatory = Purgatory(clock=ManualClock())
    await purgatory.start()
    op = purgatory.watch(Link(), ["key"])
    waits = [op.__await__() for _ in range(LINKS)]
    for waiting in waits:
        waiting.send(None)
    return purgatory, waits


def build_and_drop(chain: str) -> None:
    loop = asyncio.new_event_loop()
    built = globals()[chain]()
    held = [loop.run_until_complete(built) if asyncio.iscoroutine(built) else built]
    del built
    loop.close()  # and never closes the purgatory
    held.clear()
    gc.collect()
    assert not any(isinstance(thing, TimerTask) for thing in gc.get_objects())


if __name__ == "__main__":
    build_and_drop(sys.argv[1])
