"""Fetches end with enough to read, at the deadline with less, and at once with an error."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.operations import Feed, SourceError, fetch
from aiopurgatory.testing import ManualClock, check_invariants


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
    task = asyncio.create_task(feed.fetch(0, min_bytes=5, timeout=30.0))
    await asyncio.sleep(0)
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
    assert (statistics.completed, statistics.wakeups) == (2, 0)


async def test_fetch_min_bytes_0_never_parks(feed: Feed[str, bytes]) -> None:
    assert await feed.fetch(0, min_bytes=0, timeout=30.0) == b""


async def test_fetch_max_bytes_limits_the_answer(feed: Feed[str, bytes], log: Log) -> None:
    log.data = b"hello"
    assert await feed.fetch(0, timeout=30.0, max_bytes=2) == b"he"


async def test_fetch_min_above_max_waits_for_max(feed: Feed[str, bytes], log: Log) -> None:
    """Kafka clamps it too: more than max_bytes cannot be answered, however long one waits."""
    task = asyncio.create_task(feed.fetch(0, min_bytes=100, timeout=None, max_bytes=2))
    await asyncio.sleep(0)
    log.data = b"hello"
    assert feed.check_and_complete() == 1
    assert await task == b"he"


async def test_fetch_gone_or_truncated_raises_at_once(feed: Feed[str, bytes], log: Log) -> None:
    log.data = b"hello"
    task = asyncio.create_task(feed.fetch(5, min_bytes=1, timeout=30.0))
    await asyncio.sleep(0)
    log.data = b"he"
    assert feed.check_and_complete() == 1
    with pytest.raises(SourceError, match="offset 5 is gone"):
        await task
    with pytest.raises(SourceError, match="offset 9 is gone"):
        await feed.fetch(9, min_bytes=1, timeout=30.0)


async def test_fetch_source_fault_fails_it_alone(feed: Feed[str, bytes], log: Log) -> None:
    task = asyncio.create_task(feed.fetch(0, timeout=0.5))
    other = asyncio.create_task(Feed(feed.purgatory, "orders", Log(b"x")).fetch(0, min_bytes=2, timeout=None))
    await asyncio.sleep(0)
    log.data, log.error = b"x", ZeroDivisionError("a fault")
    assert feed.check_and_complete() == 1
    with pytest.raises(ZeroDivisionError):
        await task
    assert not other.done()
    assert feed.purgatory.statistics().failed == 1
    other.cancel()


async def test_fetch_cancelled_leaves_nothing(feed: Feed[str, bytes]) -> None:
    task = asyncio.create_task(feed.fetch(0, min_bytes=1, timeout=30.0))
    await asyncio.sleep(0)
    task.cancel()
    check_invariants(feed.purgatory)
    assert (feed.purgatory.num_delayed, feed.purgatory.watched_entries) == (0, 0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_fetch_purgatory_closed_raises(feed: Feed[str, bytes]) -> None:
    task = asyncio.create_task(feed.fetch(0, min_bytes=1, timeout=30.0))
    await asyncio.sleep(0)
    feed.purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await task


async def test_fetch_error_leaves_no_cycle(feed: Feed[str, bytes]) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with suppress(SourceError):
                await feed.fetch(9, timeout=0.5)
        found = [
            each for each in gc.get_objects() if type(each).__name__ in ("SourceError", "DelayedFetch", "FeedFetch")
        ]
        assert found == []
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"min_bytes": -1}, ValueError, "min_bytes must be >= 0, got -1"),
        ({"min_bytes": 1.5}, TypeError, "min_bytes must be an int, got 1.5"),
        ({"max_bytes": -1}, ValueError, "max_bytes must be >= 0, got -1"),
        ({"timeout": float("nan")}, ValueError, "timeout must be a number of seconds or None, got nan"),
        ({"timeout": "5"}, TypeError, "timeout must be a number of seconds or None, got '5'"),
        ({"min_bytes": True}, TypeError, "min_bytes must be an int, got True"),
    ],
)
async def test_fetch_with_bad_argument_is_refused(
    feed: Feed[str, bytes], options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await feed.fetch(0, **{"timeout": 0.5} | options)
    assert feed.purgatory.num_delayed == 0


async def test_fetch_timeout_is_a_required_keyword(feed: Feed[str, bytes]) -> None:
    with pytest.raises(TypeError, match="timeout"):
        await feed.fetch(0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        await feed.fetch(0, 30)  # type: ignore[call-arg]


async def test_fetch_past_the_end_waits_if_the_source_lets_it(purgatory: Purgatory) -> None:
    """A reader may ask for an offset past the end, unless the source raises SourceError."""

    class Lenient(Log):
        def readable(self, offset: int) -> int:
            return len(self.data) - offset

        def read(self, offset: int, max_bytes: int) -> bytes:
            assert max_bytes <= max(len(self.data) - offset, 0)  # 0 past the end
            return self.data[offset : offset + max_bytes]

    log = Lenient(b"ab")
    feed = Feed(purgatory, "orders", log)
    task = asyncio.create_task(feed.fetch(3, timeout=30.0))
    await asyncio.sleep(0)
    for data, ended in ((b"abc", 0), (b"a", 0), (b"abcd", 1)):
        log.data = data
        assert feed.check_and_complete() == ended
    assert await task == b"d"
    assert await feed.fetch(9, timeout=0) == b""


async def test_feed_with_unhashable_key_is_refused(purgatory: Purgatory, log: Log) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        Feed(purgatory, [], log)  # type: ignore[type-var]


# several sources

Answers = asyncio.Task[dict[Any, Any]]


async def begun(purgatory: Purgatory, positions: Any, **options: Any) -> Answers:
    """A fetch(), which has been watched when this returns."""
    task = asyncio.create_task(fetch(purgatory, positions, **{"timeout": 30.0} | options))
    await asyncio.sleep(0)
    return task


async def test_fetch_counts_all_sources_together(purgatory: Purgatory) -> None:
    logs = [Log(), Log()]
    task = await begun(purgatory, {("orders", i): (log, 0) for i, log in enumerate(logs)}, min_bytes=4)
    logs[0].data = b"ab"
    assert purgatory.check_and_complete(("orders", 0)) == 0
    logs[1].data = b"cde"
    assert purgatory.check_and_complete(("orders", 1)) == 1
    assert await task == {("orders", 0): b"ab", ("orders", 1): b"cde"}
    assert purgatory.watched_entries == 0


async def test_fetch_at_deadline_returns_what_all_have(purgatory: Purgatory, clock: ManualClock) -> None:
    positions = {"a": (Log(b"a"), 0), "b": (Log(), 0)}
    task = await begun(purgatory, positions, min_bytes=10, timeout=1.0)
    positions.clear()  # it has its own
    await clock.advance(1.0)
    assert await task == {"a": b"a", "b": b""}


async def test_fetch_max_bytes_is_shared_in_order(purgatory: Purgatory) -> None:
    positions = {"a": (Log(b"aaa"), 1), "b": (Log(b"bbb"), 0), "c": (Log(b"ccc"), 0)}
    assert await fetch(purgatory, positions, timeout=None, max_bytes=4) == {"a": b"aa", "b": b"bb", "c": b""}


async def test_fetch_error_of_one_is_told_with_the_rest(purgatory: Purgatory) -> None:
    good, bad = Log(b"ab"), Log(b"cd")
    task = await begun(purgatory, {"good": (good, 0), "bad": (bad, 2)}, min_bytes=10)
    bad.first = 3
    assert purgatory.check_and_complete("bad") == 1
    answers = await task
    assert answers["good"] == b"ab"
    assert isinstance(answers["bad"], SourceError)
    assert purgatory.statistics().completed == 1


async def test_fetch_reads_again_when_it_answers(purgatory: Purgatory) -> None:
    """The answer has all that came after the count."""

    class Growing(Log):
        def readable(self, offset: int) -> int:
            self.data += b"x"
            return super().readable(offset)

    assert len(await Feed(purgatory, "a", Growing()).fetch(0, timeout=30.0)) > 1


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
    class Lenient(Log):
        def readable(self, offset: int) -> int:
            return len(self.data) - offset

    positions = {"short": (Lenient(b"ab"), 5), "long": (Lenient(b"abc"), 0)}
    assert (await fetch(purgatory, positions, timeout=30.0, max_bytes=2))["long"] == b"ab"
    assert purgatory.statistics().wakeups == 0


async def test_fetch_of_nothing_is_refused(purgatory: Purgatory) -> None:
    with pytest.raises(ValueError, match="positions must name at least one source, got none"):
        await fetch(purgatory, {}, timeout=1.0)


async def test_feed_counts_its_fetches(purgatory: Purgatory, feed: Feed[str, bytes]) -> None:
    waiting = asyncio.create_task(feed.fetch(0, timeout=30.0))
    await asyncio.sleep(0)
    assert (len(feed), repr(feed)) == (1, "<Feed 'orders' waiting=1>")
    waiting.cancel()
    assert len(feed) == 0
