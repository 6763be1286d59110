"""For authors of servers: several keys checked as one step, the try at the deadline, classes that cannot be watched."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants


class Pop(DelayedOperation[str]):
    """Pops from the first of *names* that has an item, and moves that to *target*, as Redis's BLMOVE does."""

    def __init__(self, purgatory: Purgatory, queues: dict[str, deque[str]], names: str, target: str = "") -> None:
        super().__init__(None)
        self.purgatory, self.queues, self.names, self.target = purgatory, queues, names, target
        self.got = ""

    def try_complete(self) -> bool:
        for name in self.names:
            if self.queues[name]:
                self.got = self.queues[name].popleft()
                if self.target:
                    self.queues[self.target].append(self.got)
                    self.purgatory.check_and_complete(self.target, limit=1)
                return self.force_complete()
        return False

    def on_complete(self) -> str:
        return self.got


@pytest.mark.parametrize("is_one_step", [True, False])
async def test_check_each_serves_all_keys_before_what_hooks_change(purgatory: Purgatory, is_one_step: bool) -> None:
    queues = {name: deque[str]() for name in "abc"}
    ops = [("a", "c"), ("b", ""), ("bc", "")]
    mover, first, second = [purgatory.watch(Pop(purgatory, queues, *op), list(op[0])) for op in ops]
    queues["a"].append("1")
    queues["b"].append("2")
    if is_one_step:
        assert purgatory.check_each("ab".__iter__(), limit=1) == 2
        assert (mover.got, first.got, second.got) == ("1", "2", "1")
    else:  # the control: the client that waits longest for b is passed over
        ended = [purgatory.check_and_complete(name, limit=1) for name in "ab"]
        assert (ended, mover.got, first.got, second.got) == ([1, 0], "1", "", "2")
    check_invariants(purgatory)


@pytest.mark.parametrize("keys", ["ab", [], [[]], 7, None], ids=repr)
async def test_check_each_refuses_bad_keys(purgatory: Purgatory, keys: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="key"):
        purgatory.check_each(keys)


async def test_check_each_of_unwatched_keys_ends_nothing(purgatory: Purgatory) -> None:
    assert purgatory.check_each(["a", "b", "a"]) == 0


class TwoSteps(DelayedOperation[None]):
    """Warns at its first deadline, and ends at its second."""

    def __init__(self, purgatory: Purgatory) -> None:
        super().__init__(1.0)
        self.purgatory = purgatory
        self.due: list[bool] = []

    def try_complete(self) -> bool:
        self.due.append(self.is_due)
        if self.is_due and self.due.count(True) == 1:
            self.purgatory.reschedule(self, 2.0)
        return False

    def on_complete(self) -> None:
        assert not self.is_due or self.expired


async def test_is_due_tells_the_try_at_the_deadline(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(TwoSteps(purgatory), ["key"])
    purgatory.check_and_complete("key")
    await clock.advance(1.1)
    purgatory.check_and_complete("key")
    assert (op.due, op.outcome) == ([False] * 3 + [True, False], None)
    await clock.advance(2.0)
    assert (op.due[-1], op.outcome) == (True, Outcome.EXPIRED)


@dataclass(frozen=True, eq=False)
class Frozen(DelayedOperation[None]):
    name: str

    def try_complete(self) -> bool:
        return self.force_complete()

    def on_complete(self) -> None: ...


async def test_watch_refuses_a_frozen_dataclass(purgatory: Purgatory) -> None:
    with pytest.raises(TypeError, match=r"frozen dataclass.*Frozen"):
        purgatory.watch(Frozen("name"), ["key"], timeout=1.0)
    assert purgatory.num_delayed == 0
