"""Each listener gets each event once, in order, or is told that some are gone: under every fault of a network."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
