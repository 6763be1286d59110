"""Hooks may do anything: watch, check, cancel, expire, close (I7)."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import CALLS, Hook, Op, awaited, turns

#: The call that runs each hook, and the outcome.
HOOKS: dict[str, tuple[str, Outcome | None]] = {
    "try_complete": ("check_and_complete", None),
    "on_complete": ("force_complete", Outcome.COMPLETED),
    "on_expiration": ("expire_all", Outcome.EXPIRED),
    "on_cancel": ("cancel", Outcome.CANCELLED),
    "on_undelivered": ("force_complete", Outcome.COMPLETED),  # and the awaiting task leaves
}


async def run_hook(purgatory: Purgatory, hook: str, action: Hook) -> Op:
    """Have *action* run once, inside *hook* of an operation with two others under its key. Returns: it."""
    acted: list[str] = []

    def once(op: Op) -> None:
        if not acted:
            acted.append(hook)
            check_invariants(purgatory)
            action(op)
            check_invariants(purgatory)

    op = purgatory.watch(Op(60.0), ["key", "own"])
    op.hooks[hook] = once
    for _ in range(2):
        purgatory.watch(Op(60.0), ["key"])
    task = await awaited(op) if hook == "on_undelivered" else None
    CALLS[HOOKS[hook][0]](purgatory, op)
    if task is not None:
        task.cancel()
        await task
    check_invariants(purgatory)
    assert acted == [hook]
    return op


@pytest.mark.parametrize("hook", HOOKS)
async def test_hook_may_close_the_purgatory(purgatory: Purgatory, clock: ManualClock, hook: str) -> None:
    others = [purgatory.watch(Op(60.0), ["key"]) for _ in range(3)]
    op = await run_hook(purgatory, hook, lambda _: purgatory.close())
    asked = [other.tries for other in others]
    assert op.outcome is (HOOKS[hook][1] or Outcome.FAILED)
    if hook != "on_expiration":  # by then expire_all() has ended some
        assert {type(other.exception()) for other in others} == {PurgatoryClosedError}
    await purgatory.aclose()
    await clock.advance(100.0)
    assert [other.tries for other in others] == asked
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)


@pytest.mark.parametrize("hook", HOOKS)
async def test_hook_may_watch_and_check(purgatory: Purgatory, hook: str) -> None:
    more = [Op(60.0) for _ in range(3)]

    def watch_and_check(op: Op) -> None:
        for other in more:
            purgatory.watch(other, ["key", "new"])
        more[1].ready = True
        purgatory.check_and_complete("new")
        purgatory.notify("key")

    op = await run_hook(purgatory, hook, watch_and_check)
    await turns(3)
    assert op.outcome is HOOKS[hook][1]
    assert [other.outcome for other in more] == [None, Outcome.COMPLETED, None]


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


async def test_check_inside_a_last_try_is_made_up_for_after_it(purgatory: Purgatory, clock: ManualClock) -> None:
    """That try reschedules the operation. The queued check then tries it again."""
    op = purgatory.watch(Op(1.0), ["key"])

    def postpone(_: Op) -> None:
        del op.hooks["try_complete"]
        purgatory.reschedule(op, 60.0)
        purgatory.check_and_complete("key")

    op.hooks["try_complete"] = postpone
    before = op.tries
    await clock.advance(1.0)
    await turns(3)
    assert op.tries == before + 2
    assert not op.done()


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
    later = purgatory.watch(Op(60.0), ["key"])  # the nested calls are done: nothing more expires
    await turns(5)
    assert later.outcome is None
    assert purgatory.expire_all() == 1


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
