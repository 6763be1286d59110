"""The pauses between attempts to connect, in virtual time."""

from __future__ import annotations

import pytest

from aiopurgatory.bus.reconnecting import LONGEST_PAUSE, Pauses


def pauses(count: int, up_for: float, timed_out: bool, timeout: float = 5.0) -> list[float]:
    made = Pauses(timeout)
    return [made.after(up_for, timed_out) for _ in range(count)]


@pytest.fixture(autouse=True)
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.clock.random", lambda: 1.0)


def test_pause_server_down_doubles_up_to_a_bound() -> None:
    assert pauses(3, 0.0, False) == [0.05, 0.1, 0.2]
    assert pauses(100, 0.0, False)[-1] == LONGEST_PAUSE


@pytest.mark.parametrize("timed_out", [False, True])
def test_half_of_a_pause_is_random(monkeypatch: pytest.MonkeyPatch, timed_out: bool) -> None:
    longest = pauses(4, 0.0, timed_out)
    monkeypatch.setattr("aiopurgatory.clock.random", lambda: 0.0)
    assert pauses(4, 0.0, timed_out) == [pause / 2 for pause in longest]


def test_pause_after_attempts_that_timed_out_grows_by_timeouts() -> None:
    assert pauses(4, 0.0, True) == [0.05, 5.0, 10.0, 10.0]
    assert pauses(6, 0.0, True, timeout=1.0)[2:] == [2.0, 4.0, 4.0, 4.0]
    assert pauses(4, 0.0, True, timeout=30.0)[1:] == [30.0] * 3


@pytest.mark.parametrize(("up_for", "timed_out"), [(0.0, False), (1.0, True)])
def test_pause_after_an_answer_forgets_what_timed_out(up_for: float, timed_out: bool) -> None:
    made = Pauses(5.0)
    for _ in range(5):
        made.after(0.0, True)
    assert made.after(up_for, timed_out) <= LONGEST_PAUSE
    made.after(0.0, False)
    assert made.after(0.0, True) <= LONGEST_PAUSE
