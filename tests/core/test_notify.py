"""notify(): once per mark, on a later turn, in slices, in order (I8)."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, LeapingClock, Op, raising, taken, turns


async def test_notify_that_closes_the_purgatory_is_counted(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = [purgatory.watch(Op(60.0), ["key"]) for _ in range(3)]
        ops[0].hooks["try_complete"] = lambda _: purgatory.close()
        purgatory.notify("key")
        await turns(5)
        statistics = purgatory.statistics()
        assert (statistics.checks, statistics.checks_without_effect, statistics.failed) == (1, 0, 3)


async def test_notify_marked_while_walked_walks_once_more(purgatory: Purgatory) -> None:
    def mark(op: Op) -> None:
        if op.tries == 3:
            for _ in range(10):
                purgatory.notify("key")

    ops = [purgatory.watch(Op(try_complete=mark), ["key"]) for _ in range(3)]
    purgatory.notify("key")
    await turns(10)
    assert [op.tries for op in ops] == [4, 4, 4]


async def test_notify_keys_in_the_order_of_their_marks(purgatory: Purgatory) -> None:
    order: list[Op] = []
    a, b, c = (purgatory.watch(Op(on_complete=order.append), [key]) for key in "abc")
    a.ready = b.ready = c.ready = True
    for key in "cabc":
        purgatory.notify(key)
    await turns(10)
    assert order == [c, a, b]


async def test_notify_in_slices_of_the_turn_budget(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        order: list[Op] = []
        ops = [purgatory.watch(Op(on_complete=order.append), ["a", "b"]) for _ in range(20)]
        for op in ops:
            op.ready = True
        ops[7].hooks["on_complete"] = lambda _: ops[15].cancel()
        purgatory.notify("a")
        done_by_turn = []
        for _ in range(30):
            await turns(1)
            check_invariants(purgatory)
            done_by_turn.append(len(order))
        assert order == ops[:7] + ops[8:15] + ops[16:]
        assert set(done_by_turn) == set(range(1, 19))


async def test_notify_slices_let_deadlines_through() -> None:
    clock = LeapingClock()
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = [purgatory.watch(Op(), ["key"]) for _ in range(50)]
        due = purgatory.watch(Op(1.0), ["other"])
        purgatory.notify("key")
        await turns(10)
        assert due.outcome is None
        clock.leap = 1.0
        await turns(10)
        assert due.expired
        assert {op.tries for op in ops} == {2, 3}
        await turns(50)
        assert {op.tries for op in ops} == {3}


async def test_notify_key_is_released_after_its_check(purgatory: Purgatory) -> None:
    class Key:
        pass

    key = Key()
    ref = weakref.ref(key)
    op = purgatory.watch(Op(), [key])
    op.ready = True
    purgatory.notify(key)
    await turns(5)
    assert op.done()
    del op, key
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("keys", [1, 3000])
async def test_notify_all_goes_on_though_garbage_ends_some(clock: ManualClock, purgatory: Purgatory, keys: int) -> None:
    class Canceller:
        def __init__(self, op: Op) -> None:
            self.op, self.itself = op, self

        def __del__(self) -> None:
            self.op.cancel()

    ops = [purgatory.watch(Op(), [number % keys]) for number in range(3000)]
    for op in ops[::300]:
        Canceller(op)
    purgatory.notify_all()
    await clock.settle()
    gc.collect()
    assert purgatory.is_open
    assert min(op.tries for op in ops if not op.done()) > 2  # watch() tries twice
    check_invariants(purgatory)


@pytest.mark.parametrize("error", [asyncio.CancelledError, Boom])
async def test_notify_with_a_limit_counts_no_failed_operation(
    purgatory: Purgatory, reports: list[BaseException], error: type[BaseException]
) -> None:
    ops = [purgatory.watch(Op(), ["key"]) for _ in range(5)]
    for op in ops:
        op.ready = True
    ops[1].hooks["on_complete"] = raising(error())
    purgatory.notify("key", limit=2)
    await turns(10)
    assert [op.outcome for op in ops] == [Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED, None, None]
    assert [type(exc) for exc in taken(reports)] == [error]
