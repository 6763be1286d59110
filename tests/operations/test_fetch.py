"""Fetch: enough, or what there is at the deadline; errors end it at once."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.operations import DelayedFetch, SourceError, Topic
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
def topic(purgatory: Purgatory, log: Log) -> Topic[str, bytes]:
    return Topic(purgatory, "orders", log)


# one source


async def test_fetch_enough_there_never_parks(topic: Topic[str, bytes], log: Log) -> None:
    log.data = b"hello"
    assert await topic.fetch(1, 4, 30.0) == b"ello"
    assert topic.purgatory.statistics().wakeups == 0
    assert topic.purgatory.watched == 0


async def test_fetch_waits_for_min_bytes(topic: Topic[str, bytes], log: Log) -> None:
    task = asyncio.create_task(topic.fetch(0, 5, 30.0))
    await asyncio.sleep(0)
    log.data += b"hell"
    assert topic.changed() == 0
    log.data += b"o, world"
    assert topic.changed() == 1
    assert await task == b"hello, world"


@pytest.mark.parametrize("there", [b"", b"hel"])
async def test_fetch_at_deadline_returns_what_there_is(
    topic: Topic[str, bytes], log: Log, clock: ManualClock, there: bytes
) -> None:
    task = asyncio.create_task(topic.fetch(0, 5, 1.0))
    await clock.advance(0.5)
    log.data += there
    topic.changed()
    await clock.advance(0.499)
    assert not task.done()
    await clock.advance(0.001)
    assert await task == there
    assert topic.purgatory.statistics().expired == 1


async def test_fetch_enough_with_the_deadline_completes(topic: Topic[str, bytes], log: Log, clock: ManualClock) -> None:
    task = asyncio.create_task(topic.fetch(0, 1, 1.0))
    await clock.advance(0.5)
    log.data = b"x"  # and nobody is told
    await clock.advance(0.5)
    assert await task == b"x"
    assert topic.purgatory.statistics().completed == 1


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.5, float("-inf")])
async def test_fetch_without_wait_never_parks(topic: Topic[str, bytes], log: Log, timeout: float) -> None:
    log.data = b"he"
    op = topic.purgatory.watch(DelayedFetch({"orders": (log, 0)}, timeout, min_bytes=5), ["orders"])
    assert (op.outcome, op.result()) == (Outcome.COMPLETED, {"orders": b"he"})
    assert await topic.fetch(0, 5, timeout) == b"he"
    assert topic.purgatory.watched == 0


async def test_fetch_min_bytes_0_never_parks(topic: Topic[str, bytes]) -> None:
    assert await topic.fetch(0, 0, 30.0) == b""


async def test_fetch_max_bytes_limits_the_answer(topic: Topic[str, bytes], log: Log) -> None:
    log.data = b"hello"
    assert await topic.fetch(0, 1, 30.0, max_bytes=2) == b"he"


async def test_fetch_min_above_max_waits_for_max(topic: Topic[str, bytes], log: Log) -> None:
    """Kafka clamps it too: more than max_bytes cannot be answered, however long one waits."""
    task = asyncio.create_task(topic.fetch(0, 100, None, max_bytes=2))
    await asyncio.sleep(0)
    log.data = b"hello"
    assert topic.changed() == 1
    assert await task == b"he"


async def test_fetch_gone_or_truncated_raises_at_once(topic: Topic[str, bytes], log: Log) -> None:
    log.data = b"hello"
    task = asyncio.create_task(topic.fetch(5, 1, 30.0))
    await asyncio.sleep(0)
    log.data = b"he"
    assert topic.changed() == 1
    with pytest.raises(SourceError, match="offset 5 is gone"):
        await task
    with pytest.raises(SourceError, match="offset 9 is gone"):
        await topic.fetch(9, 1, 30.0)


async def test_fetch_source_fault_fails_it_alone(topic: Topic[str, bytes], log: Log) -> None:
    task = asyncio.create_task(topic.fetch(0))
    other = asyncio.create_task(Topic(topic.purgatory, "orders", Log(b"x")).fetch(0, 2, None))
    await asyncio.sleep(0)
    log.error = ZeroDivisionError("a fault")
    assert topic.changed() == 1
    with pytest.raises(ZeroDivisionError):
        await task
    assert not other.done()
    assert topic.purgatory.statistics().failed == 1
    other.cancel()


async def test_fetch_cancelled_leaves_nothing(topic: Topic[str, bytes]) -> None:
    task = asyncio.create_task(topic.fetch(0, 1, 30.0))
    await asyncio.sleep(0)
    task.cancel()
    check_invariants(topic.purgatory)
    assert (topic.purgatory.num_delayed, topic.purgatory.watched) == (0, 0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_fetch_purgatory_closed_raises(topic: Topic[str, bytes]) -> None:
    task = asyncio.create_task(topic.fetch(0, 1, 30.0))
    await asyncio.sleep(0)
    topic.purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await task


async def test_fetch_error_leaves_no_cycle(topic: Topic[str, bytes]) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with suppress(SourceError):
                await topic.fetch(9)
        found = [each for each in gc.get_objects() if type(each) in (SourceError, DelayedFetch)]
        assert found == []
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"min_bytes": -1}, ValueError, "min_bytes must be >= 0, got -1"),
        ({"min_bytes": 1.5}, TypeError, "min_bytes must be an int, got 1.5"),
        ({"max_bytes": -1}, ValueError, "max_bytes must be >= 0, got -1"),
        ({"timeout": float("nan")}, ValueError, "timeout must be >= 0 s, got nan"),
        ({"timeout": "5"}, TypeError, "timeout must be a number of seconds or None, got '5'"),
    ],
)
async def test_fetch_with_bad_argument_is_refused(
    topic: Topic[str, bytes], options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await topic.fetch(0, **options)
    assert topic.purgatory.num_delayed == 0


async def test_topic_with_unhashable_key_is_refused(purgatory: Purgatory, log: Log) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        Topic(purgatory, [], log)  # type: ignore[type-var]


# several sources


async def test_fetch_counts_all_partitions_together(purgatory: Purgatory) -> None:
    logs = [Log(), Log()]
    op = DelayedFetch({("orders", i): (log, 0) for i, log in enumerate(logs)}, 30.0, min_bytes=4)
    purgatory.watch(op, op.positions)
    logs[0].data = b"ab"
    assert purgatory.check_and_complete(("orders", 0)) == 0
    logs[1].data = b"cde"
    assert purgatory.check_and_complete(("orders", 1)) == 1
    assert await op == {("orders", 0): b"ab", ("orders", 1): b"cde"}
    assert purgatory.watched == 0


async def test_fetch_max_bytes_is_shared_in_order(purgatory: Purgatory) -> None:
    positions = {"a": (Log(b"aaa"), 1), "b": (Log(b"bbb"), 0), "c": (Log(b"ccc"), 0)}
    op = purgatory.watch(DelayedFetch(positions, None, max_bytes=4), positions)
    assert await op == {"a": b"aa", "b": b"bb", "c": b""}


async def test_fetch_error_of_one_is_told_with_the_rest(purgatory: Purgatory) -> None:
    good, bad = Log(b"ab"), Log(b"cd")
    positions = {"good": (good, 0), "bad": (bad, 2)}
    op = purgatory.watch(DelayedFetch(positions, 30.0, min_bytes=10), positions)
    bad.first = 3
    assert purgatory.check_and_complete("bad") == 1
    answers = await op
    assert answers["good"] == b"ab"
    assert isinstance(answers["bad"], SourceError)
    assert op.outcome is Outcome.COMPLETED


async def test_fetch_reads_again_when_it_answers(purgatory: Purgatory) -> None:
    """What comes between the count and the answer is in the answer."""

    class Growing(Log):
        def readable(self, offset: int) -> int:
            self.data += b"x"
            return super().readable(offset)

    op = purgatory.watch(DelayedFetch({"a": (Growing(), 0)}, 30.0), ["a"])
    assert len((await op)["a"]) > 1  # type: ignore[arg-type]


async def test_fetch_of_items_counts_items(purgatory: Purgatory) -> None:
    class Feed:
        items = ["a", "b", "c"]  # noqa: RUF012

        def readable(self, offset: int) -> int:
            return len(self.items) - offset

        def read(self, offset: int, max_bytes: int) -> list[str]:
            return self.items[offset : offset + max_bytes]

    feed = Topic(purgatory, "feed", Feed())
    assert await feed.fetch(1, 2, 30.0) == ["b", "c"]


async def test_fetch_past_the_end_of_one_source_takes_nothing_from_the_others(purgatory: Purgatory) -> None:
    class Lenient(Log):
        def readable(self, offset: int) -> int:
            return len(self.data) - offset

    short, long = Lenient(b"ab"), Lenient(b"abc")
    op = purgatory.watch(
        DelayedFetch({"short": (short, 5), "long": (long, 0)}, 30.0, min_bytes=1, max_bytes=2), ["long"]
    )
    assert op.outcome is Outcome.COMPLETED
    assert (await op)["long"] == b"ab"


async def test_fetch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positions must name at least one source, got none"):
        DelayedFetch({}, 1.0)
