"""Wake-ups: the messages of commits, which are no keys of a bus."""

from __future__ import annotations

import json

import pytest

from aiopurgatory.bus.keys import MAX_MESSAGE
from aiopurgatory.streams.store import Change, Commit, Row
from aiopurgatory.streams.wakeups import MAX_CARRIED, told_by, wake_up


def commit(rows: list[Row], is_plain: bool = True) -> Commit:
    return Commit("1.ab", "server", "2.cd", "{}", rows, 1, 60.0, is_plain)


def message(*parts: object) -> str:
    return f"#log {json.dumps(parts, separators=(',', ':'))}"


@pytest.mark.parametrize("text", ["token\nto be", "", 'a "\\\x7f\r\n\x01', "ä€𝄞", "x" * MAX_CARRIED])
@pytest.mark.parametrize("topic", ["run-1", "ein Ort, überall"])
def test_wake_up_with_an_event_carries_it(topic: str, text: str) -> None:
    assert wake_up("log", topic, commit([(2, text)])) == message(topic, "1.ab", "2.cd", 2, text)


def test_wake_up_of_a_renewal_carries_its_versions() -> None:
    assert wake_up("log", "run", commit([])) == message("run", "1.ab", "2.cd")


@pytest.mark.parametrize(
    "other",
    [
        commit([(2, "x" * (MAX_CARRIED + 1))]),
        commit([(2, "𝄞" * MAX_CARRIED)]),  # 12 bytes each
        commit([(2, "a"), (3, "b")]),
        commit([(2, "a")], is_plain=False),
    ],
    ids=["long", "too_long_as_json", "two_events", "not_plain"],
)
def test_wake_up_of_another_commit_names_the_topic(other: Commit) -> None:
    assert wake_up("log", "run", other) == message("run")
    assert len(wake_up("l" * 40, "𝄞" * 200, other)) <= MAX_MESSAGE


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (message("run", "1.ab", "2.cd", 2, "a"), ("run", Change("1.ab", "2.cd", [(2, "a")]))),
        (message("run", "1.ab", "2.cd"), ("run", Change("1.ab", "2.cd", []))),
        (message("run"), ("run", None)),
        (message("run", "of", "a later version", 1, 2, 3), ("run", None)),
        (message("run", "1.ab", "2.cd", True, "a"), ("run", None)),
        ('#other ["run"]', None),
        ('#log2 ["run"]', None),
        (message(7), None),
        (message(), None),
        ("#log 7", None),
        ("#log {", None),
        ("#log " + "[" * 5000, None),
        ("#log", None),
    ],
)
def test_told_by_message_is_what_it_says(heard: str, told: tuple[str, Change | None] | None) -> None:
    assert told_by("log", heard) == told
