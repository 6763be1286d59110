"""Observers are called once for every end, and their errors affect nothing else."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, NamedTuple

import pytest

from aiopurgatory import Observer, Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.core.operation import Operation
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Boom, Interrupt, Op, fate, raising, taken, turns


class End(NamedTuple):
    op: Operation
    outcome: Outcome
    waited: float
    lateness: float | None
    keys: tuple[Hashable, ...]


class Watching(Observer):
    """Notes each call, and then calls the test's function."""

    def __init__(self) -> None:
        self.openings: list[object] = []
        self.ends: list[End] = []
        #: The operation, how many had ended before it, and its keys.
        self.misses: list[tuple[Operation, int, tuple[Hashable, ...]]] = []
        self.closings: list[object] = []
        self.act: Callable[[], object] = bool

    def opened(self, what: Any) -> None:
        self.openings.append(what)
        self.act()

    def ended(self, purgatory: Any, op: Operation, outcome: Outcome, waited: float, lateness: float | None) -> None:
        assert op.done()
        assert purgatory is self.openings[-1]
        self.ends.append(End(op, outcome, waited, lateness, op.keys))
        self.act()

    def missed(self, purgatory: Any, op: Operation) -> None:
        assert purgatory is self.openings[-1]
        self.misses.append((op, len(self.ends), op.keys))
        self.act()

    def closed(self, what: Any) -> None:
        self.closings.append(what)
        self.act()


@pytest.fixture
def observer() -> Watching:
    return Watching()


@pytest.fixture
async def watched(clock: ManualClock, observer: Watching) -> AsyncIterator[Purgatory]:
    """A purgatory with an observer that looks at the invariants inside every call, and a second one behind it."""
    async with Purgatory(clock=clock, observers=iter([observer, Observer()])) as purgatory:
        await turns(1)
        observer.act = lambda: check_invariants(purgatory)
        yield purgatory
        check_invariants(purgatory)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", ENDINGS)
async def test_ended_is_told_once_and_an_error_of_that_changes_nothing(
    watched: Purgatory,
    clock: ManualClock,
    observer: Watching,
    reports: list[BaseException],
    name: str,
    raises: bool,
) -> None:
    if raises:
        observer.act = lambda: raising(Boom())(op)
    op = watched.watch(Op(60.0), ["a", "b"])
    task = asyncio.create_task(fate(op))
    await clock.advance(3.0)
    for _ in range(2):
        ENDINGS[name].end(watched, op)
    check_invariants(watched)
    lateness = 0.0 if name == "expire" else None  # before its time
    assert observer.ends == [End(op, ENDINGS[name].outcome, 3.0, lateness, ("a", "b"))]
    assert (op.outcome, op.ran, op.keys) == (ENDINGS[name].outcome, ENDINGS[name].ran, ())
    assert await task == ENDINGS[name].seen
    assert [type(exc) for exc in taken(reports)] == [Boom] * raises * (1 + len(observer.closings))
    observer.act = bool


async def test_observer_given_twice_is_told_once(clock: ManualClock, observer: Watching) -> None:
    async with Purgatory(clock=clock, observers=[observer, Observer(), observer]) as purgatory:
        op = purgatory.watch(Op(60.0), ["key"])
        op.force_complete()
    assert (observer.openings, observer.closings) == ([purgatory], [purgatory])
    assert [end.op for end in observer.ends] == [op]


async def test_ended_with_the_lateness_of_an_expiry(watched: Purgatory, clock: ManualClock, observer: Watching) -> None:
    op = watched.watch(Op(1.0), ["key"])
    await clock.advance(0.25)
    watched.watch(Op(1.2345), ["key"])
    await clock.advance(5.0)
    assert observer.ends[0] == End(op, Outcome.EXPIRED, 1.0, 0.0, ("key",))
    assert (observer.ends[1].waited, observer.ends[1].lateness) == pytest.approx((1.235, 0.0005))


async def test_ended_of_a_refused_op_is_not_told(clock: ManualClock, observer: Watching) -> None:
    with pytest.raises(RuntimeError, match="not started"):
        Purgatory(clock=clock, observers=[observer]).watch(Op(1.0, ready=True), ["key"])
    assert observer.ends == []


async def test_opened_is_told_once_before_anything_else(clock: ManualClock, observer: Watching) -> None:
    purgatory = Purgatory(clock=clock, observers=[observer])
    assert observer.openings == []
    observer.act = lambda: purgatory.watch(Op(1.0), ["key"])
    await purgatory.start()
    observer.act = bool
    await purgatory.start()
    assert (observer.openings, purgatory.num_delayed) == ([purgatory], 1)
    await purgatory.aclose()


async def test_opened_raising_leaves_it_open(
    clock: ManualClock, observer: Watching, reports: list[BaseException]
) -> None:
    observer.act = lambda: raising(Boom())(Op())
    async with Purgatory(clock=clock, observers=[observer]) as purgatory:
        observer.act = bool
        purgatory.watch(Op(1.0), ["key"])
    assert [type(exc) for exc in taken(reports)] == [Boom]


async def test_closed_is_told_once_after_the_ends(watched: Purgatory, observer: Watching) -> None:
    ops = [watched.watch(Op(60.0), ["key", number]) for number in range(3)]
    told: list[int] = []
    observer.act = lambda: told.append(len(observer.closings))
    watched.close()
    watched.close()
    await watched.aclose()
    assert observer.closings == [watched]
    assert told == [0, 0, 0, 1]
    assert [(end.op, end.outcome, end.keys) for end in observer.ends] == [
        (op, Outcome.FAILED, ("key", number)) for number, op in enumerate(ops)
    ]


async def test_observer_may_use_the_purgatory(watched: Purgatory, observer: Watching) -> None:
    op, other = (watched.watch(Op(60.0), ["key"]) for _ in range(2))
    more: list[Op] = []

    def use() -> None:
        if not more:
            more.append(watched.watch(Op(60.0), ["new"]))
            other.ready = True
            watched.check_and_complete("key")
        check_invariants(watched)

    observer.act = use
    op.force_complete()
    assert [end.op for end in observer.ends] == [op, other]
    assert watched.num_delayed == 1


async def test_observer_may_close_the_purgatory(watched: Purgatory, observer: Watching) -> None:
    op, other = (watched.watch(Op(60.0), ["key"]) for _ in range(2))
    observer.act = watched.close
    op.force_complete()
    check_invariants(watched)
    assert [(end.op, end.outcome) for end in observer.ends] == [(op, Outcome.COMPLETED), (other, Outcome.FAILED)]
    assert observer.closings == [watched]


async def test_close_during_which_a_key_is_checked(watched: Purgatory, observer: Watching) -> None:
    ops = [watched.watch(Op(60.0), ["key"]) for _ in range(3)]
    for op in ops:
        op.ready = True
    observer.act = lambda: watched.check_and_complete("key")
    watched.close()
    check_invariants(watched)
    assert [type(op.exception()) for op in ops] == [PurgatoryClosedError] * 3


async def test_close_with_an_observer_interrupted_is_whole(clock: ManualClock, observer: Watching) -> None:
    purgatory = Purgatory(clock=clock, observers=[observer])
    await purgatory.start()
    ops = [purgatory.watch(Op(60.0), ["key"]) for _ in range(3)]
    await turns(1)
    observer.act = lambda: raising(Interrupt())(ops[0])
    with pytest.raises(Interrupt):
        purgatory.close()
    observer.act = bool
    await turns(2)
    check_invariants(purgatory)
    assert [type(op.exception()) for op in ops] == [PurgatoryClosedError] * 3
    async with asyncio.timeout(10.0):  # not at all, when it is as it should be
        await purgatory.aclose()


async def test_missed_trigger_is_told_just_before_the_end(
    watched: Purgatory, clock: ManualClock, observer: Watching
) -> None:
    op, other = (watched.watch(Op(timeout), ["key", timeout]) for timeout in (1.0, 2.0))
    op.ready = other.ready = True
    await clock.advance(1.5)
    watched.check_and_complete("key")
    assert [end.op for end in observer.ends] == [op, other]
    assert observer.misses == [(op, 0, ("key", 1.0))]


@pytest.mark.usefixtures("without_gc")
async def test_closed_purgatory_is_freed_without_the_gc(clock: ManualClock) -> None:
    """As one without observers is: they get it in each call, and it keeps no reference to itself."""
    purgatory = Purgatory(clock=clock, observers=[Observer()])
    async with purgatory:
        purgatory.watch(Op(), ["key"]).force_complete()
    gone = weakref.ref(purgatory)
    del purgatory
    await turns(2)
    assert gone() is None
