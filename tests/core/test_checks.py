"""Checks, complete_for_key() and cancel_for_key(): operations tried, their order, the count (I7, I12)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Hook, Interrupt, Op, raising, turns


async def test_check_unknown_not_started_or_closed_is_0(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    op.ready = True
    assert purgatory.check_and_complete("unknown") == 0
    assert Purgatory().check_and_complete("key") == 0
    purgatory.close()
    assert (purgatory.check_and_complete("key"), purgatory.check_all(), purgatory.statistics().checks) == (0, 0, 0)
    for other in (purgatory, Purgatory()):
        other.notify("key")
        other.notify_all()
    await turns(10)
    assert op.tries == 2


@pytest.mark.parametrize("start", ["check", "force_complete", "watch", "expire", "soon", "cancel"])
async def test_check_chain_of_10000_is_iterative(purgatory: Purgatory, clock: ManualClock, start: str) -> None:
    def check_next(op: Op) -> None:
        reached.append(op.tries)
        purgatory.check_and_complete(len(reached))

    reached: list[int] = []
    for key in range(1, 10_000):
        purgatory.watch(Op(60.0, on_complete=check_next), [key]).ready = True
    head = Op(1.0, on_complete=check_next, on_cancel=check_next, ready=start == "watch")
    purgatory.watch(head, [0])
    if start == "force_complete":
        head.force_complete()
    elif start == "cancel":
        head.cancel()
    elif start == "expire":
        await clock.advance(1.0)
    else:
        head.ready = True
        purgatory.notify(0) if start == "soon" else purgatory.check_and_complete(0)
        await clock.advance(0)
    assert len(reached) == 10_000
    assert purgatory.watched_entries == 0
    check_invariants(purgatory)


async def test_complete_for_key_base_exception_skips_none(purgatory: Purgatory) -> None:
    first = purgatory.watch(Op(on_complete=raising(Interrupt())), ["key"])
    second = purgatory.watch(Op(), ["key"])
    with pytest.raises(Interrupt):
        purgatory.complete_for_key("key")
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.COMPLETED)
    assert isinstance(first.exception(), Interrupt)


async def test_check_each_base_exception_skips_none(purgatory: Purgatory) -> None:
    hooks: list[Hook] = [raising(Interrupt()), str, str]
    first, *others = [purgatory.watch(Op(on_complete=hook), [key]) for key, hook in enumerate(hooks)]
    for op in (first, *others):
        op.ready = True
    with pytest.raises(Interrupt):
        purgatory.check_each(range(3))
    assert isinstance(first.exception(), Interrupt)
    assert [op.outcome for op in others] == [None, None]  # the caller hears of it at once
    await turns(2)
    assert [op.outcome for op in others] == [Outcome.COMPLETED] * 2


async def test_cancel_for_key_called_by_its_hooks_recurses_not(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(on_cancel=lambda _: purgatory.cancel_for_key("key")), ["key"]) for _ in range(2_000)]
    assert purgatory.cancel_for_key("key") == ops


async def test_expire_all_called_by_its_hooks_recurses_not(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(60.0, on_complete=lambda _: purgatory.expire_all()), ["key"]) for _ in range(2_000)]
    assert purgatory.expire_all() == 2_000
    assert all(op.expired for op in ops)


@dataclass(eq=True)
class Equal(DelayedOperation[None]):
    """Equal to each other, and unhashable."""

    number: int = 0
    ended: list[int] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        super().__init__(60.0)

    def try_complete(self) -> bool:
        return False

    def on_cancel(self) -> None:
        self.ended.append(id(self))


class EqualToAll(Equal):
    __slots__ = ("slot",)

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


@pytest.mark.parametrize("make", [Equal, EqualToAll])
@pytest.mark.parametrize("purge_interval", [0, 100])
async def test_cancel_for_key_equal_ops_stay_apart(clock: ManualClock, make: type[Equal], purge_interval: int) -> None:
    async with Purgatory(clock=clock, purge_interval=purge_interval) as purgatory:
        ops = [purgatory.watch(make(), ["key", "other"]) for _ in range(4)]
        check_invariants(purgatory)
        ops[2].cancel()
        assert [op.done() for op in ops] == [False, False, True, False]
        assert list(map(id, purgatory.cancel_for_key("key"))) == [id(ops[0]), id(ops[1]), id(ops[3])]
        check_invariants(purgatory)
        assert [op.ended for op in ops] == [[id(op)] for op in ops]
        assert purgatory.watched_entries == 0
