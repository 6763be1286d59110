"""Keys that misbehave: an ``__eq__`` that begins to raise ends no operation, a ``__repr__`` hides no message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.arguments import described
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Boom, Op, awaited, fate, taken, turns


class Fragile:
    """Equal to the others, until it breaks."""

    broken = False

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        if Fragile.broken:
            raise Boom
        return isinstance(other, Fragile)


@pytest.fixture(autouse=True)
def mended() -> Iterator[None]:
    yield
    Fragile.broken = False


@pytest.fixture(params=[0, 100])
def interval(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_operation_ends_though_its_key_cannot_be_compared(
    clock: ManualClock, reports: list[BaseException], interval: int, name: str, number: int
) -> None:
    async with Purgatory(clock=clock, purge_interval=interval) as purgatory:
        ops = [purgatory.watch(Op(60.0), ["first", Fragile(), f"last {n}"]) for n in range(3)]
        tasks = [await awaited(op) for op in ops]
        ending = ENDINGS[name]
        Fragile.broken = True
        ending.end(purgatory, ops[number])
        await turns(3)
        assert ops[number].outcome is ending.outcome
        assert await asyncio.wait_for(tasks[number], 10) == ending.seen
        assert ops[number].keys == ()
        Fragile.broken = False
        if name in ("expire", "close"):  # these end all of them
            await turns(3)
            check_invariants(purgatory)
            assert all(task.done() for task in tasks)
        else:
            others = [op for op in ops if not op.done()]
            assert purgatory.num_delayed == len(others) == 2
            purgatory.purge()
            check_invariants(purgatory)
            assert purgatory.waiting(Fragile()) == others
            for op in others:
                op.ready = True
            assert purgatory.check_and_complete(Fragile()) == 2
        purgatory.purge()
        assert (purgatory.watched_entries, purgatory.num_delayed) == (0, 0)
    assert {type(exc) for exc in taken(reports)} <= {Boom}


async def test_check_each_broken_key_loses_no_check_of_a_hook(
    purgatory: Purgatory, reports: list[BaseException]
) -> None:
    def check_others(_: Op) -> None:
        purgatory.check_and_complete("checked by a hook")
        Fragile.broken = True

    ops = [purgatory.watch(Op(), [key]) for key in ("first", Fragile(), "checked by a hook")]
    for op in ops:
        op.ready = True
    ops[0].hooks["on_complete"] = check_others
    assert purgatory.check_each(["first", Fragile()]) == 1
    assert [type(exc) for exc in taken(reports)] == [Boom]
    await turns(3)
    assert [op.outcome for op in ops] == [Outcome.COMPLETED, None, Outcome.COMPLETED]


async def test_broken_key_is_reported_and_swept(purgatory: Purgatory, reports: list[BaseException]) -> None:
    """The entry stays for a moment, and is found by the stored key, though that can still not be compared."""
    ops = [purgatory.watch(Op(60.0), [Fragile()]) for _ in range(2)]
    Fragile.broken = True
    assert [op.cancel() for op in ops] == [True, True]
    assert [type(exc) for exc in taken(reports)] == [Boom]
    await turns(5)
    assert (purgatory.watched_entries, purgatory.num_delayed) == (0, 0)
    check_invariants(purgatory)


async def test_last_try_with_a_marked_broken_key_completes(clock: ManualClock, reports: list[BaseException]) -> None:
    """Whether a check was about to come cannot be told then: the operation completes, and it is reported."""
    async with Purgatory(clock=clock) as purgatory:
        op = purgatory.watch(Op(1.0), ["key", Fragile()])
        op.ready = True
        task = asyncio.create_task(fate(op))
        purgatory.watch(Op(60.0), [7])  # of the same hash
        await turns(2)
        Fragile.broken = True
        await clock.advance(1.0)
        assert await asyncio.wait_for(task, 10) == "result"
        assert op.outcome is Outcome.COMPLETED
    assert {type(exc) for exc in taken(reports)} <= {Boom}


async def test_marked_broken_key_ends_nothing_else(purgatory: Purgatory, reports: list[BaseException]) -> None:
    other = purgatory.watch(Op(60.0), ["other"])
    purgatory.watch(Op(60.0), [Fragile()])
    purgatory.notify(Fragile())
    purgatory.cancel_for_key(Fragile())
    purgatory.watch(Op(60.0), [7])
    Fragile.broken = other.ready = True
    purgatory.notify("other")
    await turns(5)
    assert other.outcome is Outcome.COMPLETED
    assert [type(exc) for exc in taken(reports)] == [Boom]
    assert purgatory.is_open


async def test_sweep_with_a_broken_key_ends_nothing_else(clock: ManualClock, reports: list[BaseException]) -> None:
    async with Purgatory(clock=clock, purge_interval=1) as purgatory:
        ops = [purgatory.watch(Op(60.0), [n, Fragile(), "many"]) for n in range(5)]
        Fragile.broken = True
        for op in ops[:4]:
            op.force_complete()
        await turns(10)
        assert purgatory.is_open
        assert not ops[4].done()
        Fragile.broken = False
        purgatory.purge()
        assert purgatory.watched_entries == 3
    assert {type(exc) for exc in taken(reports)} <= {Boom}


@pytest.mark.parametrize("check", [Purgatory.check_and_complete, Purgatory.notify])
async def test_broken_key_cuts_off_no_nested_check(
    purgatory: Purgatory, reports: list[BaseException], check: Callable[[Purgatory, str], object]
) -> None:
    other = purgatory.watch(Op(60.0), ["other"])
    other.ready = True

    def nest(_: Op) -> None:
        if not Fragile.broken and purgatory.waiting("other"):
            purgatory.check_and_complete(Fragile())
            purgatory.check_and_complete("other")
            Fragile.broken = True

    purgatory.watch(Op(60.0), [Fragile()])
    first = Op(60.0)
    purgatory.watch(first, ["first"])
    first.hooks = {"try_complete": nest}
    check(purgatory, "first")
    await turns(5)
    assert other.outcome is Outcome.COMPLETED
    reports.clear()


# a __repr__ that raises


class Unshowable:
    def __repr__(self) -> str:
        raise Boom


class UnshowableOp(Op):
    def __repr__(self) -> str:
        raise Boom


def nested(depth: int) -> tuple[Any, ...]:
    thing: tuple[Any, ...] = ()
    for _ in range(depth):
        thing = (thing,)
    return thing


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (7, "7"),
        (("orders", 7), "('orders', 7)"),
        (Unshowable(), "<Unshowable>"),
        ((Unshowable(),), "(<Unshowable>,)"),
        (("orders", ("eu", Unshowable())), "('orders', ('eu', <Unshowable>))"),
        ([Unshowable()], "[<Unshowable>]"),
        (nested(100_000), "<tuple>"),
    ],
)
def test_described_names_the_class_that_cannot_be_shown(thing: object, text: str) -> None:
    assert described(thing) == text


async def test_repr_with_a_key_that_cannot_be_shown_names_its_class(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["orders", Unshowable()])
    assert "pending timeout=60.0 keys=('orders', <Unshowable>) waited=" in repr(op)
    assert repr(purgatory.follow([Unshowable()], lambda since: asyncio.sleep(0))) == "<Following (<Unshowable>,) new>"


async def test_mistakes_with_what_cannot_be_shown_name_the_mistake(purgatory: Purgatory) -> None:
    op = purgatory.watch(UnshowableOp(60.0), [Unshowable()])
    wrong: Any = Unshowable()
    with pytest.raises(RuntimeError, match=r"^op must be watched only once, got <UnshowableOp>; "):
        purgatory.watch(op, ["key"])
    with pytest.raises(asyncio.InvalidStateError, match=r"^<UnshowableOp> has no result yet$"):
        op.result()
    with pytest.raises(RuntimeError, match=r"^<UnshowableOp> was never watched "):
        await UnshowableOp()
    with pytest.raises(ValueError, match=r"^op must be watched by this purgatory, got <UnshowableOp>$"):
        Purgatory().reschedule(op, 1.0)
    with pytest.raises(TypeError, match=r"^name must be a str, got <Unshowable>$"):
        Purgatory(wrong)
    op.cancel()


class Raising(Observer):
    def ended(self, purgatory: Any, op: object, outcome: Outcome, waited: float, lateness: float | None) -> None:
        raise ValueError("lost")


async def test_report_about_an_unshowable_key_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.get_running_loop().set_exception_handler(None)
    async with Purgatory(observers=[Raising()]) as purgatory:
        with caplog.at_level(logging.ERROR, "asyncio"):
            purgatory.watch(Op(60.0), [Unshowable()]).force_complete()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "aiopurgatory: observer raised\noperation: <Op completed timeout=60.0 keys=(<U"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
