"""Wake-ups: the messages of commits, as keys of a bus."""

from __future__ import annotations

from typing import Any

import pytest

from aiopurgatory.bus.keys import MAX_LINE, encode
from aiopurgatory.streams.store import Change, Commit, Row
from aiopurgatory.streams.wakeups import MAX_CARRIED, WakeUps, wake_up


def commit(rows: list[Row], is_plain: bool = True) -> Commit:
    return Commit("1.ab", "server", "2.cd", "{}", rows, 1, is_plain)


@pytest.mark.parametrize("text", ["token\nto be", "", 'a "\\\x7f\r\n\x01', "ä€𝄞", "x" * MAX_CARRIED])
@pytest.mark.parametrize("topic", ["run-1", "ein Ort, überall"])
def test_wake_up_with_an_event_is_its_key(topic: str, text: str) -> None:
    assert wake_up("log", topic, commit([(2, text)])) == encode(("log", topic, "1.ab", "2.cd", 2, text))


def test_wake_up_of_a_renewal_is_its_key() -> None:
    assert wake_up("log", "run", commit([])) == encode(("log", "run", "1.ab", "2.cd"))


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
    line = wake_up("log", "run", other)
    assert line == encode(("log", "run"))
    assert len(line) <= MAX_LINE


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (("log", "run", "1.ab", "2.cd", 2, "a"), [("run", Change("1.ab", "2.cd", [(2, "a")]))]),
        (("log", "run", "1.ab", "2.cd"), [("run", Change("1.ab", "2.cd", []))]),
        (("log", "run"), [("run", None)]),
        (("log", "run", "of", "a later version", 1, 2, 3), [("run", None)]),
        (("log", "run", "1.ab", "2.cd", True, "a"), [("run", None)]),
        (("other", "run"), []),
        (("log", 7), []),
        (("log",), []),
        ("log", []),
        (None, []),
    ],
)
def test_notify_key_tells_what_it_says(key: Any, told: list[tuple[str, Change | None]]) -> None:
    heard: list[tuple[str, Change | None]] = []
    WakeUps("log", lambda topic, change: heard.append((topic, change)), lambda: None).notify(key)
    assert heard == told
