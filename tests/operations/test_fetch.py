"""Fetches end with enough to read, at the deadline with less, and at once with an error."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Feed, SourceError, fetch
from aiopurgatory.testing import ManualClock

from .helpers import begun


class Log:
    """Bytes from *first* on."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.first = 0
        self.error: Exception | None = None

    def readable(self, offset: int) -> int:
        if self.error is not None:
            raise self.error
        if not self.first <= offset <= len(self.data):
            raise SourceError(f"offset {offset} is gone")
        return len(self.data) - offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        self.readable(offset)
        return self.data[offset : offset + max_bytes]


class Lenient(Log):
    """A reader may ask for an offset past the end."""

    def readable(self, offset: int) -> int:
        return len(self.data) - offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        assert max_bytes <= max(self.readable(offset), 0)  # 0 past the end
        return super().read(offset, max_bytes)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def feed(purgatory: Purgatory, log: Log) -> Feed[str, bytes]:
    return Feed(purgatory, "orders", log)


# one source


async def test_fetch_enough_there_never_parks(feed: Feed[str, bytes], log: Log) -> None:
    log.data = b"hello"
    assert await feed.fetch(1, min_bytes=4, timeout=30.0) == b"ello"
    assert feed.purgatory.statistics().wakeups == 0
    assert feed.purgatory.watched_entries == 0


async def test_fetch_waits_for_min_bytes(feed: Feed[str, bytes], log: Log) -> None:
    task = await begun(feed.fetch(0, min_bytes=5, timeout=30.0))
    log.data += b"hell"
    assert feed.check_and_complete() == 0
    log.data += b"o, world"
    assert feed.check_and_complete() == 1
    assert await task == b"hello, world"


@pytest.mark.parametrize("there", [b"", b"hel"])
async def test_fetch_at_deadline_returns_what_there_is(
    feed: Feed[str, bytes], log: Log, clock: ManualClock, there: bytes
) -> None:
    task = asyncio.create_task(feed.fetch(0, min_bytes=5, timeout=1.0))
    await clock.advance(0.5)
    log.data += there
    feed.check_and_complete()
    await clock.advance(0.499)
    assert not task.done()
    await clock.advance(0.001)
    assert await task == there
    assert feed.purgatory.statistics().expired == 1


async def test_fetch_enough_with_the_deadline_completes(feed: Feed[str, bytes], log: Log, clock: ManualClock) -> None:
    task = asyncio.create_task(feed.fetch(0, min_bytes=1, timeout=1.0))
    await clock.advance(0.5)
    log.data = b"x"  # and no key is checked
    await clock.advance(0.5)
    assert await task == b"x"
    assert feed.purgatory.statistics().completed == 1


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.001, float("-inf")])
async def test_fetch_without_time_answers_at_once(
    feed: Feed[str, bytes], log: Log, full: Purgatory, timeout: float
) -> None:
    log.data = b"he"
    assert await fetch(full, {"orders": (log, 0)}, timeout=timeout, min_bytes=5) == {"orders": b"he"}
    assert await feed.fetch(0, min_bytes=5, timeout=timeout) == b"he"
    assert await feed.fetch(2, min_bytes=5, timeout=timeout) == b""
    statistics = feed.purgatory.statistics()
    assert (statistics.expired, statistics.wakeups) == (2, 0)


async def test_fetch_min_bytes_0_never_parks(feed: Feed[str, bytes]) -> None:
    assert await feed.fetch(0, min_bytes=0, timeout=30.0) == b""


async def test_fetch_min_above_max_waits_for_max(feed: Feed[str, bytes], log: Log) -> None:
    """Kafka clamps it too: more than max_bytes cannot be answered, however long one waits."""
    task = await begun(feed.fetch(0, min_bytes=100, timeout=None, max_bytes=2))
    log.data = b"hello"
    assert feed.check_and_complete() == 1
    assert await task == b"he"


async def test_fetch_gone_or_truncated_raises_at_once(feed: Feed[str, bytes], log: Log) -> None:
    log.data = b"hello"
    task = await begun(feed.fetch(5, min_bytes=1, timeout=30.0))
    log.data = b"he"
    assert feed.check_and_complete() == 1
    with pytest.raises(SourceError, match="offset 5 is gone"):
        await task
    with pytest.raises(SourceError, match="offset 9 is gone"):
        await feed.fetch(9, min_bytes=1, timeout=30.0)


async def test_fetch_source_fault_fails_it_alone(feed: Feed[str, bytes], log: Log) -> None:
    task = await begun(feed.fetch(0, timeout=0.5))
    other = await begun(Feed(feed.purgatory, "orders", Log(b"x")).fetch(0, min_bytes=2, timeout=None))
    log.data, log.error = b"x", ZeroDivisionError("a fault")
    assert feed.check_and_complete() == 1
    with pytest.raises(ZeroDivisionError):
        await task
    assert not other.done()
    assert feed.purgatory.statistics().failed == 1
    other.cancel()


@pytest.mark.usefixtures("without_gc")
async def test_fetch_error_leaves_no_cycle(feed: Feed[str, bytes]) -> None:
    for _ in range(3):
        with suppress(SourceError):
            await feed.fetch(9, timeout=0.5)
    found = [each for each in gc.get_objects() if type(each).__name__ in ("SourceError", "DelayedFetch", "FeedFetch")]
    assert found == []


async def test_fetch_past_the_end_waits_if_the_source_lets_it(purgatory: Purgatory) -> None:
    """A reader may ask for an offset past the end, unless the source raises SourceError."""
    log = Lenient(b"ab")
    feed = Feed(purgatory, "orders", log)
    task = await begun(feed.fetch(3, timeout=30.0))
    for data, ended in ((b"abc", 0), (b"a", 0), (b"abcd", 1)):
        log.data = data
        assert feed.check_and_complete() == ended
    assert await task == b"d"
    assert await feed.fetch(9, timeout=0) == b""


# several sources


async def fetching(purgatory: Purgatory, positions: Any, **options: Any) -> asyncio.Task[dict[Any, Any]]:
    return await begun(fetch(purgatory, positions, **{"timeout": 30.0} | options))


async def test_fetch_counts_all_sources_together(purgatory: Purgatory) -> None:
    logs = [Log(), Log()]
    task = await fetching(purgatory, {("orders", i): (log, 0) for i, log in enumerate(logs)}, min_bytes=4)
    logs[0].data = b"ab"
    assert purgatory.check_and_complete(("orders", 0)) == 0
    logs[1].data = b"cde"
    assert purgatory.check_and_complete(("orders", 1)) == 1
    assert await task == {("orders", 0): b"ab", ("orders", 1): b"cde"}
    assert purgatory.watched_entries == 0


async def test_fetch_at_deadline_returns_what_all_have(purgatory: Purgatory, clock: ManualClock) -> None:
    positions = {"a": (Log(b"a"), 0), "b": (Log(), 0)}
    task = await fetching(purgatory, positions, min_bytes=10, timeout=1.0)
    positions.clear()  # it has its own
    await clock.advance(1.0)
    assert await task == {"a": b"a", "b": b""}


async def test_fetch_max_bytes_is_shared_in_order(purgatory: Purgatory) -> None:
    positions = {"a": (Log(b"aaa"), 1), "b": (Log(b"bbb"), 0), "c": (Log(b"ccc"), 0)}
    assert await fetch(purgatory, positions, timeout=None, max_bytes=4) == {"a": b"aa", "b": b"bb", "c": b""}


async def test_fetch_error_of_one_is_told_with_the_rest(purgatory: Purgatory) -> None:
    good, bad = Log(b"ab"), Log(b"cd")
    task = await fetching(purgatory, {"good": (good, 0), "bad": (bad, 2)}, min_bytes=10)
    bad.first = 3
    assert purgatory.check_and_complete("bad") == 1
    answers = await task
    assert answers["good"] == b"ab"
    assert isinstance(answers["bad"], SourceError)
    assert purgatory.statistics().completed == 1


async def test_fetch_of_items_counts_items(purgatory: Purgatory) -> None:
    class Queue:
        items = ["a", "b", "c"]  # noqa: RUF012

        def readable(self, offset: int) -> int:
            return len(self.items) - offset

        def read(self, offset: int, max_bytes: int) -> list[str]:
            return self.items[offset : offset + max_bytes]

    feed = Feed(purgatory, "feed", Queue())
    assert await feed.fetch(1, min_bytes=2, timeout=30.0) == ["b", "c"]


async def test_fetch_past_one_end_takes_nothing_from_the_others(purgatory: Purgatory) -> None:
    positions = {"short": (Lenient(b"ab"), 5), "long": (Lenient(b"abc"), 0)}
    assert (await fetch(purgatory, positions, timeout=30.0, max_bytes=2))["long"] == b"ab"
    assert purgatory.statistics().wakeups == 0
