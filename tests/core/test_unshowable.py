"""Keys and operations with a ``__repr__`` that raises: each message is still the library's own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.arguments import described

from .parts import Boom, Op


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
    with pytest.raises(TypeError, match=r"^op must be an instance of DelayedOperation, got <Unshowable>; "):
        purgatory.watch(wrong, ["key"])
    with pytest.raises(TypeError, match=r"^keys must be an iterable of keys, got <Unshowable>; pass \[<Unshowable>\]$"):
        purgatory.watch(Op(), wrong)
    with pytest.raises(TypeError, match=r"^limit must be an int >= 1, or None, got <Unshowable>$"):
        purgatory.check_and_complete("key", wrong)
    with pytest.raises(TypeError, match=r"^timeout must be a number of seconds or None, got <Unshowable>$"):
        Op(wrong)
    with pytest.raises(TypeError, match=r"^exc must be an instance of Exception .*, got <Unshowable>$"):
        op.fail(wrong)
    with pytest.raises(TypeError, match=r"^observers must be instances of Observer, got <Unshowable>$"):
        Purgatory(observers=[wrong])
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
