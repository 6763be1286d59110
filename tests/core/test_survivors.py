"""Tests for mutants that survived all others: details that matter, and that nothing else would miss."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, Op, turns


class LeapingClock(ManualClock):
    """Its time may pass while the purgatory is at work, and it keeps count of the handles it arms."""

    def __init__(self) -> None:
        super().__init__()
        self.leap = 0.0
        self.armed: list[float] = []

    def time(self) -> float:
        return super().time() + self.leap

    def call_at(self, when: float, callback: Callable[[], object]) -> Any:
        self.armed.append(when)
        return super().call_at(when, callback)


# statistics().missed_triggers


@pytest.mark.parametrize("mark", [Purgatory.notify, Purgatory.notify_threadsafe])
@pytest.mark.parametrize(("marked", "missed"), [("key", 0), ("unrelated", 1)])
async def test_missed_trigger_not_while_its_key_is_walked(
    mark: Callable[[Purgatory, str], None], marked: str, missed: int
) -> None:
    """The deadline comes in the middle of a sliced check: of a key of the operation, or of another one."""
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
        assert ops[-1].tries == 2  # it was the deadline, not the walk
        assert last.outcome is Outcome.COMPLETED
        await turns(60)
        check_invariants(purgatory)
        assert (purgatory.statistics().missed_triggers, ops[-1].tries) == (missed, 3)


async def test_missed_trigger_not_while_all_are_walked() -> None:
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


async def test_missed_trigger_not_when_marked_before_it() -> None:
    """Marked, and due before the turn of the mark: the second of its keys counts as well as the first."""
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
    """Nobody had forgotten anything: its time had not come. After it, forgotten checks count again."""
    for _ in range(3):
        purgatory.watch(Op(1.0), ["key"]).ready = True
    assert purgatory.expire_all() == 3
    assert (purgatory.statistics().completed, purgatory.statistics().missed_triggers) == (3, 0)
    purgatory.watch(Op(1.0), ["key"]).ready = True
    await clock.advance(1.0)
    assert purgatory.statistics().missed_triggers == 1


async def test_missed_trigger_counts_a_forgotten_check_once(purgatory: Purgatory, clock: ManualClock) -> None:
    """Once per operation, however many keys it has, and whether or not it put its expiry off before."""
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


# expire_all() in a hook


async def test_expire_all_nested_runs_once_more(purgatory: Purgatory) -> None:
    answers: list[int] = []

    def watch_more(_: Op) -> None:
        more.append(purgatory.watch(Op(60.0), ["key"]))
        answers.append(purgatory.expire_all())
        assert more[-1].outcome is None  # not in this call

    more: list[Op] = []
    ops = [purgatory.watch(Op(60.0, on_complete=watch_more), ["key"]) for _ in range(2)]
    purgatory.expire_all()
    assert answers == [0, 0]
    assert [op.expired for op in ops + more] == [True] * 4
    assert (purgatory.num_delayed, purgatory.statistics().expired) == (0, 4)
    later = purgatory.watch(Op(60.0), ["key"])  # it is over: nothing expires by itself
    await turns(5)
    assert later.outcome is None
    assert purgatory.expire_all() == 1


async def test_expire_all_nested_by_a_try_runs_once_more(purgatory: Purgatory) -> None:
    """Also from the last try_complete(), and also if the nested call is the last thing that happens."""
    op = purgatory.watch(Op(60.0), ["key"])
    more: list[Op] = []

    def watch_more(op: Op) -> None:
        if op.tries == 3:
            more.append(purgatory.watch(Op(60.0), ["other"]))
            assert purgatory.expire_all() == 0

    op.hooks["try_complete"] = watch_more
    purgatory.expire_all()
    assert (op.expired, more[0].expired, len(more)) == (True, True, 1)


# a key given twice


class SameHash:
    """All of one hash, and unequal."""

    def __hash__(self) -> int:
        return 7


S1, S2, S3, S4 = (SameHash() for _ in range(4))

REPEATED: dict[str, tuple[tuple[Hashable, ...], tuple[Hashable, ...]]] = {
    "1": (("a",), ("a",)),
    "2 the same": (("a", "a"), ("a",)),
    "2": (("a", "b"), ("a", "b")),
    "2 of one hash": ((S1, S2), (S1, S2)),
    "2 equal, of two types": ((1, True), (1,)),
    "3: 1st = 2nd": (("a", "a", "b"), ("a", "b")),
    "3: 2nd = 3rd": (("a", "b", "b"), ("a", "b")),
    "3: 1st = 3rd": (("a", "b", "a"), ("a", "b")),
    "3 the same": (("a", "a", "a"), ("a",)),
    "3": (("a", "b", "c"), ("a", "b", "c")),
    "3 of one hash": ((S1, S2, S3), (S1, S2, S3)),
    "3 of one hash, one twice": ((S1, S2, S1), (S1, S2)),
    "3 equal, of three types": ((True, 1, 1.0), (True,)),
    "4: 1st = 4th": (("a", "b", "c", "a"), ("a", "b", "c")),
    "4: 2nd = 3rd": (("a", "b", "b", "c"), ("a", "b", "c")),
    "4: two pairs": (("a", "b", "a", "b"), ("a", "b")),
    "4 the same": (("a", "a", "a", "a"), ("a",)),
    "4": (("a", "b", "c", "d"), ("a", "b", "c", "d")),
    "4 of one hash": ((S1, S2, S3, S4), (S1, S2, S3, S4)),
    "4 equal in pairs, of two types": ((0, 1, False, True), (0, 1)),
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("kind", [tuple, list, iter])
@pytest.mark.parametrize("purge_interval", [0, 1000])
async def test_watch_key_twice_counts_once(
    clock: ManualClock, name: str, kind: Callable[[tuple[Hashable, ...]], Any], purge_interval: int
) -> None:
    given, distinct = REPEATED[name]
    async with Purgatory(clock=clock, purge_interval=purge_interval) as purgatory:
        op, other = Op(60.0), Op(60.0)
        purgatory.watch(other, [distinct[-1]])
        purgatory.watch(op, kind(given))
        check_invariants(purgatory)
        assert list(map(type, op.keys)) == list(map(type, distinct))
        assert op.keys == distinct
        assert (purgatory.watched, purgatory.statistics().keys) == (len(distinct) + 1, len(distinct))
        assert (purgatory.check_and_complete(given[-1]), op.tries) == (0, 3)
        op.ready = True
        assert purgatory.check_and_complete(given[-1]) == 1
        other.cancel()
        purgatory.purge()
        check_invariants(purgatory)
        assert (purgatory.watched, purgatory.statistics().keys) == (0, 0)


# what a closed purgatory keeps


@pytest.fixture
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def end_some(purgatory: Purgatory, ops: list[Op]) -> None:
    for op in ops[::2]:
        op.force_complete()


def in_the_middle_of_a_check(purgatory: Purgatory, ops: list[Op]) -> None:
    purgatory.notify("shared")


def in_the_middle_of_a_purge(purgatory: Purgatory, ops: list[Op]) -> None:
    end_some(purgatory, ops)
    purgatory.notify("shared")
    for _ in range(30):  # more than purge_interval: a sweep begins
        ops.append(purgatory.watch(Op(60.0), ["shared", "swept"]))
        ops[-1].force_complete()


def failed_and_not_reported(purgatory: Purgatory, ops: list[Op]) -> None:
    for op in ops:
        op.fail(Boom())
        op.exception()


def put_off_and_rescheduled(purgatory: Purgatory, ops: list[Op]) -> None:
    for op in ops:
        purgatory.reschedule(op, 1e6)
        purgatory.reschedule(op, 0.5)


def leave_pending(purgatory: Purgatory, ops: list[Op]) -> None:
    pass


@pytest.mark.parametrize("purge_interval", [0, 20])
@pytest.mark.parametrize("after_turns", [0, 3, 8])
@pytest.mark.parametrize(
    "prepare",
    [
        leave_pending,
        end_some,
        in_the_middle_of_a_check,
        in_the_middle_of_a_purge,
        failed_and_not_reported,
        put_off_and_rescheduled,
    ],
    ids=lambda prepare: prepare.__name__,
)
@pytest.mark.usefixtures("without_gc")
async def test_close_keeps_no_ended_op_alive(
    clock: ManualClock, prepare: Callable[[Purgatory, list[Op]], None], after_turns: int, purge_interval: int
) -> None:
    async def use() -> list[weakref.ref[Op]]:
        ops = [purgatory.watch(Op(60.0), ["shared", number]) for number in range(12)]
        prepare(purgatory, ops)
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
    assert (purgatory.watched, purgatory.statistics().keys) == (0, 0)
    check_invariants(purgatory)


# a loop that is closed


ON_A_CLOSED_LOOP: dict[str, Callable[[Purgatory, Op], object]] = {
    "force_complete": lambda purgatory, op: op.force_complete(),
    "fail": lambda purgatory, op: op.fail(Boom()),
    "cancel": lambda purgatory, op: op.cancel(),
    "check_and_complete": lambda purgatory, op: purgatory.check_and_complete("key"),
    "check_all": lambda purgatory, op: purgatory.check_all(),
    "cancel_for_key": lambda purgatory, op: purgatory.cancel_for_key("key"),
    "expire_all": lambda purgatory, op: purgatory.expire_all(),
    "close": lambda purgatory, op: purgatory.close(),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("name", ON_A_CLOSED_LOOP)
@pytest.mark.parametrize("module", ["asyncio", "uvloop"])
def test_end_after_the_loop_was_closed_is_quiet(module: str, name: str, awaited: bool) -> None:
    loop: asyncio.AbstractEventLoop = pytest.importorskip(module).new_event_loop()
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
    ON_A_CLOSED_LOOP[name](purgatory, op)
    assert op.done()
    assert purgatory.num_delayed == 0
    purgatory.notify("key")
    purgatory.notify_threadsafe("key")
    purgatory.close()
    purgatory.close()
    check_invariants(purgatory)
    tasks.clear()
    gc.collect()


# the economy of re-arming


async def test_rearm_never_for_later_and_later_deadlines() -> None:
    clock = LeapingClock()
    async with Purgatory(clock=clock) as purgatory:
        await turns(3)
        ops = [purgatory.watch(Op(1.0 + number * 0.1), ["key"]) for number in range(1000)]
        purgatory.notify("key")  # wakes the clock task, which goes back to sleep
        await turns(10)
        assert len(clock.armed) == 1
        ops[0].cancel()
        ops[1].force_complete()
        assert purgatory.reschedule(ops[2], 500.0)
        ops.append(purgatory.watch(Op(2.0), ["key"]))
        purgatory.notify("key")
        await turns(10)
        check_invariants(purgatory)
        assert len(clock.armed) == 1
        await clock.advance(1.4)
        assert [op.outcome for op in ops[3:6]] == [Outcome.EXPIRED, Outcome.EXPIRED, None]
        check_invariants(purgatory)


async def test_rearm_once_for_each_earlier_deadline() -> None:
    clock = LeapingClock()
    async with Purgatory(clock=clock) as purgatory:
        await turns(3)
        for timeout in (50.0, 10.0, 20.0, 5.0, 5.0, 7.0, 1.0):
            purgatory.watch(Op(timeout), ["key"])
            check_invariants(purgatory)
        assert len(clock.armed) <= 4
        assert clock.armed == sorted(clock.armed, reverse=True)


async def test_rearm_not_for_checks_and_ends_of_the_earliest() -> None:
    """The earliest ends a thousand times: the handle armed for the first of them serves all."""
    clock = LeapingClock()
    async with Purgatory(clock=clock) as purgatory:
        await turns(3)
        for _ in range(1000):
            op = purgatory.watch(Op(30.0), ["key"])
            op.ready = True
            assert purgatory.check_and_complete("key") == 1
        assert len(clock.armed) == 1
        check_invariants(purgatory)


# single ones


@pytest.mark.parametrize("key", [[], {}, {1}, ([],)], ids=["list", "dict", "set", "tuple"])
@pytest.mark.parametrize("state", ["new", "open", "closed"])
async def test_threadsafe_unhashable_key_fails_in_the_caller(clock: ManualClock, key: Any, state: str) -> None:
    purgatory = Purgatory(clock=clock)
    if state != "new":
        await purgatory.start()
    if state == "closed":
        purgatory.close()
    with pytest.raises(TypeError, match="key must be hashable, got "):
        await asyncio.to_thread(purgatory.notify_threadsafe, key)
    with pytest.raises(TypeError, match="key must be hashable, got "):
        purgatory.notify_threadsafe(key)
    await turns(3)
    if state == "open":  # and later calls arrive
        op = purgatory.watch(Op(60.0), ["key"])
        op.ready = True
        purgatory.notify_threadsafe("key")
        await turns(5)
        assert op.done()
    await purgatory.aclose()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("event", "hook"),
    [
        *((event, hook) for event in ("soon", "check", "expiry") for hook in ("try_complete", "on_complete")),
        ("expiry", "on_expiration"),
    ],
)
async def test_aclose_begun_in_a_hook_ends(clock: ManualClock, event: str, hook: str) -> None:
    """A hook, in the clock task among others, closes the purgatory and starts a task that waits for it."""
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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("event", ["soon", "expiry"])
async def test_aclose_in_the_clock_task_waits_not_for_itself(clock: ManualClock, event: str) -> None:
    """A hook may drive a coroutine of its own by hand, and so call aclose() as the clock task."""
    answers: list[str] = []

    def close_by_hand(op: Op) -> None:
        coroutine = purgatory.aclose()
        try:
            coroutine.send(None)
        except StopIteration:
            answers.append("returned")
        else:
            coroutine.close()
            task = asyncio.current_task()
            answers.append("waits for itself" if task is not None and "clock" in task.get_name() else "waits")

    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    op = purgatory.watch(Op(0 if event == "expiry" else 60.0, on_complete=close_by_hand), ["key"])
    op.ready = True
    if event == "soon":
        purgatory.notify("key")
    await clock.advance(1.0)
    assert op.done()
    assert len(answers) == 1
    assert answers != ["waits for itself"]
    await purgatory.aclose()


async def test_key_of_a_check_soon_is_let_go(purgatory: Purgatory) -> None:
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
