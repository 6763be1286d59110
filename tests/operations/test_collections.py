"""Rules for all collections of waits."""

from __future__ import annotations

import asyncio
import builtins
import inspect
from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError, operations
from aiopurgatory.operations import Feed, Heartbeats, JoinBarrier, JoinError, Replicas, Thresholds, fetch, produce
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import begun

MAKERS: dict[str, Callable[[Purgatory], Any]] = {
    "Feed": lambda purgatory: Feed(purgatory, "key", Nothing()),
    "Heartbeats": lambda purgatory: Heartbeats(purgatory, "key", timeout=3.0, on_missed=print),
    "JoinBarrier": lambda purgatory: JoinBarrier[str](purgatory, "key", rebalance_timeout=3.0, expected=["bob"]),
    "Replicas": lambda purgatory: Replicas(purgatory, "key", ["leader"]),
    "Thresholds": lambda purgatory: Thresholds(purgatory, "key"),
}
#: How something begins to wait there.
BEGIN: dict[str, Callable[[Any], Any]] = {
    "Feed": lambda feed: feed.fetch(0, timeout=None),
    "JoinBarrier": lambda group: group.join("ann"),
    "Thresholds": lambda thresholds: thresholds.reached(1, timeout=None),
}


class Nothing:
    def readable(self, offset: int) -> int:
        return 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        return b""


@pytest.mark.parametrize("name", BEGIN)
async def test_len_is_how_many_wait(purgatory: Purgatory, name: str) -> None:
    each = MAKERS[name](purgatory)
    assert len(each) == 0
    task = asyncio.ensure_future(BEGIN[name](each))
    await asyncio.sleep(0)
    assert len(each) == 1
    assert "waiting=1" in repr(each) or "closed, 1 missing" in repr(each)
    task.cancel()
    assert len(each) == 0


WAITS: dict[str, Callable[[Purgatory], Any]] = {
    "fetch": lambda purgatory: fetch(purgatory, {"a": (Nothing(), 0), "b": (Nothing(), 0)}, timeout=30.0),
    "Feed.fetch": lambda purgatory: Feed(purgatory, "key", Nothing()).fetch(0, timeout=30.0),
    "acked": lambda purgatory: Replicas(purgatory, "key", ["leader", "follower"]).acked(1, timeout=30.0),
    "reached": lambda purgatory: Thresholds(purgatory, "key").reached(1, timeout=None),
    "produce": lambda purgatory: produce(
        purgatory, {1: (Thresholds(purgatory, 1), 5), 2: (Replicas(purgatory, 2, ["a", "b"]), 7)}, timeout=30.0
    ),
}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("is_closed", [False, True])
async def test_wait_cancelled_or_closed_leaves_nothing(purgatory: Purgatory, name: str, is_closed: bool) -> None:
    task = asyncio.ensure_future(WAITS[name](purgatory))
    await asyncio.sleep(0)
    assert purgatory.num_delayed == 1
    purgatory.close() if is_closed else task.cancel()
    check_invariants(purgatory)
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)
    with pytest.raises(PurgatoryClosedError if is_closed else asyncio.CancelledError):
        await task
    if is_closed:
        with pytest.raises(PurgatoryClosedError):
            await WAITS[name](purgatory)


# mistakes


any_: Any = operations  # what is wrong in all calls below is also refused by type checkers
SECONDS = "must be a number of seconds"


def fetching(**options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Feed(purgatory, "key", Nothing()).fetch(0, **options)


def reaching(offset: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Thresholds(purgatory, "log").reached(offset, **options)


def failing(exc: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Thresholds(purgatory, "log").fail(exc)


def acking(offset: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Replicas(purgatory, "orders", ["leader"]).acked(offset, **options)


def replicating(replicas: Any = ("leader",), **options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Replicas(purgatory, "orders", replicas, **options)


def producing(needs: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.produce(purgatory, needs(purgatory), **{"timeout": 30.0} | options)


def beating(**options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.Heartbeats(purgatory, "billing", **{"timeout": 3.0, "on_missed": print} | options)


def grouping(**options: Any) -> Callable[[Any], Any]:
    return lambda purgatory: any_.JoinBarrier(purgatory, "billing", **{"rebalance_timeout": 10.0} | options)


def setting(rebalance_timeout: Any) -> Callable[[Any], Any]:
    return lambda purgatory: setattr(grouping()(purgatory), "rebalance_timeout", rebalance_timeout)


async def later(member: str = "") -> bool:
    return True


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (fetching(timeout=0.5, min_bytes=-1), "ValueError: min_bytes must be >= 0, got -1"),
    (fetching(timeout=0.5, min_bytes=1.5), "TypeError: min_bytes must be an int, got 1.5"),
    (fetching(timeout=0.5, min_bytes=True), "TypeError: min_bytes must be an int, got True"),
    (fetching(timeout=0.5, max_bytes=-1), "ValueError: max_bytes must be >= 0, got -1"),
    (fetching(timeout=nan), f"ValueError: timeout {SECONDS} or None, got nan"),
    (fetching(timeout="5"), f"TypeError: timeout {SECONDS} or None, got '5'"),
    (lambda purgatory: any_.Feed(purgatory, [], Nothing()), "TypeError: key must be hashable"),
    (lambda purgatory: any_.fetch(purgatory, {}, timeout=1.0), "ValueError: positions must name at least one source"),
    (reaching(5, timeout=nan), f"ValueError: timeout {SECONDS} or None, got nan"),
    *((reaching(bad, timeout=None), "TypeError: offset must be an int") for bad in (1.5, nan, "7", None, True)),
    (lambda purgatory: any_.Thresholds(purgatory, "log").advance(1.5), "TypeError: value must be an int"),
    (lambda purgatory: any_.Thresholds(purgatory, "log", start=True), "TypeError: start must be an int"),
    (lambda _: any_.Thresholds(None, "log"), r"TypeError: purgatory must have a method watch\(\), .* got None"),
    (lambda _: any_.Thresholds(Purgatory, "log"), "TypeError: purgatory must be an instance of .* the class Purgatory"),
    *((failing(exc), "TypeError: exc must be an instance of Exception") for exc in ("lost", KeyError, None)),
    *((failing(exc), "TypeError: exc must be an instance of Exc") for exc in (StopIteration(), KeyboardInterrupt())),
    (acking(2, timeout=nan), f"ValueError: timeout {SECONDS} or None, got nan"),
    (replicating(3), "TypeError: replicas must be an iterable of names, got 3"),
    (replicating([]), "ValueError: replicas must name at least one replica, got none"),
    (replicating("leader"), r"TypeError: replicas must be an iterable of names, got 'leader'; pass \['leader'\]"),
    (replicating({"leader", "x"}), "TypeError: replicas must have an order, the leader first, got the set"),
    (replicating(min_in_sync=0), "ValueError: min_in_sync must be >= 1, got 0"),
    *((replicating(min_in_sync=bad), "TypeError: min_in_sync must be an int") for bad in (1.5, True)),
    (replicating(start=None), "TypeError: start must be an int"),
    (producing(lambda purgatory: {}), "ValueError: required must name at least one partition, got none"),
    (producing(lambda purgatory: {1: 7}), r"TypeError: required\[1\] must be a pair .* or an error, got 7"),
    (producing(lambda purgatory: {1: (7, 1)}), r"TypeError: required\[1\] must be Replicas or Thresholds, got 7"),
    (producing(lambda purgatory: {1: (MAKERS["Thresholds"](purgatory), True)}), "TypeError: offset must be an int"),
    (producing(lambda purgatory: {1: OSError()}, timeout=nan), f"ValueError: timeout {SECONDS} or None, got nan"),
    (producing(lambda purgatory: {1: (MAKERS["Replicas"](Purgatory()), 1)}), "ValueError: required must wait in <Purg"),
    *((beating(timeout=bad), f"ValueError: timeout must be >= 0 s, got {bad}") for bad in (-1, nan)),
    *((beating(timeout=bad), f"TypeError: timeout {SECONDS}, got {bad!r}") for bad in ("3", True)),
    (beating(on_missed=later), "TypeError: on_missed must be a plain function, not async def"),
    (beating(excused=later), "TypeError: excused must be a plain function, not async def"),
    (setting(-1), "ValueError: rebalance_timeout must be >= 0 s, got -1"),
    (setting(True), f"TypeError: rebalance_timeout {SECONDS}, got True"),
    (grouping(rebalance_timeout="1"), f"TypeError: rebalance_timeout {SECONDS}, got '1'"),
    (grouping(initial_delay=nan), "ValueError: initial_delay must be >= 0 s, got nan"),
    (grouping(initial_delay=None), f"TypeError: initial_delay {SECONDS}, got None"),
    (grouping(expected=3), "TypeError: expected must be an iterable of members, got 3"),
    (grouping(expected="ann"), r"TypeError: expected must be an iterable of members, got 'ann'; pass \['ann'\]"),
    (grouping(max_members=0), "ValueError: max_members must be >= 1, got 0"),
    *((grouping(max_members=bad), f"TypeError: max_members must be an int, got {bad}") for bad in (1.5, True)),
    (lambda purgatory: any_.JoinBarrier(purgatory, [], rebalance_timeout=1.0), "TypeError: key must be hashable"),
    (lambda purgatory: grouping(max_members=1)(purgatory).expect([]), "TypeError: unhashable"),
]


@pytest.mark.parametrize(("call", "error"), REFUSED, ids=[error for _, error in REFUSED])
async def test_mistake_is_refused_and_named(purgatory: Purgatory, call: Callable[[Any], Any], error: str) -> None:
    kind, _, message = error.partition(": ")

    async def run() -> None:
        found = call(purgatory)
        if inspect.isawaitable(found):
            await found

    with pytest.raises(getattr(builtins, kind), match=message):
        await run()
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)


# keys and members with a __repr__ that raises


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


async def test_produce_at_the_deadline_keeps_every_answer(purgatory: Purgatory, clock: ManualClock) -> None:
    slow, key = Unshowable(), Unshowable()
    quick = Replicas(purgatory, key, ["leader", "follower"])
    required: Any = {"quick": (quick, 1), slow: (Thresholds(purgatory, "slow"), 7)}
    task = await begun(produce(purgatory, required, timeout=1.0))
    quick.update("leader", 1)
    quick.update("follower", 1)
    await clock.advance(1.0)
    answers = await task
    assert answers["quick"] is None
    assert str(answers[slow]) == "<Unshowable> was not acked up to 7 after 1.0 s"


@pytest.mark.parametrize("name", ["leave", "replace", "join again"])
async def test_barrier_ends_the_join_of_a_member(purgatory: Purgatory, name: str) -> None:
    group: JoinBarrier[Any] = JoinBarrier(purgatory, Unshowable(), rebalance_timeout=60.0, expected=["other"])
    member = Unshowable()
    task = await begun(group.join(member))
    if name == "leave":
        assert group.leave(member)
    elif name == "replace":
        assert group.replace(member, Unshowable())
    else:
        (await begun(group.join(member))).cancel()
    with pytest.raises(JoinError, match=r"^<Unshowable> (has left|was replaced by <Unshowable> in|has rejoined) <Unsh"):
        await task
    check_invariants(purgatory)


async def test_reprs_and_refusals_name_the_class(purgatory: Purgatory) -> None:
    key, member = Unshowable(), Unshowable()
    replicas = Replicas(purgatory, key, ["leader", member])
    whatever: Any = lambda *_: None  # noqa: E731
    source: Any = Unshowable()
    things: list[object] = [
        replicas,
        Thresholds(purgatory, key),
        JoinBarrier(purgatory, key, rebalance_timeout=None),
        Heartbeats(purgatory, key, timeout=1.0, on_missed=whatever),
        Feed(purgatory, key, source),
    ]
    assert all("<Unshowable>" in repr(thing) for thing in things)
    with pytest.raises(ValueError, match=r"^<Unshowable> is not in sync; in sync are \['leader', <Unshowable>\]; "):
        replicas.update(Unshowable(), 1)
    with pytest.raises(ValueError, match=r"^<Unshowable> cannot be at offset 1, ahead of the leader 'leader' at 0; "):
        replicas.update(member, 1)
