"""close() and aclose() from hooks, in the middle of work and after the loop: everything ends and is released (I13)."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest

from aiopurgatory import Observer, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import CALLS, Boom, Interrupt, Op, turns


def begin_a_purge(purgatory: Purgatory, ops: list[Op]) -> None:
    for _ in range(30):  # more than purge_interval: a sweep begins
        ops.append(purgatory.watch(Op(60.0), ["shared", "swept"]))
        ops[-1].force_complete()
    purgatory.notify("shared")


LEFT: dict[str, Callable[[Purgatory, list[Op]], object]] = {
    "pending": lambda purgatory, ops: None,
    "some ended": lambda purgatory, ops: [op.force_complete() for op in ops[::2]],
    "in a check": lambda purgatory, ops: purgatory.notify("shared"),
    "in a purge": begin_a_purge,
    "failed and not reported": lambda purgatory, ops: [(op.fail(Boom()), op.exception()) for op in ops],
    "rescheduled": lambda purgatory, ops: [purgatory.reschedule(op, timeout) for op in ops for timeout in (1e6, 0.5)],
}


@pytest.mark.parametrize("purge_interval", [0, 20])
@pytest.mark.parametrize("after_turns", [0, 3, 8])
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.usefixtures("without_gc")
async def test_close_keeps_no_op_alive(clock: ManualClock, left: str, after_turns: int, purge_interval: int) -> None:
    async def use() -> list[weakref.ref[Op]]:
        ops = [purgatory.watch(Op(60.0), ["shared", number]) for number in range(12)]
        LEFT[left](purgatory, ops)
        refs = [weakref.ref(op) for op in ops]
        await turns(after_turns)
        purgatory.close()
        return refs

    purgatory = Purgatory(clock=clock, turn_budget=1e-9, purge_interval=purge_interval)
    await purgatory.start()
    await turns(3)
    refs = await use()
    await turns(3)
    assert [ref() for ref in refs if ref() is not None] == []
    assert (purgatory.watched_entries, purgatory.statistics().keys) == (0, 0)
    check_invariants(purgatory)


ON_A_CLOSED_LOOP = ["force_complete", "fail", "cancel", "check_and_complete", "check_all", "cancel_for_key"]
ON_A_CLOSED_LOOP += ["expire_all", "close"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("name", ON_A_CLOSED_LOOP)
def test_end_after_its_loop_was_closed_is_quiet(
    new_loop: Callable[[], asyncio.AbstractEventLoop], name: str, awaited: bool
) -> None:
    loop = new_loop()
    loop.set_exception_handler(lambda *_: None)  # of tasks that were destroyed
    purgatory = Purgatory(clock=ManualClock())
    op = Op(60.0)

    async def begin() -> None:
        await purgatory.start()
        await turns(3)
        purgatory.watch(op, ["key"])
        if awaited:
            tasks.append(asyncio.create_task(wait(op)))
        await turns(1)

    async def wait(op: Op) -> None:
        with suppress(BaseException):
            await op

    tasks: list[asyncio.Task[None]] = []
    loop.run_until_complete(begin())
    loop.close()
    op.ready = True
    CALLS[name](purgatory, op)
    assert op.done()
    assert purgatory.num_delayed == 0
    purgatory.notify("key")
    purgatory.notify_threadsafe("key")
    purgatory.close()
    purgatory.close()
    check_invariants(purgatory)
    tasks.clear()
    gc.collect()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("event", "hook"),
    [
        *((event, hook) for event in ("soon", "check", "expiry") for hook in ("try_complete", "on_complete")),
        ("expiry", "on_expiration"),
    ],
)
async def test_aclose_begun_in_a_hook_ends(clock: ManualClock, event: str, hook: str) -> None:
    """A hook closes the purgatory, and starts a task that awaits aclose(). Some hooks run in the clock task."""
    closing: list[asyncio.Task[None]] = []

    def close(op: Op) -> None:
        if op.tries > 2:
            closing.append(asyncio.create_task(purgatory.aclose()))
            purgatory.close()

    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    op = Op(1.0)
    op.hooks[hook] = close
    purgatory.watch(op, ["key"])
    other = purgatory.watch(Op(1.0), ["key"])
    op.ready = event != "expiry"
    if event == "soon":
        purgatory.notify("key")
    elif event == "check":
        purgatory.check_and_complete("key")
    await clock.advance(1.0)
    (task,) = closing
    await asyncio.wait_for(task, 5.0)
    assert (op.done(), other.done(), purgatory.num_delayed) == (True, True, 0)
    assert [task for task in asyncio.all_tasks() if "clock" in task.get_name()] == []
    check_invariants(purgatory)


async def test_aclose_in_the_clock_task_does_not_await_itself(clock: ManualClock) -> None:
    """A hook in the clock task runs the coroutine aclose() by hand."""
    waits: list[str] = []

    def close_by_hand(op: Op) -> None:
        with suppress(StopIteration):
            purgatory.aclose().send(None)
            waits.append("for itself")

    purgatory = Purgatory(clock=clock, turn_budget=60.0)
    await purgatory.start()
    op = purgatory.watch(Op(60.0, on_complete=close_by_hand), ["key"])
    op.ready = True
    purgatory.notify("key")
    await clock.advance(0.0)
    assert (op.done(), waits) == (True, [])
    await purgatory.aclose()


class Recorded(Op):
    """Notes its end in *ended*."""

    def __init__(self, number: int, ended: list[int]) -> None:
        super().__init__(60.0)
        self.number = number
        self.ended = ended

    def on_failure(self, exc: BaseException) -> None:
        assert isinstance(exc, PurgatoryClosedError)
        self.ended.append(self.number)


async def many_waiting(
    clock: ManualClock, count: int, *observers: Observer
) -> tuple[Purgatory, list[Recorded], list[int]]:
    """A purgatory that ends an operation a turn."""
    purgatory = Purgatory(clock=clock, turn_budget=1e-9, observers=observers)
    await purgatory.start()
    ended: list[int] = []
    return purgatory, [purgatory.watch(Recorded(n, ended), ["shared", n]) for n in range(count)], ended


async def test_aclose_of_many_ends_them_in_turns_in_order(clock: ManualClock) -> None:
    purgatory, ops, ended = await many_waiting(clock, 20)
    closing = asyncio.create_task(purgatory.aclose())
    await turns(5)
    assert 0 < len(ended) < 10
    with pytest.raises(PurgatoryClosedError):
        purgatory.watch(Op(1.0), ["shared"])
    ops[15].ready = True
    assert purgatory.check_and_complete("shared") == 0
    purgatory.notify("shared")
    assert purgatory.reschedule(ops[14], 5.0)
    ops[19].cancel()
    await closing
    assert ended == list(range(19))
    assert ops[19].cancelled()
    check_invariants(purgatory)
    assert purgatory.num_delayed == purgatory.watched_entries == 0


@pytest.mark.parametrize("how", ["close", "cancel", "aclose", "start"])
async def test_aclose_of_many_interrupted_ends_all(clock: ManualClock, how: str) -> None:
    closed: list[object] = []

    class Seeing(Observer):
        def closed(self, what: object) -> None:
            closed.append(what)

    purgatory, _, ended = await many_waiting(clock, 20, Seeing())
    closing = asyncio.create_task(purgatory.aclose())
    await turns(5)
    assert len(ended) < 10
    if how == "close":
        purgatory.close()
    elif how == "cancel":
        closing.cancel()
    else:
        await (purgatory.aclose() if how == "aclose" else purgatory.start())
    await asyncio.wait([closing])
    assert ended == list(range(20))
    assert closed == [purgatory]
    if how == "start":
        op = purgatory.watch(Op(60.0), ["shared"])
        await turns(5)
        assert not op.done()
        await purgatory.aclose()
    check_invariants(purgatory)


async def test_aclose_of_many_a_hook_interrupts_ends_all(clock: ManualClock) -> None:
    class Interrupts(Op):
        def on_failure(self, exc: BaseException) -> None:
            raise Interrupt

    purgatory, ops, ended = await many_waiting(clock, 3)
    purgatory.watch(Interrupts(60.0), ["shared"])
    ops.append(purgatory.watch(Recorded(4, ended), ["shared"]))
    with pytest.raises(Interrupt):
        await purgatory.aclose()
    assert ended == [0, 1, 2, 4]
    check_invariants(purgatory)
