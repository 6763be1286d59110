"""Rules for all collections of waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Feed, Heartbeats, JoinBarrier, Replicas, Thresholds

MAKERS: dict[str, Callable[[Purgatory], Any]] = {
    "Feed": lambda purgatory: Feed(purgatory, "key", Nothing()),
    "Heartbeats": lambda purgatory: Heartbeats(purgatory, "key", timeout=3.0, on_missed=print),
    "JoinBarrier": lambda purgatory: JoinBarrier[str](purgatory, "key", rebalance_timeout=3.0, expected=["bob"]),
    "Replicas": lambda purgatory: Replicas(purgatory, "key", ["leader"]),
    "Thresholds": lambda purgatory: Thresholds(purgatory, "key"),
}
#: How something begins to wait there.
BEGIN: dict[str, Callable[[Any], Any]] = {
    "Feed": lambda feed: feed.fetch(0, timeout=None),
    "JoinBarrier": lambda group: group.join("ann"),
    "Thresholds": lambda thresholds: thresholds.reached(1, timeout=None),
}


class Nothing:
    def readable(self, offset: int) -> int:
        return 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        return b""


@pytest.mark.parametrize("name", MAKERS)
async def test_key_and_purgatory_are_read_only(purgatory: Purgatory, name: str) -> None:
    each = MAKERS[name](purgatory)
    for attribute in ("key", "purgatory"):
        with pytest.raises(AttributeError):
            setattr(each, attribute, None)
    assert (each.key, each.purgatory) == ("key", purgatory)


@pytest.mark.parametrize("name", MAKERS)
async def test_repr_begins_with_name_and_key(purgatory: Purgatory, name: str) -> None:
    assert repr(MAKERS[name](purgatory)).startswith(f"<{name} 'key' ")


@pytest.mark.parametrize("name", BEGIN)
async def test_len_is_how_many_wait(purgatory: Purgatory, name: str) -> None:
    each = MAKERS[name](purgatory)
    assert len(each) == 0
    task = asyncio.ensure_future(BEGIN[name](each))
    await asyncio.sleep(0)
    assert len(each) == 1
    task.cancel()
    assert len(each) == 0
