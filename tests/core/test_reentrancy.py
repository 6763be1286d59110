"""Hooks may do anything: watch, check, cancel, expire, close (I7)."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .parts import Op


@pytest.mark.parametrize("moment", ["deadline", "watch"])
async def test_try_that_checks_its_own_key_is_not_tried_inside_itself(
    purgatory: Purgatory, clock: ManualClock, moment: str
) -> None:
    """A predicate that takes something would take a second thing, and lose the first."""
    queue: list[str] = []
    tries = 0

    def take() -> str | None:
        nonlocal tries
        tries += 1
        if moment == "watch" and tries == 2:
            queue.extend(["first", "second"])
        if not queue:
            return None
        item = queue.pop(0)
        purgatory.check_and_complete("queue")  # there is room now: producers wait under the same key
        return item

    waiting = asyncio.create_task(purgatory.wait_for(take, ["queue"], timeout=1.0))
    producer = purgatory.watch(Op(60.0), ["queue"])
    if moment == "deadline":
        await clock.settle()
        queue.extend(["first", "second"])
        await clock.advance(1.0)
    producer.ready = True
    assert await waiting == "first"
    assert queue == ["second"]
    purgatory.check_and_complete("queue")
    assert producer.done()


async def test_expire_all_nested_by_a_try_runs_once_more(purgatory: Purgatory) -> None:
    """The nested call may come from the last try_complete(), as the last action of the outer call."""
    op = purgatory.watch(Op(60.0), ["key"])
    more: list[Op] = []

    def watch_more(op: Op) -> None:
        if op.tries == 3:
            more.append(purgatory.watch(Op(60.0), ["other"]))
            assert purgatory.expire_all() == 0

    op.hooks["try_complete"] = watch_more
    purgatory.expire_all()
    assert (op.expired, more[0].expired, len(more)) == (True, True, 1)
