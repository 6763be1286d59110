"""Each listener gets each event once, in order, or is told that some are gone: under every fault of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiopurgatory import GoneError
from aiopurgatory.streams import EndedError, StoreError, topic_state, writes
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.position import Position
from aiopurgatory.streams.store import Commit, Page
from aiopurgatory.streams.tail import Tail
from aiopurgatory.streams.topic_state import Suspicion, TopicState
from aiopurgatory.streams.writer import Writer

from .scenario import LEASE, Step, run_scenario
from .simulated import FAULTS

small = st.integers(0, 5)


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


USE = [
    step("begin", small, st.booleans()),
    step("append", small),
    step("append", small),
    step("leave", small, st.sampled_from(["leave", "fail", "cancel", "kill"])),
    step("write", small),
    step("end", small, small),
    step("listen", small, small, st.none() | st.integers(0, 30)),
    step("come_back", small, small),
    step("wait", st.floats(0.01, 2 * LEASE)),
]
FAULTY = [
    step("fault", st.integers(0, 10), st.sampled_from(FAULTS)),
    step("outage", st.floats(0.01, 2 * LEASE)),
    step("partition", small, st.floats(0.01, 2 * LEASE)),
    step("suspend", st.floats(0.01, 2 * LEASE)),
]
LOSSY = [
    step("copy"),
    step("fail_over", small, st.floats(0.0, 1.0)),
    step("delete", small),
    step("lose", small, small, small, st.floats(0.0, 1.0)),
]

thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(st.integers(0, 1000), st.lists(st.one_of(USE + FAULTY), max_size=40))
def test_every_event_comes_once_through_faults(seed: int, steps: list[Step]) -> None:
    run_scenario(seed, steps)


@thorough
@given(st.integers(0, 1000), st.lists(st.one_of(USE + FAULTY + LOSSY), max_size=40))
def test_listeners_are_told_of_what_the_server_lost(seed: int, steps: list[Step]) -> None:
    run_scenario(seed, steps)


@thorough
@given(
    st.integers(0, 1000),
    st.lists(st.one_of(USE + FAULTY + LOSSY), max_size=40),
    st.integers(1, 20),
    st.sampled_from([0, 800, 5_000]),
)
def test_listeners_behind_are_told_of_what_was_dropped(seed: int, steps: list[Step], keep: int, window: int) -> None:
    run_scenario(seed, steps, keep_events=keep, window_bytes=window)


# Without its rule, each of these scenarios breaks a promise.


class Steps(dict[str, Any]):
    """Makes each call a step."""

    def __missing__(self, name: str) -> Callable[..., Step]:
        return lambda *arguments: (name, *arguments)


@dataclass
class Control:
    """Args: without: takes the rule out. steps: as calls."""

    without: Callable[[pytest.MonkeyPatch], object]
    steps: str
    options: dict[str, Any] = field(default_factory=dict)

    def play(self) -> None:
        steps = eval(f"[{self.steps}]", {}, Steps())
        for seed in range(12):
            run_scenario(seed, steps, **self.options)


def without_life(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryStore.commit

    async def made_in_any_life(self: MemoryStore, topic: str, change: Commit) -> Page:
        return await commit(self, topic, replace(change, server=self._server))

    patch.setattr(MemoryStore, "commit", made_in_any_life)


def without_pause(patch: pytest.MonkeyPatch) -> None:
    def look(self: Suspicion, page: Page, state: TopicState, now: float) -> float:
        return inf if not state.producer or state.end is not None else max(0.0, state.lease - page.idle)

    patch.setattr(Suspicion, "look", look)


def with_two_looks_in_a_row(patch: pytest.MonkeyPatch) -> None:
    look = Suspicion.look
    patch.setattr(Suspicion, "look", lambda self, page, state, now: look(self, page, state, now + self._count(page)))
    looks: dict[str, int] = {}

    def count(self: Suspicion, page: Page) -> int:
        looks[page.version] = looks.get(page.version, 0) + (page.idle >= LEASE)
        return looks[page.version] * 10

    patch.setattr(Suspicion, "_count", count, raising=False)


def without_the_next_number(patch: pytest.MonkeyPatch) -> None:
    """Without S2: a reader does not notice dropped events, or that the next number is missing."""

    def found(state: TopicState, after: str | None) -> int:
        number = topic_state._number(state, after)
        if number is None:
            raise GoneError(after=state.id_of(state.first - 1))
        return number

    async def older(self: Position, topic: str) -> Any:
        read = await self._tails.reads.older(topic, self._number)
        assert read is not None
        self._settle(read.state)
        return read.state, list(read.events)

    for module in ("tail", "position"):
        patch.setattr(f"aiopurgatory.streams.{module}.place", found)
    patch.setattr(Position, "_older", older)


def without_epochs(patch: pytest.MonkeyPatch) -> None:
    number = topic_state._number

    def of_any_epoch(state: TopicState, after: str | None) -> int | None:
        _, dash, rest = (after or "").rpartition("-")
        return number(state, f"{state.epoch}{dash}{rest}" if after else None)

    patch.setattr(topic_state, "_number", of_any_epoch)


def held_by_anybody(state: TopicState | None, producer: str) -> TopicState:
    if state is None or state.end is not None:
        raise EndedError
    return state


def without_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "held", held_by_anybody)


def without_comparing_again(patch: pytest.MonkeyPatch) -> None:
    settle = Position._settle
    patch.setattr(Position, "_settle", lambda self, state: settle(self, state) if self._lineage is None else None)


MANY = ", ".join(["write(1)"] * 12)
CONTROLS = {
    "S1, a lost event's id is given again": Control(
        without_life,
        "write(0), listen(2, 0, None), wait(0.3), copy(), write(1), wait(0.3), fail_over(1, 1.0), write(0), wait(1.5)",
    ),
    "S1, a loss that only its writer knows": Control(
        lambda patch: patch.setattr("aiopurgatory.streams.writer.has_lost", lambda *_: False),
        "write(0), listen(2, 0, None), copy(), write(0), write(0), wait(0.3), fail_over(1, 99.0, False), "
        "write(0), write(0), write(0), wait(0.3), listen(2, 1, 1), listen(2, 1, 2), wait(1.5)",
    ),
    "S1, a loss that only its producer knows": Control(
        lambda patch: patch.setattr("aiopurgatory.streams.writer.has_lost", lambda *_: False),
        "begin(0, False), append(0), listen(0, 0, None), copy(), append(0), append(0), wait(0.3), "
        "fail_over(1, 99.0, False), append(0), append(0), append(0), wait(0.3), listen(0, 1, 1), "
        "listen(0, 1, 2), wait(1.5)",
    ),
    "S1, generations": Control(
        lambda patch: patch.setattr(writes, "next_generation", lambda page, state: replace(state, server=page.server)),
        "write(0), listen(2, 0, None), copy(), write(1), wait(0.3), fail_over(1, 1.0), write(0), write(0), "
        "write(0), wait(1.5)",
    ),
    "S1, epochs": Control(
        without_epochs,
        "write(0), listen(2, 0, None), wait(0.3), partition(0, 1.0), delete(2), write(1), write(1), wait(2.0)",
    ),
    "S2, a worker that missed events": Control(
        without_the_next_number,
        f"write(0), listen(2, 0, None), wait(0.3), partition(0, 2.0), {MANY}, wait(3.0)",
        {"keep_events": 4},
    ),
    "S2, a listener that comes late": Control(
        without_the_next_number,
        f"{MANY}, wait(0.3), listen(2, 0, 0), wait(0.3)",
        {"keep_events": 4},
    ),
    "S2, a tail that missed events": Control(
        lambda patch: patch.setattr(Tail, "_jump", lambda self, state: None),
        f"write(0), listen(2, 0, None), wait(0.3), partition(0, 2.0), {MANY}, wait(3.0)",
        {"keep_events": 4},
    ),
    "S2, after a failover": Control(
        without_comparing_again,
        "write(0), listen(2, 0, None), copy(), write(1), wait(0.3), fail_over(1, 0.5), write(0), write(0), wait(1.5)",
    ),
    "S3, ids of writers": Control(
        lambda patch: patch.setattr(writes, "number_of", lambda stamp, state: 0),
        "write(0), wait(0.2), fault(0, 'reply lost'), write(0), wait(0.02), write(1), wait(0.5)",
    ),
    "S4, a producer that was replaced": Control(
        without_fences,
        "begin(0, False), append(0), wait(0.2), begin(0, True), append(1), wait(0.2), append(0), append(1), "
        "wait(0.2), append(1), append(0)",
    ),
    "S4, the end is final": Control(
        lambda patch: patch.setattr(writes, "held", lambda state, producer: state),
        "write(0), end(2, 0), wait(0.2), write(1), write(0)",
    ),
    "S4, the end may be lost": Control(
        lambda patch: patch.setattr(Writer, "_decided", lambda self, decide, page, _: decide(page, self._state)),
        "copy(), end(2, 0), wait(0.2), fail_over(1, 0.1), write(1), wait(0.2), write(0), wait(0.3), listen(2, 1, None)",
    ),
    "S6, the pause": Control(
        without_pause,
        "begin(0, False), listen(0, 0, None), wait(1.0), outage(4.0), partition(0, 4.0), wait(5.0)",
    ),
    "S6, two looks in a row": Control(
        with_two_looks_in_a_row,
        "begin(0, False), listen(0, 0, None), wait(1.0), outage(4.0), partition(0, 4.0), partition(0, 4.0), wait(5.0)",
    ),
    "S6, a second outage": Control(
        lambda patch: patch.setattr(Suspicion, "forget", lambda self: None),
        "begin(0, False), listen(0, 0, None), wait(0.1), outage(3.0), wait(3.1), outage(1.2), wait(5.0)",
    ),
    "S6, an outage within the pause": Control(
        lambda patch: patch.setattr(topic_state, "LOOKS", 1),
        "begin(0, False), listen(0, 0, None), wait(0.1), outage(3.0), wait(3.1), outage(0.9), wait(5.0)",
    ),
    "S6, renewals come within the pause": Control(
        lambda patch: patch.setattr("aiopurgatory.streams.producer.RENEWAL", 1 / 2),
        "begin(0, False), listen(0, 0, None), copy(), wait(3.2), fail_over(1, 0.0), wait(4.0)",
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_rule_keeps_a_promise_that_breaks_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control = CONTROLS[name]
    control.play()
    control.without(monkeypatch)
    with pytest.raises((AssertionError, StoreError)):
        control.play()
