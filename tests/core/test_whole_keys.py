"""Calls for all operations of a key, or of all keys: notify_all(), and fail_for_key() and waiting() for a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, Op, awaited, ended, turns, watch_ready

# notify_all()


async def test_notify_all_tries_each_op_once(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(60.0), keys) for keys in (["a", "b", "c"], ["b"], ["d", "a"])]
    for op in ops[1:]:
        op.ready = True
    for _ in range(5):
        purgatory.notify_all()
    assert [op.tries for op in ops] == [2, 2, 2]
    await turns(10)
    check_invariants(purgatory)
    assert ([op.tries for op in ops], ended(ops)) == ([3, 3, 3], [1, 2])


async def test_notify_all_in_slices_of_the_turn_budget(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = [purgatory.watch(Op(60.0), [number, "shared"]) for number in range(20)]
        for op in ops:
            op.ready = True
        purgatory.notify_all()
        done_by_turn = []
        for _ in range(60):
            await turns(1)
            check_invariants(purgatory)
            done_by_turn.append(len(ended(ops)))
        assert done_by_turn[-1] == 20
        assert len(set(done_by_turn)) > 2
        assert [op.tries for op in ops] == [3] * 20


async def test_notify_all_cut_off_by_close_is_not_resumed(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock, turn_budget=1e-9)
    async with purgatory:
        ops = [purgatory.watch(Op(60.0), [number]) for number in range(10)]
        purgatory.notify_all()
        while ops[0].tries < 3:
            await turns(1)
        assert ops[9].tries == 2
    async with purgatory:
        ops = [purgatory.watch(Op(60.0), [number]) for number in range(10)]
        await turns(40)
        assert [op.tries for op in ops] == [2] * 10


# calls that end all operations of a key


FOR_KEY: dict[str, tuple[Callable[[Purgatory, str], list[Any]], Outcome, list[str], str]] = {
    "complete": (Purgatory.complete_for_key, Outcome.COMPLETED, ["on_complete"], "result"),
    "cancel": (Purgatory.cancel_for_key, Outcome.CANCELLED, ["on_cancel"], "CancelledError"),
    "fail": (lambda purgatory, key: purgatory.fail_for_key(key, Boom()), Outcome.FAILED, [], "Boom"),
}


@pytest.mark.parametrize("name", FOR_KEY)
@pytest.mark.parametrize("purge_interval", [0, 1000])
async def test_call_for_a_key_ends_all_everywhere_in_order(clock: ManualClock, name: str, purge_interval: int) -> None:
    call, outcome, ran, seen = FOR_KEY[name]
    async with Purgatory(clock=clock, purge_interval=purge_interval) as purgatory:
        ops = [purgatory.watch(Op(1.0), ["key", number]) for number in range(4)]
        other = purgatory.watch(Op(1.0), [1])
        ops.pop(2).cancel()
        tasks = [await awaited(op) for op in ops]
        assert call(purgatory, "key") == ops
        check_invariants(purgatory)
        assert (purgatory.waiting("key"), purgatory.waiting("1"), purgatory.num_delayed) == ([], [], 1)
        assert call(purgatory, "key") == call(purgatory, "unknown") == call(Purgatory(), "key") == []
        assert await asyncio.gather(*tasks) == [seen] * 3
        await clock.advance(1.0)
        assert [(op.outcome, op.ran) for op in ops] == [(outcome, ran)] * 3
        assert (other.expired, purgatory.statistics().missed_triggers) == (True, 0)
        purgatory.purge()
        assert (purgatory.watched_entries, purgatory.statistics().keys) == (0, 0)


# waiting()


async def test_waiting_is_a_snapshot_oldest_first(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(60.0), keys) for keys in (["a"], ["a", "b"], ["b"], ["a"])]
    snapshot = purgatory.waiting("a")
    assert snapshot == [ops[0], ops[1], ops[3]]
    assert purgatory.waiting("b") == [ops[1], ops[2]]
    ops[0].cancel()
    assert (snapshot, purgatory.waiting("a")) == ([ops[0], ops[1], ops[3]], [ops[1], ops[3]])
    snapshot.clear()
    assert purgatory.waiting("a") == [ops[1], ops[3]]
    assert [op.tries for op in ops] == [2] * 4


@pytest.mark.parametrize("call", [Purgatory.check_and_complete, Purgatory.cancel_for_key])
async def test_waiting_inside_a_hook_spares_the_ended(
    purgatory: Purgatory, call: Callable[[Purgatory, str], object]
) -> None:
    seen: list[list[DelayedOperation[Any]]] = []
    hooks: dict[str, Any] = dict.fromkeys(("on_complete", "on_cancel"), lambda _: seen.append(purgatory.waiting("key")))
    ops = watch_ready(purgatory, 1, **hooks) + watch_ready(purgatory, 2)
    call(purgatory, "key")
    assert seen == [ops[1:] if call is Purgatory.check_and_complete else []]
