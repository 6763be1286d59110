"""follow(): the newest value of something that changes, with one operation for the whole stream."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryFullError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import turns


class Value:
    """Something that changes. A read takes the value at its beginning, and returns when the test lets it."""

    def __init__(self) -> None:
        self.version = 1
        self.reads = self.reading = 0
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, since: int | None) -> tuple[int, str] | None:
        self.reads += 1
        seen = self.version
        if self.errors:
            raise self.errors.pop(0)
        if not self.gate.is_set():
            self.reading += 1
            try:
                await self.gate.wait()
            finally:
                self.reading -= 1
        return None if seen == since else (seen, f"value {seen}")

    def set(self, version: int, purgatory: Purgatory) -> None:
        self.version = version
        purgatory.check_and_complete("key")


class Consumer:
    """A task that follows *value*, and notes each value it gets. It is busy with each until *hold* is set."""

    def __init__(self, purgatory: Purgatory, value: Value, **options: Any) -> None:
        self.got: list[Any] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.changes = purgatory.follow(["key"], value.read, **options)
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        async for found in self.changes:
            self.got.append(found)
            await self.hold.wait()


async def following(purgatory: Purgatory, value: Value, is_reading: bool = False) -> Consumer:
    """A consumer that waits after its first value, or has begun another read."""
    consumer = Consumer(purgatory, value)
    await turns(3)
    if is_reading:
        value.gate.clear()
        value.set(2, purgatory)
        await turns(3)
    return consumer


@pytest.fixture
def value() -> Value:
    return Value()


async def test_each_change_is_yielded_by_one_operation(purgatory: Purgatory, value: Value) -> None:
    consumer = Consumer(purgatory, value)
    await turns(2)
    (op,) = purgatory.waiting("key")
    for version in (2, 3):
        value.set(version, purgatory)
        await turns(3)
    assert consumer.got == ["value 1", "value 2", "value 3"]
    assert purgatory.waiting("key") == [op]
    purgatory.check_and_complete("key")
    await turns(3)
    statistics = purgatory.statistics()
    assert (len(consumer.got), value.reads) == (3, 4)
    assert (statistics.checks, statistics.checks_without_effect) == (3, 0)
    assert (statistics.reads, statistics.reads_in_vain) == (3, 1)
    check_invariants(purgatory)


async def test_nothing_is_parked_before_the_first_next(purgatory: Purgatory, value: Value) -> None:
    changes = purgatory.follow(["key"], value.read, 1)
    assert (purgatory.num_delayed, value.reads) == (0, 0)
    await changes.aclose()
    assert [found async for found in changes] == []
    assert value.reads == 0


async def test_checks_while_the_consumer_is_busy_are_one_more_read(purgatory: Purgatory, value: Value) -> None:
    consumer = Consumer(purgatory, value)
    consumer.hold.clear()
    await turns(3)
    for version in range(2, 102):
        value.set(version, purgatory)
        await turns(1)
    assert (consumer.got, value.reads) == (["value 1"], 1)
    consumer.hold.set()
    await turns(3)
    assert (consumer.got, value.reads) == (["value 1", "value 101"], 2)


async def test_idle_yields_none_after_each_time_without_a_value(
    purgatory: Purgatory, value: Value, clock: ManualClock
) -> None:
    consumer = Consumer(purgatory, value, idle=10.0)
    await clock.advance(9.999)
    assert consumer.got == ["value 1"]
    await clock.advance(0.001)
    assert consumer.got == ["value 1", None]
    await clock.advance(7.0)
    value.set(2, purgatory)
    await clock.advance(9.999)
    assert consumer.got == ["value 1", None, "value 2"]
    await clock.advance(20.002)
    assert consumer.got == ["value 1", None, "value 2", None, None, None]
    check_invariants(purgatory)


async def test_check_without_news_does_not_put_idle_off(purgatory: Purgatory, value: Value, clock: ManualClock) -> None:
    consumer = Consumer(purgatory, value, idle=10.0)
    await clock.advance(9.0)
    purgatory.check_and_complete("key")
    await clock.advance(1.001)
    assert consumer.got == ["value 1", None]


async def test_idle_is_not_counted_while_the_consumer_is_busy(
    purgatory: Purgatory, value: Value, clock: ManualClock
) -> None:
    consumer = Consumer(purgatory, value, idle=10.0)
    await clock.advance(0.0)
    consumer.hold.clear()
    value.set(2, purgatory)
    await clock.advance(100.0)
    consumer.hold.set()
    await clock.advance(9.9)
    assert consumer.got == ["value 1", "value 2"]
    await clock.advance(0.2)
    assert consumer.got == ["value 1", "value 2", None]


@pytest.mark.parametrize("option", ["idle", "timeout"])
async def test_end_of_a_time_reads_once_more(
    purgatory: Purgatory, value: Value, clock: ManualClock, option: str
) -> None:
    consumer = Consumer(purgatory, value, **{option: 5.0})
    await clock.advance(4.0)
    value.version = 2  # and nobody is told
    await clock.advance(1.0)
    assert consumer.got == ["value 1", "value 2"]
    assert consumer.task.done() == (option == "timeout")


async def test_idle_timer_is_lazy(purgatory: Purgatory, value: Value, clock: ManualClock) -> None:
    consumer = Consumer(purgatory, value, idle=10.0)
    await clock.advance(0.0)
    before = purgatory.statistics().wakeups
    for version in range(2, 1_002):
        value.set(version, purgatory)
        await turns(3)
    await clock.advance(9.9)
    assert len(consumer.got) == 1_001
    assert purgatory.statistics().wakeups - before <= 4  # cascades of the wheel


async def test_expire_all_is_an_idle_time(purgatory: Purgatory, value: Value) -> None:
    patient = Consumer(purgatory, value)
    waiting = Consumer(purgatory, value, idle=10.0)
    await turns(3)
    assert purgatory.expire_all() == 0
    await turns(5)
    assert (patient.got, waiting.got) == (["value 1"], ["value 1", None])
    check_invariants(purgatory)


#: Ways to end it, the error that the consumer sees, and whether the iteration is over.
ENDS: dict[str, tuple[Callable[[Purgatory, Consumer], object], type[BaseException] | None, bool]] = {
    "close": (lambda purgatory, _: purgatory.close(), None, True),
    "fail_for_key": (lambda purgatory, _: purgatory.fail_for_key("key", LookupError()), LookupError, True),
    "cancel_for_key": (lambda purgatory, _: purgatory.cancel_for_key("key"), asyncio.CancelledError, False),
    "cancel the task": (lambda _, consumer: consumer.task.cancel(), asyncio.CancelledError, False),
    "aclose": (lambda _, consumer: asyncio.ensure_future(consumer.changes.aclose()), None, True),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_reading", [False, True])
async def test_end_from_outside_leaves_nothing(purgatory: Purgatory, value: Value, is_reading: bool, end: str) -> None:
    consumer = await following(purgatory, value, is_reading)
    ends, error, is_over = ENDS[end]
    ends(purgatory, consumer)
    await turns(3)
    assert consumer.task.done()
    with pytest.raises(error) if error else nullcontext():
        await consumer.task
    assert (consumer.got, value.reading, consumer.task.cancelling()) == (["value 1"], 0, end == "cancel the task")
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)
    check_invariants(purgatory)
    if is_over:
        assert [found async for found in consumer.changes] == []


@pytest.mark.parametrize("is_reading", [False, True])
async def test_complete_for_key_reads_once_more_and_ends(purgatory: Purgatory, value: Value, is_reading: bool) -> None:
    consumer = await following(purgatory, value)
    if is_reading:
        value.gate.clear()
        purgatory.check_and_complete("key")
        await turns(3)
    value.version = 2
    assert len(purgatory.complete_for_key("key")) == 1
    value.gate.set()
    await consumer.task
    assert consumer.got == ["value 1", "value 2"]
    assert purgatory.statistics().completed == 1


@pytest.mark.parametrize("how_many", range(12))
async def test_cancelled_at_any_turn_leaves_nothing(purgatory: Purgatory, value: Value, how_many: int) -> None:
    consumer = Consumer(purgatory, value, idle=5.0)
    for turn in range(how_many):
        if turn == 3:
            value.gate.clear()
            value.set(2, purgatory)
        if turn == 6:
            value.gate.set()
        await turns(1)
    consumer.task.cancel()
    await turns(5)
    assert (consumer.task.cancelled(), value.reading) == (True, 0)
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)
    check_invariants(purgatory)


async def test_iteration_goes_on_after_a_timeout(purgatory: Purgatory, value: Value) -> None:
    changes = purgatory.follow(["key"], value.read)
    assert await anext(changes) == "value 1"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(changes), 0.01)
    assert purgatory.num_delayed == 0
    value.version = 2
    assert await anext(changes) == "value 2"
    await changes.aclose()
    assert purgatory.num_delayed == 0


@pytest.mark.usefixtures("without_gc")
async def test_break_ends_the_operation_on_the_next_iteration(purgatory: Purgatory, value: Value) -> None:
    async for found in purgatory.follow(["key"], value.read):
        assert found == "value 1"
        break
    await turns(1)
    assert (purgatory.num_delayed, purgatory.watched_entries, purgatory.statistics().cancelled) == (0, 0, 1)


async def test_aclose_and_async_with_end_it_at_once(purgatory: Purgatory, value: Value) -> None:
    async with purgatory.follow(["key"], value.read) as changes:
        assert await anext(changes) == "value 1"
        assert purgatory.num_delayed == 1
    assert purgatory.num_delayed == 0
    await changes.aclose()


async def test_second_task_is_refused_and_harms_nothing(purgatory: Purgatory, value: Value) -> None:
    consumer = await following(purgatory, value)
    with pytest.raises(RuntimeError, match=r"another task waits for the next value; call follow\(\) once for each"):
        await anext(consumer.changes)
    value.set(2, purgatory)
    await turns(3)
    assert consumer.got == ["value 1", "value 2"]


async def test_read_that_raises_ends_it_failed(
    purgatory: Purgatory, value: Value, reports: list[BaseException]
) -> None:
    value.errors = [LookupError("no such table")]
    consumer = Consumer(purgatory, value)
    with pytest.raises(LookupError, match="no such table"):
        await consumer.task
    assert (purgatory.num_delayed, purgatory.statistics().failed) == (0, 1)
    assert [found async for found in consumer.changes] == []
    assert reports == []


@pytest.mark.usefixtures("without_gc")
async def test_end_leaves_no_cycle(purgatory: Purgatory, value: Value) -> None:
    """For a fault and a failure: the operation keeps the exception, so the exception must not keep the operation."""

    async def follow(errors: list[Exception]) -> None:
        value.errors = errors
        try:
            async for _ in purgatory.follow(["key"], value.read):
                pass
        except ConnectionError:
            pass

    await follow([ConnectionError()])
    gc.collect()
    try:
        await follow([ConnectionError()])
        task = asyncio.create_task(follow([]))
        await turns(3)
        purgatory.fail_for_key("key", ConnectionError())
        await task
        del task
        await turns(2)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [thing for thing in gc.garbage if type(thing).__name__ in ("Follower", "Following")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == []


async def test_retry_on_reads_again_after_a_check(purgatory: Purgatory, value: Value) -> None:
    value.errors = [ConnectionError(), ConnectionError()]
    consumer = Consumer(purgatory, value, retry_on=(ConnectionError, TimeoutError))
    await turns(3)
    assert (consumer.got, value.reads, purgatory.num_delayed) == ([], 1, 1)
    for _ in range(2):
        purgatory.check_and_complete("key")
        await turns(3)
    assert consumer.got == ["value 1"]


async def test_idle_goes_on_during_an_outage(purgatory: Purgatory, value: Value, clock: ManualClock) -> None:
    consumer = Consumer(purgatory, value, since=1, retry_on=ConnectionError, idle=5.0)
    await clock.advance(0.0)
    value.errors = [ConnectionError() for _ in range(100)]
    purgatory.check_and_complete("key")
    await clock.advance(10.1)
    assert consumer.got == [None, None]


# time as a reason to read


async def test_every_does_not_put_idle_off(purgatory: Purgatory, value: Value, clock: ManualClock) -> None:
    consumer = Consumer(purgatory, value, every=3.0, idle=10.0)
    await clock.advance(9.99)
    assert (consumer.got, value.reads) in ((["value 1"], 4), (["value 1"], 5))
    await clock.advance(0.02)
    assert consumer.got == ["value 1", None]


@pytest.mark.parametrize("more", [{}, {"idle": 2.0}, {"every": 1.0}, {"retry_on": OSError}])
async def test_timeout_ends_the_iteration_quietly(
    purgatory: Purgatory, value: Value, clock: ManualClock, more: dict[str, Any]
) -> None:
    consumer = Consumer(purgatory, value, timeout=5.0, **more)
    await clock.advance(3.0)
    value.set(2, purgatory)
    await clock.advance(1.999)
    assert (consumer.task.done(), purgatory.num_delayed) == (False, 1)
    check_invariants(purgatory)
    await clock.advance(0.001)
    await consumer.task
    assert [found for found in consumer.got if found] == ["value 1", "value 2"]
    assert (purgatory.num_delayed, purgatory.statistics().expired) == (0, 1)


async def test_timeout_ends_a_consumer_that_never_waits() -> None:
    async def read(since: int | None) -> tuple[int, int]:
        await asyncio.sleep(0)
        return (since or 0) + 1, (since or 0) + 1

    async with Purgatory() as purgatory, asyncio.timeout(30.0):
        found = [found async for found in purgatory.follow(["key"], read, timeout=0.02)]
    assert found == [*range(1, len(found) + 1)]


async def test_wrong_results_of_read_name_it(purgatory: Purgatory) -> None:
    async def number(since: object) -> int:
        return 7

    with pytest.raises(TypeError, match=r"^read must return a pair \(since, value\), or None; it returned 7$"):
        await anext(purgatory.follow(["key"], number))  # type: ignore[arg-type]
    for found in ((1, 1), None):
        with pytest.raises(TypeError, match=rf"^read must be an async def, .*; it returned {re.escape(repr(found))}$"):
            await anext(purgatory.follow(["key"], lambda _, found=found: found))  # type: ignore[misc]
    assert purgatory.num_delayed == 0


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"keys": "key"}, TypeError, "keys must be an iterable of keys, got 'key'; pass"),
        ({"keys": []}, ValueError, "keys must name at least one key"),
        ({"keys": [[]]}, TypeError, "each of keys must be hashable"),
        ({"read": 7}, TypeError, "read must be a function, got 7"),
        ({"idle": 0}, ValueError, "idle must be > 0 s, got 0"),
        ({"idle": -1.0}, ValueError, "idle must be >= 0 s, got -1.0"),
        ({"idle": "1"}, TypeError, "idle must be a number of seconds, got '1'"),
        ({"every": 0}, ValueError, "every must be > 0 s, got 0"),
        ({"every": "1"}, TypeError, "every must be a number of seconds, got '1'"),
        ({"timeout": "1"}, TypeError, "timeout must be a number of seconds or None, got '1'"),
        ({"retry_on": 7}, TypeError, "retry_on must be a subclass of Exception, or a tuple of them, got 7"),
        ({"retry_on": asyncio.CancelledError}, TypeError, "retry_on must be a subclass of Exception"),
    ],
)
async def test_wrong_argument_is_named(
    purgatory: Purgatory, value: Value, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=rf"^{said}"):
        purgatory.follow(**{"keys": ["key"], "read": value.read, **arguments})


async def test_full_purgatory_refuses_before_it_reads(clock: ManualClock, value: Value) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        first = purgatory.follow(["key"], value.read)
        await anext(first)
        with pytest.raises(PurgatoryFullError):
            await anext(purgatory.follow(["key"], value.read))
        assert value.reads == 1


async def test_close_called_by_the_read_itself_ends_it(purgatory: Purgatory) -> None:
    async def read(since: object) -> None:
        purgatory.close()
        await asyncio.sleep(0)

    assert [found async for found in purgatory.follow(["key"], read)] == []  # type: ignore[var-annotated]
    await asyncio.sleep(0)
