"""Watchers alone: what is listed and counted under a key."""

from __future__ import annotations

from aiopurgatory.core.watchers import Watchers

from .parts import Op


def test_entries_are_listed_and_counted() -> None:
    watchers, ops = Watchers(), [Op() for _ in range(4)]
    for op, key in zip(ops, ("key", "key", "key", "lone"), strict=True):
        watchers.enter(op, (key,))
    expected: dict[str, list[Op]] = {"key": ops[:3], "lone": ops[3:], "none": []}
    for key, under in expected.items():
        assert (watchers.waiting(key), watchers.waiting(key, 2), watchers.count(key)) == (under, under[:2], len(under))
    for key in ("key", "none"):
        watchers.remove(ops[3], (key,))  # it is at neither
    assert watchers.entries == 4
    watchers.verify()
