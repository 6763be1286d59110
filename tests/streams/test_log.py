"""The promises of a log, on each kind of server."""

from __future__ import annotations

import asyncio
import re
from enum import Enum
from typing import Any

import anyio
import pytest
from bus.waits import Told  # type: ignore[import-not-found]

from aiopurgatory import GoneError, NotFoundError, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.streams import EndedError, Event, EventLog, MemoryLog, Run, TopicExistsError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.topic_state import number_in

from .conftest import Open, data_of, ended, log_at, until


async def collect(log: EventLog, topic: str, after: str | None = None) -> list[Event]:
    return [event async for event in log.follow(topic, after)]


async def take(log: EventLog, topic: str, count: int, after: str | None = None) -> list[str]:
    """Take so many events, and leave."""
    events: list[str] = []
    async for event in log.follow(topic, after):
        events.append(event.data)
        if len(events) == count:
            break
    return events


async def until_following(log: EventLog, count: int) -> None:
    """Wait until so many listeners wait."""
    await until(lambda: log.statistics().listeners >= count)
    await asyncio.sleep(0.02)


async def made(log: EventLog, topic: str, count: int) -> list[str]:
    """Make a run of so many events and an end. Returns: their ids."""
    ids = []
    async with log.run(topic) as run:
        for number in range(1, count + 1):
            ids.append(await run.append(str(number)))
    assert run.last_id is not None
    return [*ids, run.last_id]


async def produce(log: EventLog, topic: str) -> None:
    """Begin a run, append an event, and go on."""
    async with log.run(topic, lease=60.0) as run:
        await run.append("a")
        await asyncio.sleep(60)


# runs


async def test_run_is_followed_until_its_end(log: EventLog, topic: str) -> None:
    early = asyncio.create_task(collect(log, topic))
    await until_following(log, 1)
    async with log.run(topic) as run:
        assert not run.last_id
        first = await run.append("a", "token")
        assert run.last_id == first
        second = await run.append("b\r\nc\n")
        midway = asyncio.create_task(collect(log, topic))
        await run.append("")
    events = await early
    assert [(event.data, event.name, event.is_end) for event in events] == [
        ("a", "token", False),
        ("b\r\nc\n", None, False),
        ("", None, False),
        ("done", "end", True),
    ]
    assert [event.id for event in events] == [first, second, events[2].id, run.last_id]
    assert [number_in(event.id) for event in events] == [1, 2, 3, 4]
    assert await midway == await collect(log, topic) == events


@pytest.mark.parametrize("how", ["once", "again and again"])
async def test_run_left_by_cancellation_is_cancelled(log: EventLog, topic: str, how: str) -> None:
    task = asyncio.create_task(produce(log, topic))
    assert await take(log, topic, 1) == ["a"]
    task.cancel()
    while how != "once" and not task.done():
        task.cancel()  # as a cancel scope of anyio does
        await asyncio.sleep(0)
    assert await data_of(log, topic) == ["a", "cancelled"]
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_run_that_its_user_ends_has_that_reason(log: EventLog, topic: str) -> None:
    async with log.run(topic) as run:
        await run.append("a")
        await run.end("the budget is spent")
        await run.end("again")
        with pytest.raises(EndedError, match="the run has ended"):
            await run.append("b")
    assert await data_of(log, topic) == ["a", "the budget is spent"]
    with pytest.raises(EndedError, match="the run has ended"):
        await run.append("b")


@pytest.mark.slow
async def test_run_is_taken_over_by_another_producer(log: EventLog, topic: str) -> None:
    async with log.run(topic) as first:
        await first.append("a")
        with pytest.raises(
            TopicExistsError, match=f"^topic {re.escape(repr(topic))}: it exists: resume=True takes it over"
        ):
            await log.run(topic).__aenter__()
        async with log.run(topic, resume=True) as second:
            assert second.last_id == first.last_id
            await second.append("b")
            with pytest.raises(EndedError, match="another producer has taken this run over"):
                await first.append("c")
    assert await data_of(log, topic) == ["a", "b", "done"]


async def test_run_is_ended_by_anybody(log: EventLog, topic: str) -> None:
    async with log.run(topic) as run:
        await run.append("a")
        end = await log.end(topic, "stopped by its user")
        with pytest.raises(EndedError, match=r"it has ended \(stopped by its user\)"):
            await run.append("b")
        with pytest.raises(EndedError):
            await log.end(topic)
    assert [event.id for event in await collect(log, topic)][-1] == end
    assert await data_of(log, topic) == ["a", "stopped by its user"]


async def test_topic_has_one_run_for_ever(log: EventLog, topic: str) -> None:
    await made(log, topic, 1)
    for resume in (False, True):
        with pytest.raises(EndedError, match=f"^topic {re.escape(repr(topic))}: its run has ended"):
            await log.run(topic, resume=resume).__aenter__()


async def test_run_of_two_appending_tasks_has_all_events(log: EventLog, topic: str) -> None:
    async with log.run(topic) as run:
        ids = await asyncio.gather(*(run.append(str(number)) for number in range(20)))
    assert await data_of(log, topic) == [*map(str, range(20)), "done"]
    assert [number_in(each) for each in ids] == list(range(1, 21))


async def test_run_append_cancelled_anywhere_loses_no_other_event(log: EventLog, topic: str) -> None:
    async with log.run(topic) as run:
        for turns in range(12):
            task = asyncio.create_task(run.append(f"cancelled {turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await run.append(f"kept {turns}")
            await asyncio.wait([task])
    data = await data_of(log, topic)
    assert [each for each in data if each.startswith("kept")] == [f"kept {turns}" for turns in range(12)]
    assert len(data) == len(set(data))


# topics that many write to


async def test_append_by_many_writers_keeps_every_event(url: str, new_log: Open, topic: str) -> None:
    """Two in each of two processes, if there is a server."""
    logs = [await new_log() for _ in range(2 if url else 1)]
    listeners = [asyncio.create_task(data_of(log, topic)) for log in logs]

    async def write(log: EventLog, name: str) -> None:
        for number in range(15):
            await log.append(topic, f"{name}{number}", "line")

    await asyncio.gather(*(write(logs[number % len(logs)], name) for number, name in enumerate("wxyz")))
    await logs[0].end(topic)
    data = await listeners[0]
    assert data == await listeners[-1]
    for name in "wxyz":
        assert [each for each in data if each[0] == name] == [f"{name}{number}" for number in range(15)]
    assert (len(data), data[-1]) == (61, "done")
    with pytest.raises(EndedError, match=f"^topic {re.escape(repr(topic))}: it has ended"):
        await logs[-1].append(topic, "more")


async def test_append_repeated_with_its_id_adds_nothing(log: EventLog, topic: str) -> None:
    first = await log.append(topic, "a", id="order 7")
    assert await log.append(topic, "b") != first
    assert await log.append(topic, "a", id="order 7") == first
    await log.end(topic)
    assert await log.append(topic, "a", id="order 7") == first
    assert await data_of(log, topic) == ["a", "b", "done"]


async def test_append_to_a_run_is_refused(log: EventLog, topic: str) -> None:
    async with log.run(topic):
        with pytest.raises(TopicExistsError, match=f"^topic {re.escape(repr(topic))}: it has a run: only"):
            await log.append(topic, "a")
    other = f"{topic} of many"
    await log.append(other, "a")
    for resume in (False, True):
        with pytest.raises(TopicExistsError, match="it exists: many write to it"):
            await log.run(other, resume=resume).__aenter__()


# listeners


async def test_follow_from_every_event(log: EventLog, topic: str) -> None:
    ids = await made(log, topic, 5)
    for number, after in enumerate(ids, 1):
        assert await data_of(log, topic, after) == [*map(str, range(number + 1, 6)), "done"][: 6 - number]
    assert log.statistics().listeners == 0


async def test_follow_what_comes_next(log: EventLog, topic: str) -> None:
    assert await log.last_id(topic) is None
    async with log.run(topic) as run:
        assert await log.last_id(topic) is None
        await run.append("a")
        assert await log.last_id(topic) == run.last_id
        listener = asyncio.create_task(data_of(log, topic, await log.last_id(topic)))
        await run.append("b")
    assert await listener == ["b", "done"]
    assert await log.last_id(topic) == run.last_id


async def test_many_listeners_share_the_reads(log: EventLog, topic: str) -> None:
    listeners = [asyncio.create_task(data_of(log, topic)) for _ in range(100)]
    await until_following(log, 100)
    before = log.statistics()
    assert before.topics == 1
    async with log.run(topic) as run:
        for number in range(10):
            await run.append(str(number))
            await asyncio.sleep(0.005)
    for listener in listeners:
        assert await listener == [*map(str, range(10)), "done"]
    assert log.statistics().reads - before.reads <= 13


async def test_laggards_share_the_reads(new_log: Open, topic: str) -> None:
    log = await new_log(window_bytes=0)
    data = [str(number) * 1_000 for number in range(100, 400)]
    async with log.run(topic) as run:
        for each in data:
            await run.append(each)
    before = log.statistics().reads
    listeners = [asyncio.create_task(data_of(log, topic)) for _ in range(20)]
    for listener in listeners:
        assert await listener == [*data, "done"]
    assert log.statistics().reads - before <= 40  # 4 of the tail, 4 shared ones, and some of listeners that came apart
    assert log.statistics().window_bytes == 0


async def test_large_events_come_whole(log: EventLog, topic: str) -> None:
    large = [letter * (1 << 20) for letter in "abcé"[:3]] + ["é" * (1 << 19)]
    async with log.run(topic) as run:
        for data in large:
            await run.append(data)
    assert await data_of(log, topic) == [*large, "done"]


@pytest.mark.parametrize("data", ["\r", "\u2028 \x85 \x1c", '"\\u0000"', "{topic}", "😀", "end\ndone", "\n\nx"])
async def test_data_comes_as_it_was(log: EventLog, topic: str, data: str) -> None:
    topic += data.strip("\n")
    async with log.run(topic) as run:
        await run.append(data)
        await run.append(data, "näme 😀 :")
    assert [(event.data, event.name) for event in await collect(log, topic)] == [
        (data, None),
        (data, "näme 😀 :"),
        ("done", "end"),
    ]


class Seconds(float):
    """Its repr is no JSON, as of a numpy.float64."""

    def __repr__(self) -> str:
        return "Seconds()"


def enum_of(kind: type, **members: object) -> Any:
    return Enum("enum", members, type=kind)


async def test_subclasses_of_text_and_numbers_count_by_value(new_log: Open, topic: str) -> None:
    text = enum_of(str, TOPIC=topic, NAME="token", DATA="a", REASON="enough")
    log = await new_log(keep_events=enum_of(int, FEW=100).FEW, keep_seconds=Seconds(3_600.0))
    async with log.run(text.TOPIC, lease=Seconds(15.0)) as run:
        await run.append(text.DATA, text.NAME)
        await run.end(text.REASON)
    events = await collect(log, topic)
    assert [(event.name, event.data) for event in events] == [("token", "a"), ("end", "enough")]
    assert Event("1", "a", text.NAME).sse() == Event("1", "a", "token").sse()


@pytest.mark.parametrize("character", ["a", "é", "😀", "\x01", '"', "\\", "\u2028"])
@pytest.mark.parametrize("length", [960, 999, 1_001])
async def test_event_of_any_length_reaches_the_listeners(
    log: EventLog, topic: str, character: str, length: int
) -> None:
    """A short event travels with its wake-up. PostgreSQL's wake-ups have 8,000 bytes at most."""
    topic = f"{topic} {character * (190 - len(topic))}".replace("\x01", "😀")
    listener = asyncio.create_task(data_of(log, topic))
    async with log.run(topic) as run:
        await run.append("begin")
        await until_following(log, 1)
        await run.append(character * length)
    assert await listener == ["begin", character * length, "done"]


# S9


@pytest.mark.parametrize("timeout", [0.0, 0.1])
async def test_follow_an_unknown_topic_waits_and_gives_up(new_log: Open, topic: str, timeout: float) -> None:
    log = await new_log(unknown_timeout=timeout)
    follow, began = log.follow(topic), asyncio.get_running_loop().time()
    with pytest.raises(NotFoundError, match=f"there is no such topic: {re.escape(repr(topic))}"):
        await anext(follow)
    assert timeout <= asyncio.get_running_loop().time() - began < 5
    assert log.statistics().listeners == log.statistics().topics == 0
    with pytest.raises(StopAsyncIteration):  # it is over
        await anext(follow)


async def test_follow_an_empty_topic_waits_for_its_first_event(new_log: Open, topic: str) -> None:
    log = await new_log(unknown_timeout=None)
    listener = asyncio.create_task(take(log, topic, 1))
    await until_following(log, 1)
    await asyncio.sleep(0.05)
    assert not listener.done()
    await log.append(topic, "a")
    assert await listener == ["a"]


# S8


async def test_follow_after_dropped_events_is_told_from_where(new_log: Open, topic: str) -> None:
    log = await new_log(keep_events=4)
    ids = await made(log, topic, 9)
    for after in (None, *ids[:5]):
        with pytest.raises(GoneError) as gone:
            await collect(log, topic, after)
        assert gone.value.after == ids[5]
    assert await data_of(log, topic, ids[5]) == ["7", "8", "9", "done"]
    assert log.statistics().listeners == 0


async def test_follow_many_writers_begins_with_the_oldest_kept(new_log: Open, topic: str) -> None:
    log = await new_log(keep_events=4)
    for number in range(1, 10):
        await log.append(topic, str(number))
    assert await take(log, topic, 4) == ["6", "7", "8", "9"]
    await asyncio.sleep(0.01)  # its window goes with the listener
    assert await ended(log, topic) == ["7", "8", "9", "done"]


@pytest.mark.parametrize("after", ["", "x", "abcdefgh-1", "12", "abcdefgh-999999999999999", "-", "é-1", "a" * 1000])
async def test_follow_after_a_strange_id_is_gone(log: EventLog, topic: str, after: str) -> None:
    await made(log, topic, 1)
    with pytest.raises(GoneError) as gone:
        await collect(log, topic, after)
    assert await data_of(log, topic, gone.value.after) == ["1", "done"]


# life


async def test_follow_of_too_many_is_refused(new_log: Open, topic: str) -> None:
    log = await new_log(max_listeners=2)
    listeners = [asyncio.create_task(data_of(log, topic)) for _ in range(2)]
    await until_following(log, 2)
    with pytest.raises(PurgatoryFullError, match="purgatory 'events' is full: 2 operations pending"):
        await collect(log, f"{topic} too")
    assert (log.statistics().listeners, log.statistics().topics) == (2, 1)
    await made(log, topic, 1)
    assert [await listener for listener in listeners] == [["1", "done"]] * 2
    assert await data_of(log, topic) == ["1", "done"]


@pytest.mark.parametrize("way", ["aclose", "purgatory.close"])
async def test_closing_ends_the_listeners(log: EventLog, topic: str, way: str) -> None:
    await log.append(topic, "a")
    listeners = [asyncio.create_task(data_of(log, each)) for each in (topic, topic, f"{topic} unknown")]
    await until_following(log, 3)
    await log.aclose() if way == "aclose" else log.purgatory.close()
    for listener in listeners:
        with pytest.raises(PurgatoryClosedError):
            await listener
    assert (log.statistics().listeners, log.statistics().topics) == (0, 0)


async def test_expire_all_leaves_listeners_alone(log: EventLog, topic: str) -> None:
    listener = asyncio.create_task(data_of(log, topic))
    await until_following(log, 1)
    assert log.purgatory.expire_all() == 0
    await made(log, topic, 1)
    assert await listener == ["1", "done"]


async def test_fail_for_key_ends_the_listeners_of_a_topic(log: EventLog, topic: str) -> None:
    listener = asyncio.create_task(data_of(log, topic))
    await until_following(log, 1)
    log.purgatory.fail_for_key(topic, LookupError("moved"))
    with pytest.raises(LookupError, match="moved"):
        await listener


async def test_closed_purgatory_lets_runs_go_on(log: EventLog, topic: str) -> None:
    async with log.run(topic) as run:
        log.purgatory.close()  # the server stops
        await run.append("a")
        with pytest.raises(PurgatoryClosedError):
            await collect(log, topic)
    await log.start()
    assert await data_of(log, topic) == ["a", "done"]


async def test_closed_log_refuses(log: EventLog, topic: str) -> None:
    await log.aclose()
    await log.aclose()
    assert "closed" in repr(log)
    run = log.run(topic)
    calls: list[Any] = [
        collect(log, topic),
        log.append(topic, "a"),
        log.end(topic),
        log.last_id(topic),
        run.__aenter__(),
    ]
    for call in calls:
        with pytest.raises(PurgatoryClosedError, match="log 'events' is closed"):
            await call


async def test_close_that_anyio_cancels_leaves_nothing(url: str, topic: str) -> None:
    """It cancels at each await."""
    before = asyncio.all_tasks()
    with anyio.CancelScope() as scope:
        async with log_at(url) as log:
            await log.append(topic, "a")
            scope.cancel()
    await until(lambda: asyncio.all_tasks() == before)


async def test_log_is_started_again(log: EventLog, topic: str) -> None:
    await log.append(topic, "a")
    async with log.run(f"{topic} run", resume=True) as run:
        await run.append("a")
        await log.aclose()
        with pytest.raises(PurgatoryClosedError):
            await run.append("b")
        await log.start()
        await log.start()
        await run.append("c")
    await log.append(topic, "b")
    assert await take(log, topic, 2) == ["a", "b"]
    assert await data_of(log, f"{topic} run") == ["a", "c", "done"]


async def test_log_starts_by_itself(url: str, new_log: Open, topic: str) -> None:
    for use in range(2):
        log = log_at(url)
        uses: list[Any] = [log.append(topic, "a"), log.last_id(topic)]
        await uses.pop(use)
        uses[0].close()
        await log.aclose()


async def test_start_while_it_starts_waits(url: str, topic: str) -> None:
    log = log_at(url)
    await asyncio.gather(log.start(), log.append(topic, "a"), log.start())
    starting = asyncio.create_task(log.append(topic, "b"))
    await asyncio.gather(log.aclose(), log.aclose())
    await asyncio.wait([starting])
    with pytest.raises(PurgatoryClosedError):
        await log.append(topic, "c")


async def test_append_while_the_log_closes_is_made_or_refused(log: EventLog, topic: str) -> None:
    appends = [asyncio.create_task(log.append(topic, str(number))) for number in range(20)]
    await asyncio.sleep(0)
    await log.aclose()
    done, pending = await asyncio.wait(appends, timeout=30)
    assert not pending
    errors = [task.exception() for task in done if task.exception() is not None]
    assert all(isinstance(error, PurgatoryClosedError) for error in errors)
    made = len(done) - len(errors)
    if made:
        await log.start()
        assert len(set(await take(log, topic, made))) == made


async def test_lifespan_that_is_over_ends_the_runs(url: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.streams.producer.PARTING", 20.0)  # however slow the server is
    log = log_at(url)
    async with log.lifespan(object()) as state:
        assert state is None
        producer = asyncio.create_task(produce(log, topic))
        assert await take(log, topic, 1) == ["a"]
    with pytest.raises(PurgatoryClosedError):
        await log.append(topic, "b")
    producer.cancel()
    async with log, asyncio.timeout(30):
        assert await data_of(log, topic) == ["a", "abandoned"]


async def test_statistics_and_repr_count(log: EventLog, topic: str) -> None:
    listeners = [asyncio.create_task(data_of(log, topic)) for _ in range(3)]
    await until_following(log, 3)
    async with log.run(topic) as run:
        await run.append("a" * 100)
        await until(lambda: log.statistics().window_bytes)
        found = log.statistics()
        assert (found.name, found.topics, found.listeners, found.appended) == ("events", 1, 3, 1)
        assert 200 < found.window_bytes < 1_000
        assert found.reads >= 1
        assert found.error is None
        assert repr(log) == f"<{type(log).__name__} 'events' open listeners=3>"
    await asyncio.gather(*listeners)
    assert log.statistics().appended == 2
    assert log.statistics().window_bytes == 0


async def test_observers_are_told() -> None:
    told = Told()
    async with MemoryLog(observers=[told]) as log:
        pass
    assert told.of == [("opened", log.purgatory), ("opened", log), ("closed", log), ("closed", log.purgatory)]


# misuse


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: log.follow(7), "topic must be a str, got 7"),
        (lambda log: log.follow(""), "topic must be of 1 to 200 characters, without NUL, got ''"),
        (lambda log: log.follow("x" * 201), "topic must be of 1 to 200 characters"),
        (lambda log: log.follow("x\0"), "topic must be of 1 to 200 characters, without NUL"),
        (lambda log: log.follow("\ud800"), "topic must be text without surrogates"),
        (lambda log: log.follow("x", 7), "after must be a str, got 7"),
        (lambda log: log.run(None), "topic must be a str, got None"),
        (lambda log: log.run("x", lease=0.01), "lease must be from 0.1 to 1e[+]06 s, got 0.01"),
        (lambda log: log.run("x", lease="1"), "lease must be a number of seconds, got '1'"),
        (lambda log: log.run("x", lease=float("nan")), "lease must be from 0.1 to 1e[+]06 s, got nan"),
        (lambda log: log.run("x", lease=90_000), "lease must be at most keep_seconds=86400, got 90000"),
        (lambda log: log.run("x", resume=1), "resume must be a bool, got 1"),
        (lambda _: MemoryLog(name=""), "name must be"),
        (lambda _: MemoryLog(name="a b"), "name must be"),
        (lambda _: MemoryLog(name="é"), "name must be"),
        (lambda _: MemoryLog(name="x" * 41), "name must be"),
        (lambda _: MemoryLog(name=7), "name must be a str, got 7"),  # type: ignore[arg-type]
        (lambda _: MemoryLog(keep_events=0), "keep_events must be >= 1, got 0"),
        (lambda _: MemoryLog(keep_events=1.5), "keep_events must be an int, got 1.5"),  # type: ignore[arg-type]
        (lambda _: MemoryLog(keep_bytes=0), "keep_bytes must be >= 1, got 0"),
        (lambda _: MemoryLog(keep_seconds=0.5), "keep_seconds must be from 1 to 1e[+]09 s, got 0.5"),
        (lambda _: MemoryLog(window_bytes=-1), "window_bytes must be >= 0, got -1"),
        (lambda _: MemoryLog(unknown_timeout=-1), "unknown_timeout must be from 0 to 1e[+]06 s, got -1"),
        (lambda _: MemoryLog(max_listeners=0), "max_listeners must be >= 1, got 0"),
        (lambda _: MemoryLog(max_listeners=True), "max_listeners must be an int, got True"),
        (lambda _: EventLog(MemoryStore), "store must be an instance of a Store, got the class MemoryStore; make one"),  # type: ignore[arg-type]
        (lambda _: EventLog("redis://"), r"store must have a method open\(\), as a Store has, got 'redis://'"),  # type: ignore[arg-type]
    ],
)
async def test_wrong_argument_is_refused_at_once(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(MemoryLog())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: log.append("x", b""), "data must be a str, got b''"),
        (lambda log: log.append("x", "\ud800"), "data must be text without surrogates"),
        (lambda log: log.append("x", "a\0"), "data must be without NUL"),
        (lambda log: log.append("x", "é" * (1 << 20)), "data must be at most 1,048,576 bytes, got 2,097,152; store it"),
        (lambda log: log.append("x", "a", 7), "name must be a str, got 7"),
        (lambda log: log.append("x", "a", ""), "name must be of 1 to 100 printable characters, got ''"),
        (lambda log: log.append("x", "a", "a\n"), "name must be of 1 to 100 printable characters"),
        (lambda log: log.append("x", "a", "x" * 101), "name must be of 1 to 100 printable characters"),
        (lambda log: log.append("x", "a", "error"), "name must be none of end, error, gone, open, .*, got 'error'"),
        (lambda log: log.append("x", "a", id=7), "id must be a str, got 7"),
        (lambda log: log.append("x", "a", id=""), "id must be of 1 to 100 characters, got ''"),
        (lambda log: log.append("x", "a", timeout=-1), "timeout must be >= 0 s, got -1"),
        (lambda log: log.append("x", "a", timeout=None), "timeout must be a number of seconds, got None"),
        (lambda log: log.end("x", 7), "reason must be a str, got 7"),
        (lambda log: log.end("x", ""), "reason must be of 1 to 200 printable characters, got ''"),
        (lambda log: log.end("x", "a\nb"), "reason must be of 1 to 200 printable characters"),
        (lambda log: log.end("x", timeout="1"), "timeout must be a number of seconds, got '1'"),
        (lambda log: log.last_id(7), "topic must be a str, got 7"),
    ],
)
async def test_wrong_argument_is_refused(call: Any, message: str) -> None:
    async with MemoryLog() as log:
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            await call(log)
        assert log.statistics().appended == 0


@pytest.mark.parametrize("use", [lambda run: run.append("a"), lambda run: run.end()])
async def test_run_that_was_not_entered_says_so(use: Any) -> None:
    async with MemoryLog() as log:
        with pytest.raises(RuntimeError, match="was not entered; use 'async with'"):
            await use(log.run("x"))


async def test_run_is_entered_once() -> None:
    async with MemoryLog() as log, log.run("x") as run:
        with pytest.raises(RuntimeError, match="a run can be entered once; ask the log for another one"):
            await run.__aenter__()
        assert isinstance(run, Run)


def test_log_of_another_loop_is_refused() -> None:
    log = MemoryLog()

    async def use(call: Any) -> None:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            await call()

    with asyncio.Runner() as runner, asyncio.Runner() as another:
        runner.run(log.start())
        for call in (log.start, lambda: log.append("x", "a"), lambda: collect(log, "x"), lambda: log.last_id("x")):
            another.run(use(call))
        runner.run(log.aclose())


async def test_log_started_in_a_closed_loop_has_no_old_listeners() -> None:
    log = MemoryLog()

    def run_in_another_loop() -> None:
        with asyncio.Runner() as runner:
            runner.run(log.append("x", "a"))
            runner.run(anext(log.follow("x")))

    await asyncio.to_thread(run_in_another_loop)
    assert await take(log, "x", 1) == ["a"]
    await asyncio.sleep(0)
    assert (log.statistics().listeners, log.statistics().topics) == (0, 0)
    await log.aclose()
