"""One operation with several conditions: an answer to each, and partial answers at the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiopurgatory import DeadlineError, Outcome, Purgatory
from aiopurgatory.operations import DelayedAll
from aiopurgatory.testing import ManualClock, check_invariants

NAMES = ("a", "b", "c")
LATE = "late"


def waiting_for(
    state: dict[str, Any], timeout: float | None = 1.0, names: tuple[str, ...] = NAMES
) -> DelayedAll[str, Any]:
    """Waits for an answer in *state* for each of *names*."""
    return DelayedAll({name: partial(state.get, name) for name in names}, timeout, default=LATE)


async def test_answers_are_complete_when_all_conditions_have_held(purgatory: Purgatory, clock: ManualClock) -> None:
    state: dict[str, Any] = {"a": 1}
    op = purgatory.watch(waiting_for(state), NAMES)
    for name, left in (("c", ("b",)), ("b", ())):
        state[name] = name.upper()
        assert purgatory.check_and_complete(name) == (not left)
        assert op.missing == left
    assert list((await op).items()) == [("a", 1), ("b", "B"), ("c", "C")]  # in the order of the conditions
    assert (op.outcome, op.result()["a"], clock.time()) == (Outcome.COMPLETED, 1, 0.0)
    check_invariants(purgatory)


async def test_deadline_gives_the_default_to_the_missing(purgatory: Purgatory, clock: ManualClock) -> None:
    state: dict[str, Any] = {}
    op = purgatory.watch(waiting_for(state), NAMES)
    state["b"] = 2
    assert purgatory.check_and_complete("b") == 0
    await clock.advance(0.999)
    assert not op.done()
    await clock.advance(0.001)
    assert (op.outcome, await op, op.missing) == (Outcome.EXPIRED, {"a": LATE, "b": 2, "c": LATE}, ("a", "c"))


async def test_key_with_an_answer_keeps_it_and_is_not_tried_again(purgatory: Purgatory) -> None:
    state: dict[str, Any] = {"a": "first"}
    calls: list[str] = []

    def read(name: str) -> Any:
        calls.append(name)
        return state.get(name)

    op = purgatory.watch(DelayedAll({name: partial(read, name) for name in NAMES}, None, default=LATE), ["all"])
    state.update(a="second", b=0, c=False)  # false answers are answers; only None is none
    calls.clear()
    assert purgatory.check_and_complete("all") == 1
    assert (calls, await op) == (["b", "c"], {"a": "first", "b": 0, "c": False})


async def test_answers_that_are_there_do_not_park(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        purgatory.watch(waiting_for({}), NAMES)
        assert await purgatory.watch(waiting_for(dict.fromkeys(NAMES, 7)), NAMES) == dict.fromkeys(NAMES, 7)


async def test_condition_that_raises_fails_the_operation(purgatory: Purgatory) -> None:
    state: dict[str, Any] = {}

    def broken() -> int | None:
        if state:
            raise KeyError("broken")
        return None

    op = purgatory.watch(DelayedAll({"a": broken}, None, default=0), ["a"])
    state["a"] = 1
    assert purgatory.check_and_complete("a") == 1
    with pytest.raises(KeyError, match="broken"):
        await op


async def test_condition_may_end_the_operation_itself(purgatory: Purgatory) -> None:
    op: DelayedAll[str, Any]
    state: dict[str, Any] = {}
    conditions: dict[str, Callable[[], Any]] = {
        "a": lambda: state.get("a") and op.cancel(),
        "b": partial(state.get, "b"),
    }
    op = purgatory.watch(DelayedAll(conditions, None, default=LATE), ["all"])
    state.update(a=1, b=2)
    assert purgatory.check_and_complete("all") == 0  # cancelled
    with pytest.raises(asyncio.CancelledError):
        await op
    check_invariants(purgatory)


async def test_subclass_may_raise_at_the_deadline_or_answer_otherwise(purgatory: Purgatory, clock: ManualClock) -> None:
    class Strict(DelayedAll[str, int]):
        def on_expiration(self) -> None:
            raise DeadlineError(f"no answer for {', '.join(self.missing)}")

    class Named(DelayedAll[str, str]):
        def on_complete(self) -> dict[str, str]:
            return super().on_complete() | {name: f"no {name}" for name in self.missing}

    strict = purgatory.watch(Strict({"a": lambda: 1, "b": lambda: None}, 1.0, default=0), NAMES)
    named = purgatory.watch(Named({"a": lambda: "A", "b": lambda: None}, 1.0, default=LATE), NAMES)
    await clock.advance(1.0)
    with pytest.raises(TimeoutError, match="no answer for b"):
        await strict
    assert await named == {"a": "A", "b": "no b"}


async def test_condition_that_returns_a_coroutine_is_refused(purgatory: Purgatory) -> None:
    async def later() -> int:
        return 1

    op = purgatory.watch(DelayedAll({"a": lambda: later()}, 1.0, default=None), ["a"])
    with pytest.raises(TypeError, match="each of conditions must be a plain function, not async def"):
        await op


Step = tuple[str, Any]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 1, None])),  # state changes, and its key is checked
        st.tuples(st.just("unchecked"), st.sampled_from(NAMES)),
        st.tuples(st.just("advance"), st.sampled_from([0.25, 0.5])),
    ),
    max_size=12,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_answers_agree_with_a_model(steps: list[Step]) -> None:
    """Each key has the first answer that a try saw. The operation ends with the last of them, or at its deadline."""

    async def run() -> None:
        clock = ManualClock()
        async with Purgatory(clock=clock) as purgatory:
            state: dict[str, Any] = {}
            seen: dict[str, Any] = {}
            op = purgatory.watch(waiting_for(state), NAMES)
            ended_at = None
            for what, value in steps:
                if what == "advance":
                    await clock.advance(value)
                elif what == "unchecked":
                    state[value] = what
                else:
                    state[what] = value
                    purgatory.check_and_complete(what)
                if ended_at is None:
                    is_late = clock.time() >= 1.0
                    if what != "unchecked" and (what != "advance" or is_late):  # it was tried
                        seen = {name: answer for name, answer in state.items() if answer is not None} | seen
                    if is_late or len(seen) == len(NAMES):
                        ended_at = min(clock.time(), 1.0)
                assert op.done() == (ended_at is not None)
                assert set(op.missing) == set(NAMES) - set(seen)
                check_invariants(purgatory)
            if ended_at is None:
                await clock.advance(1.0)
                seen = {name: answer for name, answer in state.items() if answer is not None} | seen
            assert await op == {name: seen.get(name, LATE) for name in NAMES}

    asyncio.run(run())
