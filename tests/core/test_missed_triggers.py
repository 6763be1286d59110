"""statistics().missed_triggers: operations that completed at the deadline because no check of their keys came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import LeapingClock, Op, turns


@pytest.mark.parametrize("mark", [Purgatory.notify, Purgatory.notify_threadsafe])
@pytest.mark.parametrize(("marked", "missed"), [("key", 0), ("unrelated", 1)])
async def test_missed_trigger_not_during_a_check_of_its_key(
    mark: Callable[[Purgatory, str], None], marked: str, missed: int
) -> None:
    """The deadline comes during a sliced check, of a key of the operation or of another key."""
    clock = LeapingClock()
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = [purgatory.watch(Op(), [marked]) for _ in range(40)]
        last = purgatory.watch(Op(1.0), ["first", "key"])
        mark(purgatory, marked)
        while ops[5].tries < 3:
            await turns(1)
        assert ops[-1].tries == 2
        last.ready = True
        clock.leap = 1.0
        while not last.done():
            await turns(1)
        assert ops[-1].tries == 2  # the deadline ended it, not the check
        assert last.outcome is Outcome.COMPLETED
        await turns(60)
        check_invariants(purgatory)
        assert (purgatory.statistics().missed_triggers, ops[-1].tries) == (missed, 3)


async def test_missed_trigger_not_during_a_check_of_all() -> None:
    clock = LeapingClock()
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        ops = [purgatory.watch(Op(), [number]) for number in range(40)]
        last = purgatory.watch(Op(1.0), ["key"])
        purgatory.notify_all()
        while ops[5].tries < 3:
            await turns(1)
        last.ready = True
        clock.leap = 1.0
        await turns(80)
        assert (last.outcome, purgatory.statistics().missed_triggers) == (Outcome.COMPLETED, 0)


async def test_missed_trigger_not_if_marked_before_it() -> None:
    """The deadline comes between the mark and its check. Each of the operation's keys counts."""
    clock = LeapingClock()
    async with Purgatory(clock=clock) as purgatory:
        ops = [purgatory.watch(Op(1.0), keys) for keys in (["a", "b"], ["b", "a"], ["c"])]
        await turns(5)
        for op in ops:
            op.ready = True
        clock.leap = 1.0
        purgatory.notify("b")
        await turns(10)
        assert [op.outcome for op in ops] == [Outcome.COMPLETED] * 3
        assert purgatory.statistics().missed_triggers == 1


async def test_missed_trigger_not_by_expire_all(purgatory: Purgatory, clock: ManualClock) -> None:
    """Before the deadline, no check is missing. Later ones that are missing count."""
    for _ in range(3):
        purgatory.watch(Op(1.0), ["key"]).ready = True
    assert purgatory.expire_all() == 3
    assert (purgatory.statistics().completed, purgatory.statistics().missed_triggers) == (3, 0)
    purgatory.watch(Op(1.0), ["key"]).ready = True
    await clock.advance(1.0)
    assert purgatory.statistics().missed_triggers == 1


async def test_missed_trigger_counts_a_missing_check_once(purgatory: Purgatory, clock: ManualClock) -> None:
    """It counts once per operation, even after a reschedule() in an earlier last try."""
    op = purgatory.watch(Op(1.0, try_complete=lambda op: op.tries == 3 and purgatory.reschedule(op, 1.0)), ["abc"])
    purgatory.watch(Op(1.0), ["a"])
    await clock.advance(1.0)
    assert (op.outcome, purgatory.statistics().missed_triggers) == (None, 0)
    op.ready = True
    await clock.advance(1.0)
    assert op.outcome is Outcome.COMPLETED
    assert purgatory.statistics().missed_triggers == 1
    await clock.advance(10.0)
    assert purgatory.statistics().missed_triggers == 1


async def test_missed_trigger_not_when_checked_in_time(purgatory: Purgatory, clock: ManualClock) -> None:
    for check in (purgatory.check_and_complete, purgatory.notify):
        op = purgatory.watch(Op(1.0), ["key"])
        await clock.advance(0.999)
        op.ready = True
        check("key")
        await clock.advance(0.001)
        assert op.outcome is Outcome.COMPLETED
    assert purgatory.statistics().missed_triggers == 0
