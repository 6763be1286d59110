"""Helpers for the tests of the ready-made operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.operations import Generation, JoinBarrier, Replicas, Thresholds
from aiopurgatory.testing import ManualClock, check_invariants

Join = asyncio.Task[Generation[str]]
T = TypeVar("T")
Answers = asyncio.Task[dict[Any, Exception | None]]


class LeadershipError(Exception):
    pass


class AtFirstEnd(Observer):
    """Calls *do* when the first operation ends."""

    def __init__(self) -> None:
        self.do: Callable[[], object] | None = None

    def ended(self, purgatory: Any, op: object, outcome: Outcome, waited: float, lateness: float | None) -> None:
        do, self.do = self.do, None
        if do is not None:
            do()


# thresholds


def check_waiting(thresholds: Thresholds) -> None:
    """As many wait as the purgatory holds."""
    check_invariants(thresholds.purgatory)
    assert len(thresholds) == thresholds.purgatory.num_delayed


# replicas


def partition(purgatory: Purgatory, key: str = "orders", *, followers: int = 2, **options: Any) -> Replicas[Any]:
    return Replicas(purgatory, key, ["leader", *range(followers)], **options)


async def begun(wait: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """*wait* in a task, which has begun when this returns."""
    task = asyncio.create_task(wait)
    await asyncio.sleep(0)
    return task


async def acked(replicas: Replicas[Any], offset: int, timeout: float | None = None) -> asyncio.Task[int]:
    """A wait that has begun."""
    return await begun(replicas.acked(offset, timeout=timeout))


def advance(replicas: Replicas[Any], offset: int, names: tuple[Hashable, ...] = ("leader", 0, 1)) -> int:
    """All of them have everything before *offset*. Returns: how many waits that ended."""
    return sum([replicas.update(name, offset) for name in names])


# barriers


def group_in(purgatory: Purgatory, **options: Any) -> JoinBarrier[str]:
    return JoinBarrier(purgatory, "billing", **{"rebalance_timeout": 10.0, "initial_delay": 2.0} | options)


async def joins(group: JoinBarrier[str], *members: str) -> list[Join]:
    tasks = [asyncio.create_task(group.join(member)) for member in members]
    await asyncio.sleep(0)
    check_invariants(group.purgatory)
    return tasks


async def formed(group: JoinBarrier[str], clock: ManualClock, *members: str) -> Generation[str]:
    """A first generation of *members*."""
    tasks = await joins(group, *members)
    await clock.advance(20.0)
    generations = await asyncio.gather(*tasks)
    assert generations[0].members == members
    return generations[0]


def check_empty(group: JoinBarrier[str]) -> None:
    """Nothing waits, in the group or in the purgatory."""
    assert not group.is_closed
    assert not any(group.is_waiting(member) for member in group.members)
    assert (group.purgatory.num_delayed, group.purgatory.watched_entries) == (0, 0)
