"""Keys with an ``__eq__`` that begins to raise: operations still end, and the error is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Boom, Op, fate, turns


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
        tasks = [asyncio.create_task(fate(op)) for op in ops]
        await turns(2)
        ending = ENDINGS[name]
        Fragile.broken = True
        ending.end(purgatory, ops[number])
        await turns(3)
        assert ops[number].outcome is ending.outcome
        assert await asyncio.wait_for(tasks[number], 1) == ending.seen
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
    assert {type(exc) for exc in reports} <= {Boom}
    reports.clear()


async def test_broken_key_is_reported_and_swept(purgatory: Purgatory, reports: list[BaseException]) -> None:
    """The entry stays for a moment, and is found by the stored key, though that can still not be compared."""
    ops = [purgatory.watch(Op(60.0), [Fragile()]) for _ in range(2)]
    Fragile.broken = True
    assert [op.cancel() for op in ops] == [True, True]
    assert [type(exc) for exc in reports] == [Boom]
    reports.clear()
    await turns(5)
    assert (purgatory.watched_entries, purgatory.num_delayed) == (0, 0)
    check_invariants(purgatory)


async def test_expired_op_with_broken_key_is_told(
    purgatory: Purgatory, clock: ManualClock, reports: list[BaseException]
) -> None:
    ops = [purgatory.watch(Op(1.0), [Fragile()]) for _ in range(3)]
    tasks = [asyncio.create_task(fate(op)) for op in ops]
    await turns(2)
    Fragile.broken = True
    await clock.advance(1.0)
    assert [await asyncio.wait_for(task, 1) for task in tasks] == ["result"] * 3
    assert [op.outcome for op in ops] == [Outcome.EXPIRED] * 3
    assert purgatory.is_open
    await turns(5)
    assert purgatory.watched_entries == 0
    assert {type(exc) for exc in reports} == {Boom}
    reports.clear()


async def test_last_try_with_a_marked_broken_key_completes(clock: ManualClock, reports: list[BaseException]) -> None:
    """Whether a check was about to come cannot be told then: the operation completes, and it is reported."""
    async with Purgatory(clock=clock) as purgatory:
        op = purgatory.watch(Op(1.0), ["key", Fragile()])
        op.ready = True
        task = asyncio.create_task(fate(op))

        class Clash:
            def __hash__(self) -> int:
                return 7

        purgatory.watch(Op(60.0), [Clash()])
        await turns(2)
        Fragile.broken = True
        await clock.advance(1.0)
        assert await asyncio.wait_for(task, 1) == "result"
        assert op.outcome is Outcome.COMPLETED
    assert {type(exc) for exc in reports} <= {Boom}
    reports.clear()


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
    assert {type(exc) for exc in reports} <= {Boom}
    reports.clear()


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
