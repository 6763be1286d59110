"""The whole purgatory against a naive one. Hooks of the operations call back into the purgatory.

Both are told the same, step by step: the same operations with the same scripts, which their hooks follow. After
each step both must have called the same hooks in the same order and got the same answers, and must hold the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from aiopurgatory import Outcome
from aiopurgatory.testing import check_invariants

from .naive import NaiveSide
from .sides import START, TICK, Action, RealSide, Spec

keys = st.sampled_from("abc")
ticks = st.integers(0, 12).map(lambda n: n * TICK)
spans = ticks | st.sampled_from([4, 80, 300]).flatmap(lambda most: st.integers(0, 64 * most).map(lambda n: n / 64))
timeouts = st.none() | spans | ticks.map(lambda span: span + TICK - START)
back = st.integers(0, 3)
hooks = st.sampled_from(["first_try", "second_try", "later_try", "on_complete", "on_expiration", "on_cancel"])


def actions(*more: st.SearchStrategy[Action], target: st.SearchStrategy[int | None]) -> st.SearchStrategy[Action]:
    return st.one_of(
        st.tuples(st.sampled_from(["force_complete", "fail", "cancel", "leave"]), target),
        st.tuples(st.just("check_and_complete"), keys),
        st.tuples(st.sampled_from(["notify", "cancel_for_key", "complete_for_key"]), keys),
        st.tuples(st.sampled_from(["publish", "check_all", "expire_all", "purge", "close"])),
        st.tuples(st.just("reschedule"), target, timeouts),
        *more,
    )


def watches(in_hooks: st.SearchStrategy[Action]) -> st.SearchStrategy[Action]:
    some_keys = st.lists(keys, min_size=1, max_size=4)
    script = st.lists(st.tuples(hooks, st.lists(in_hooks, min_size=1, max_size=3)), max_size=3)
    return st.tuples(st.just("watch"), st.builds(Spec, some_keys, timeouts, st.integers(0, 3), script))


in_inner_hooks = actions(st.just(("raise",)), target=st.none() | back)
in_hooks = in_inner_hooks | watches(in_inner_hooks)


class Machine(RuleBasedStateMachine):
    new_loop: ClassVar[Callable[[], asyncio.AbstractEventLoop]]
    purge_interval: ClassVar[int]
    max_pending: ClassVar[int | None]

    def __init__(self) -> None:
        super().__init__()
        self.loop = type(self).new_loop()
        self.begin()

    def begin(self) -> None:
        self.real = RealSide(self.purge_interval, self.max_pending)
        self.naive = NaiveSide(self.purge_interval, self.max_pending, self.real)
        self.loop.run_until_complete(self.real.start())

    def step(self, actions: list[Action], seconds: float) -> None:
        self.loop.run_until_complete(self.real.step(actions, seconds))
        self.naive.step(actions, seconds)

    @rule(action=watches(in_hooks), tasks=st.integers(0, 2))
    def watch_and_await(self, action: Action, tasks: int) -> None:
        self.step([action], 0)
        for _ in range(tasks):
            self.start_awaiting_task(0)

    @precondition(lambda self: self.real.ops)
    @rule(back=back)
    def start_awaiting_task(self, back: int) -> None:
        self.loop.run_until_complete(self.real.wait(back))
        self.naive.wait(back)

    @rule(key=keys, leaving=st.lists(back, max_size=2))
    def publish_check_and_leave(self, key: str, leaving: list[int]) -> None:
        self.step([("publish",), ("check_and_complete", key), *(("leave", back) for back in leaving)], 0)

    @rule(leaving=st.lists(back, max_size=3))
    def expire_all_and_leave(self, leaving: list[int]) -> None:
        self.step([("expire_all",), *(("leave", back) for back in leaving)], 0)

    @precondition(lambda self: self.real.ops)
    @rule(actions=st.lists(actions(watches(in_hooks), target=back), min_size=1, max_size=4))
    def act_in_one_turn(self, actions: list[Action]) -> None:
        self.step(actions, 0)

    @rule(seconds=spans)
    def advance(self, seconds: float) -> None:
        self.step([], seconds)

    @precondition(lambda self: not self.naive.purgatory.open)
    @rule()
    def begin_anew(self) -> None:
        self.end()
        self.begin()

    def end(self) -> None:
        self.loop.run_until_complete(self.real.end())
        self.naive.end()
        self.agree()
        assert all(wait.answer() is not None for wait in self.real.waits)

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            self.loop.close()

    @invariant()
    def agree(self) -> None:
        real, naive, model = self.real, self.naive, self.naive.purgatory
        assert real.broken == []
        check_invariants(real.purgatory)
        assert real.log == naive.log
        assert real.state() == naive.state()
        statistics = real.purgatory.statistics()
        assert statistics.pending == real.purgatory.num_delayed == model.num_delayed
        assert (statistics.watched_entries, statistics.keys) == (model.watched_entries, len(model.under))
        ended = (statistics.completed, statistics.expired, statistics.cancelled, statistics.failed)
        assert ended == tuple(model.ended[outcome] for outcome in Outcome)
        if model.open:
            assert statistics.purges == model.purges
            assert statistics.estimated_total == (model.estimated_total if self.purge_interval else model.num_delayed)


def machine(
    new_loop: Callable[[], asyncio.AbstractEventLoop], purge_interval: int, max_pending: int | None
) -> type[Machine]:
    options = {"new_loop": new_loop, "purge_interval": purge_interval, "max_pending": max_pending}
    return type("Machine", (Machine,), options)


@pytest.mark.timeout(400)  # a failure is reported once it is shrunk, which can take minutes
@pytest.mark.parametrize(("loop", "purge_interval", "max_pending"), [("asyncio", 0, None), ("uvloop", 3, 4)])
def test_purgatory_random_steps_agrees_with_naive(loop: str, purge_interval: int, max_pending: int | None) -> None:
    run_state_machine_as_test(
        machine(pytest.importorskip(loop).new_event_loop, purge_interval, max_pending),
        settings=settings(
            max_examples=90, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


@pytest.mark.parametrize("purge_interval", [0, 3])
def test_check_all_in_a_try_agrees_with_naive(purge_interval: int) -> None:
    """The check comes to the operation being tried before it comes to the one that ends both: "a" is marked."""
    ends_both = Spec(["a"], 0.0, 1, [("later_try", [("complete_for_key", "a")])])
    op = Spec(["a"], None, 1, [("second_try", [("watch", ends_both), ("check_all",)])])
    steps = machine(asyncio.new_event_loop, purge_interval, None)()
    try:
        steps.step([("watch", op)], 0)
        steps.agree()
    finally:
        steps.teardown()
