"""watch(): refusals, the two tries and events between them, and registration."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, Op, fate


async def assert_untouched(op: Op, elsewhere: Purgatory) -> None:
    assert (op.outcome, op.keys, op.ran) == (None, (), [])
    with pytest.raises(RuntimeError, match="never watched"):
        await op
    assert elsewhere.watch(op, ["a", "b"]) is op
    check_invariants(elsewhere)
    assert (op.keys, elsewhere.watched_entries) == (("a", "b"), 2)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("key", TypeError),
        (b"key", TypeError),
        ("", TypeError),
        (None, TypeError),
        (7, TypeError),
        ([[]], TypeError),
        (["a", {}], TypeError),
        ([], ValueError),
        ((), ValueError),
        pytest.param(iter(()), ValueError, id="iterator"),
    ],
    ids=repr,
)
async def test_watch_bad_keys_are_refused(purgatory: Purgatory, keys: Any, error: type[Exception]) -> None:
    op = Op(1.0)
    for enter in (purgatory.watch, purgatory.try_complete_else_watch):
        with pytest.raises(error, match=r"keys|hash|iterable"):
            enter(op, keys)
        check_invariants(purgatory)
    assert (op.tries, purgatory.num_delayed) == (0, 0)
    await assert_untouched(op, purgatory)


async def test_watch_not_started_is_refused(purgatory: Purgatory) -> None:
    op = Op(1.0)
    with pytest.raises(RuntimeError, match=r"not started; use .*; in a web app, in its lifespan"):
        Purgatory().watch(op, ["key"])
    assert op.tries == 0
    await assert_untouched(op, purgatory)


async def test_watch_closed_is_refused(purgatory: Purgatory) -> None:
    op = Op(1.0, ready=True)
    async with Purgatory() as closed:
        pass
    with pytest.raises(PurgatoryClosedError):
        closed.watch(op, ["key"])
    assert op.tries == 0
    op.ready = False
    await assert_untouched(op, purgatory)


async def test_watch_twice_is_refused(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    async with Purgatory(clock=clock) as other:
        for again in (purgatory, other):
            with pytest.raises(RuntimeError, match="once"):
                again.watch(op, ["other"])
        assert (op.keys, op.tries, purgatory.watched_entries, other.watched_entries) == (("key",), 2, 1, 0)
        op.force_complete()
        with pytest.raises(RuntimeError, match="once"):
            other.watch(op, ["key"])


async def test_watch_full_is_refused(purgatory: Purgatory, clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=2) as small:
        first, _ = (small.watch(Op(1.0), ["key"]) for _ in range(2))
        op = Op(1.0)
        with pytest.raises(PurgatoryFullError, match="2"):
            small.watch(op, ["key"])
        check_invariants(small)
        assert (small.num_delayed, small.watched_entries) == (2, 2)
        assert await small.watch(Op(1.0, ready=True), ["key"]) == "result"  # it need not park
        first.cancel()
        small.watch(Op(1.0), ["key"])
        await assert_untouched(op, purgatory)


class SameHash:
    """Unequal objects with the same hash."""

    def __hash__(self) -> int:
        return 7


S1, S2, S3, S4 = (SameHash() for _ in range(4))

REPEATED: dict[str, tuple[tuple[Hashable, ...], tuple[Hashable, ...]]] = {
    "2 of one hash": ((S1, S2), (S1, S2)),
    "2 equal, of two types": ((1, True), (1,)),
    "3 of one hash": ((S1, S2, S3), (S1, S2, S3)),
    "3 equal, of three types": ((True, 1, 1.0), (True,)),
    "4: two pairs": (("a", "b", "a", "b"), ("a", "b")),
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
        assert (purgatory.watched_entries, purgatory.statistics().keys) == (len(distinct) + 1, len(distinct))
        assert (purgatory.check_and_complete(given[-1]), op.tries) == (0, 3)
        op.ready = True
        assert purgatory.check_and_complete(given[-1]) == 1
        other.cancel()
        purgatory.purge()
        check_invariants(purgatory)
        assert (purgatory.watched_entries, purgatory.statistics().keys) == (0, 0)


async def test_watch_keys_iterable_raising_leaves_op_untouched(purgatory: Purgatory) -> None:
    def keys() -> Iterator[Hashable]:
        yield "a"
        raise Boom

    op = Op()
    with pytest.raises(Boom):
        purgatory.watch(op, keys())
    await assert_untouched(op, purgatory)


class Topic:
    """A key with an __eq__ that raises for other types."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: Any) -> bool:
        return bool(self.number == other.number)


@pytest.mark.parametrize("first", [[7], [7, "a"], ["a", 7]])
async def test_watch_key_raising_when_compared_is_refused(purgatory: Purgatory, first: list[Hashable]) -> None:
    waiting = purgatory.watch(Op(1.0), first)
    for keys in ([Topic(7)], ["a", Topic(7)], [Topic(7), "a"]):
        op = Op(1.0)
        with pytest.raises(AttributeError, match="number"):
            purgatory.watch(op, keys)
        check_invariants(purgatory)
        assert (op.keys, purgatory.num_delayed) == ((), 1)
    assert purgatory.cancel_for_key(7) == [waiting]


async def test_watch_refused_in_one_purgatory_shares_a_key_in_another(purgatory: Purgatory) -> None:
    purgatory.watch(Op(1.0), ["a", 7])
    op = Op(1.0)
    with pytest.raises(AttributeError, match="number"):
        purgatory.watch(op, ["a", Topic(7)])  # it was under "a" for a moment
    async with Purgatory() as other:
        ops = [Op(1.0), Op(1.0), op, Op(1.0)]
        for each in ops:
            other.watch(each, ["b"])
        check_invariants(other)
        assert other.cancel_for_key("b") == ops


async def test_watch_event_between_the_tries_is_seen(purgatory: Purgatory) -> None:
    log: list[str] = []

    class Fetch(DelayedOperation[list[str]]):
        def try_complete(self) -> bool:
            readable = len(log)
            if not readable:  # appended after it was read and before it is registered: nobody to be told yet
                log.append("record")
                assert purgatory.check_and_complete("log") == 0
            return readable > 0 and self.force_complete()

        def on_complete(self) -> list[str]:
            return log

    assert await purgatory.watch(Fetch(60.0), ["log"]) == ["record"]
    assert purgatory.watched_entries == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_watch_ended_before_registers_nothing(purgatory: Purgatory, cancelled: bool) -> None:
    op, other = Op(1.0), Op(1.0)
    for each in (op, other):
        each.cancel() if cancelled else each.force_complete()
    assert purgatory.try_complete_else_watch(other, ["key"]) is False
    assert purgatory.watch(op, ["key"]) is op
    assert (op.tries, purgatory.num_delayed, purgatory.watched_entries) == (0, 0, 0)
    assert await fate(op) == ("CancelledError" if cancelled else "result")


class Answering(DelayedOperation[None]):
    """Its try_complete() returns the test's value, and may end the operation first."""

    def __init__(self, answer: object, ends: bool) -> None:
        super().__init__(1.0)
        self.answer = answer
        self.ends = ends

    def try_complete(self) -> Any:
        if self.ends:
            self.force_complete()
        return self.answer


@pytest.mark.parametrize("answer", [True, 1, "yes", [0], None, False, 0, "", []], ids=repr)
@pytest.mark.parametrize("ends", [True, False])
async def test_try_complete_may_return_anything_if_it_ended(purgatory: Purgatory, ends: bool, answer: object) -> None:
    """Something true without an end is a mistake, and fails it."""
    op = Answering(answer, ends)
    expected = Outcome.COMPLETED if ends else Outcome.FAILED if answer else None
    assert purgatory.try_complete_else_watch(op, ["key"]) is (expected is not None)
    check_invariants(purgatory)
    assert (op.outcome, purgatory.watched_entries) == (expected, int(expected is None))
    assert expected is not Outcome.FAILED or "force_complete" in str(op.exception())


async def test_try_complete_closing_in_first_try_is_refused(purgatory: Purgatory, clock: ManualClock) -> None:
    op = Op(1.0, try_complete=lambda _: purgatory.close())
    with pytest.raises(PurgatoryClosedError):
        purgatory.watch(op, ["key"])
    check_invariants(purgatory)
    async with Purgatory(clock=clock) as other:
        await assert_untouched(op, other)


async def test_keys_that_watch_the_operation_themselves_are_refused(purgatory: Purgatory) -> None:
    op = Op(60.0)

    def keys() -> Iterator[str]:
        purgatory.watch(op, ["first"])
        yield "second"

    with pytest.raises(RuntimeError, match="only once"):
        purgatory.watch(op, keys())
    check_invariants(purgatory)
    assert op.keys == ("first",)
