"""Watchers alone: entries come and go in order, and the counts with them."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from aiopurgatory.core.watchers import Watchers

from .parts import Op


def added(watchers: Watchers, *keys: Hashable) -> Op:
    op = Op()
    watchers.enter(op, keys)
    return op


def test_add_keeps_the_order_of_arrival_under_each_key() -> None:
    watchers = Watchers()
    first, second, third = added(watchers, "a", "b"), added(watchers, "b"), added(watchers, "b", "a")
    assert watchers.waiting("a") == [first, third]
    assert watchers.waiting("b") == [first, second, third]
    assert (watchers.entries, watchers.pending) == (5, 3)
    watchers.verify()


def test_remove_drops_keys_that_nothing_watches() -> None:
    watchers = Watchers()
    first, second = added(watchers, "a", "b"), added(watchers, "b")
    watchers.remove(first, ("a", "b"))
    assert (list(watchers.by_key), watchers.waiting("b"), watchers.entries) == (["b"], [second], 1)


def test_drop_of_what_is_not_there_changes_nothing() -> None:
    watchers = Watchers()
    op = added(watchers, "a")
    added(watchers, "b")
    added(watchers, "b")
    for key in ("b", "unknown"):
        watchers.drop(op, key)
    assert watchers.entries == 3


def test_add_with_a_key_that_cannot_be_compared_takes_all_back() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    watchers = Watchers()
    added(watchers, Odd())
    with pytest.raises(ZeroDivisionError):
        added(watchers, "a", Odd())
    assert ("a" in watchers.by_key, watchers.entries, watchers.pending) == (False, 1, 1)


def test_entries_are_listed_and_counted() -> None:
    watchers = Watchers()
    ops = [added(watchers, "key") for _ in range(3)]
    lone = added(watchers, "lone")
    assert (watchers.waiting("key"), watchers.waiting("key", 2), watchers.count("key")) == (ops, ops[:2], 3)
    assert (watchers.waiting("lone"), watchers.waiting("lone", 2), watchers.count("lone")) == ([lone], [lone], 1)
    assert (watchers.waiting("none"), watchers.waiting("none", 2), watchers.count("none")) == ([], [], 0)
