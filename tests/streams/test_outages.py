"""Listeners and producers on a server that is down, slow or broken. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from aiopurgatory import GoneError, NotFoundError, PurgatoryClosedError
from aiopurgatory.streams import EndedError, EventLog, Run, StoreDownError, StoreError, TopicExistsError
from aiopurgatory.streams.run import PARTING
from aiopurgatory.streams.store import Commit, Page
from aiopurgatory.streams.tail import PAUSES as READ_PAUSES
from aiopurgatory.testing.clock import settle

from .simulated import SimulatedServer, SimulatedStore
from .virtual import play

LEASE = 3.0


class World:
    """A server, and a log on it."""

    def __init__(self, **options: Any) -> None:
        self.server = SimulatedServer()
        self.store = SimulatedStore(self.server, Random(1))
        self.log = EventLog(self.store, **options)
        self.others: list[EventLog] = []

    def another(self, **options: Any) -> EventLog:
        """A log in another process."""
        self.others.append(EventLog(SimulatedStore(self.server, Random(2)), **options))
        return self.others[-1]

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def listen(
        self, topic: str = "x", after: str | None = None, log: EventLog | None = None
    ) -> asyncio.Task[list[str]]:
        return asyncio.create_task(data_of(log or self.log, topic, after))

    def outage(self, seconds: float) -> None:
        self.server.is_down = True
        asyncio.get_running_loop().call_later(seconds, setattr, self.server, "is_down", False)


async def data_of(log: EventLog, topic: str, after: str | None = None) -> list[str]:
    return [event.data async for event in log.follow(topic, after)]


def in_virtual_time(**options: Any) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run an async test in virtual time, with a World. Args: options: of its log."""

    def decorate(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def run() -> None:
            before = asyncio.all_tasks()
            world = World(**options)
            await world.log.start()
            await test(world)
            await settle(lambda: True)
            found = world.log.statistics()
            assert (found.listeners, found.topics, found.window_bytes) == (0, 0, 0)
            for log in (world.log, *world.others):
                await log.aclose()
            await settle(lambda: True)
            left = asyncio.all_tasks() - before - {asyncio.current_task()}
            assert [task for task in left if not task.done()] == []

        def played() -> None:
            play(run())

        played.__name__, played.__doc__ = test.__name__, test.__doc__
        return played

    return decorate


# the first use


@pytest.fixture
def slow_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a log connects, it notices only after a while that the server is down."""
    connect = SimulatedStore.open

    async def fail(store: SimulatedStore, notify: Any, notify_all: Any) -> None:
        if store._server.is_down:
            await asyncio.sleep(1.0)
            raise StoreDownError("the server is down")
        await connect(store, notify, notify_all)

    monkeypatch.setattr(SimulatedStore, "open", fail)


@pytest.mark.usefixtures("slow_to_fail")
@in_virtual_time()
async def test_first_append_waits_through_an_outage(world: World) -> None:
    world.outage(8.0)
    other, began = world.another(), world.now()
    async with other.run("run", lease=12.0) as run:
        await run.append("a")
    assert 8.0 <= world.now() - began < 12.0
    world.outage(8.0)
    with pytest.raises(StoreDownError, match="the server is down"):
        await world.another().append("x", "a", timeout=3.0)
    assert await data_of(other, "run") == ["a", "done"]


@pytest.mark.usefixtures("slow_to_fail")
@in_virtual_time()
async def test_first_follow_in_an_outage_raises_and_the_next_one_follows(world: World) -> None:
    await world.log.append("x", "a")
    await world.log.end("x")
    world.outage(8.0)
    other = world.another()
    for _ in range(2):
        with pytest.raises(StoreDownError, match="the server is down"):
            await data_of(other, "x")
        assert not other.purgatory.is_open
    await asyncio.sleep(8.0)
    assert await data_of(other, "x") == ["a", "done"]


@pytest.mark.usefixtures("slow_to_fail")
@in_virtual_time()
async def test_first_uses_that_queue_fail_together(world: World) -> None:
    world.outage(60.0)
    other, began = world.another(), world.now()
    listeners = [world.listen(str(number), log=other) for number in range(50)]
    await asyncio.wait(listeners)
    assert all(isinstance(listener.exception(), StoreDownError) for listener in listeners)
    assert world.now() - began < 2.5


# listeners


@in_virtual_time()
async def test_down_at_the_first_read_is_waited_for(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(60.0)
    began, listener = world.now(), world.listen()
    await asyncio.sleep(1.0)
    assert world.log.statistics().error == "the server is down"
    await asyncio.sleep(61.0 + 1.5 * READ_PAUSES[1])
    await world.log.end("x")
    assert await listener == ["a", "done"]
    assert world.log.statistics().error is None
    assert world.now() - began < 70.0


@in_virtual_time(unknown_timeout=5.0)
async def test_outage_does_not_make_a_topic_unknown(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(30.0)
    known, unknown = world.listen("x"), world.listen("y")
    await asyncio.sleep(29.0)
    late = world.listen("z")
    assert not known.done()
    assert not unknown.done()
    await asyncio.sleep(4.5)  # the server is back since 3.5 s
    assert isinstance(unknown.exception(), NotFoundError)
    assert not late.done()
    await asyncio.sleep(3.0)
    assert isinstance(late.exception(), NotFoundError)
    await world.log.end("x")
    assert await known == ["a", "done"]


@in_virtual_time(unknown_timeout=3.0)
async def test_unknown_topic_is_waited_for_by_each_for_as_long(world: World) -> None:
    waited = []

    async def listen() -> None:
        began = world.now()
        with pytest.raises(NotFoundError, match="there is no such topic"):
            await data_of(world.log, "x")
        waited.append(world.now() - began)

    listeners = []
    for _ in range(20):
        listeners.append(asyncio.create_task(listen()))
        await asyncio.sleep(1.0)  # later listeners do not make the others wait
    await asyncio.gather(*listeners)
    assert len(waited) == 20
    assert all(3.0 <= each < 3.5 for each in waited)


@in_virtual_time(window_bytes=0)
async def test_down_while_reading_older_events_is_waited_for(world: World) -> None:
    ids = [await world.log.append("x", str(number)) for number in range(5)]
    first = world.listen(after=ids[-1])
    await asyncio.sleep(1.0)
    world.outage(20.0)
    behind = [world.listen(after=ids[1]) for _ in range(3)]
    await asyncio.sleep(25.0)
    await world.log.end("x")
    assert await first == ["done"]
    assert [await each for each in behind] == [["2", "3", "4", "done"]] * 3


@in_virtual_time(window_bytes=0)
async def test_older_events_come_after_a_broken_connection(world: World) -> None:
    """They come although nothing else happens in the topic."""
    ids = [await world.log.append("x", str(number)) for number in range(5)]
    first = world.listen(after=ids[-1])
    await asyncio.sleep(1.0)
    world.outage(0.1)
    got: list[str] = []

    async def listen() -> None:
        async for event in world.log.follow("x", ids[0]):
            got.append(event.data)

    behind = asyncio.create_task(listen())
    await asyncio.sleep(1.0)
    assert got == ["1", "2", "3", "4"]
    for task in (first, behind):
        task.cancel()


@pytest.mark.parametrize("close", ["aclose", "purgatory"])
def test_closing_does_not_wait_for_older_events(close: str) -> None:
    @in_virtual_time(window_bytes=0)
    async def test(world: World) -> None:
        ids = [await world.log.append("x", str(number)) for number in range(5)]
        first = world.listen(after=ids[-1])
        await asyncio.sleep(1.0)
        world.outage(60.0)
        behind = [world.listen(after=ids[1]) for _ in range(3)]
        await asyncio.sleep(5.0)
        began = world.now()
        if close == "aclose":
            await world.log.aclose()
        else:
            world.log.purgatory.close()
        for task in (first, *behind):
            with pytest.raises(PurgatoryClosedError):
                await task
        assert world.now() - began < 0.1

    test()


@in_virtual_time()
async def test_tail_in_an_outage_serves_a_listener_that_comes(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(10.0)
    first = world.listen()
    await asyncio.sleep(5.0)
    second = world.listen()
    await asyncio.sleep(10.0)
    await world.log.end("x")
    assert await first == await second == ["a", "done"]


@in_virtual_time(unknown_timeout=5.0)
async def test_deleted_topic_ends_its_listeners(world: World) -> None:
    await world.log.append("x", "a")
    listeners = [world.listen() for _ in range(3)]
    await asyncio.sleep(1.0)
    world.server.delete("x")
    world.store.notice()
    await asyncio.sleep(0.1)
    for listener in listeners:
        with pytest.raises(NotFoundError, match="the topic is not there any more"):
            await listener


@in_virtual_time(unknown_timeout=5.0)
async def test_topic_that_comes_again_is_another(world: World) -> None:
    last = await world.log.append("x", "a")
    world.server.delete("x")
    assert await world.another().append("x", "b") != last
    with pytest.raises(GoneError) as gone:
        await data_of(world.log, "x", last)
    await world.log.end("x")
    assert await data_of(world.log, "x", gone.value.after) == ["b", "done"]


# broken


@pytest.mark.parametrize("is_run", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
def test_lost_commits_are_told_by_the_writer_that_knew_them(is_told: bool, is_run: bool) -> None:
    """The server need not tell of its loss: the writer reads back fewer events than were acknowledged to it."""

    @in_virtual_time()
    async def test(world: World) -> None:
        listening = world.another()

        async def written(numbers: range, append: Callable[[str], Coroutine[Any, Any, str]]) -> list[str]:
            return [await append(str(number)) for number in numbers]

        async def play(append: Callable[[str], Coroutine[Any, Any, str]]) -> list[str]:
            await written(range(3), append)
            snapshot = world.server.snapshot()
            stays = listening.follow("x")
            lost = await written(range(3, 6), append)
            assert [(await anext(stays)).data for _ in range(6)] == list("012345")
            (world.server.fail_over if is_told else world.server.lose)(snapshot)
            await written(range(6, 12), append)
            with pytest.raises(GoneError):
                await anext(stays)
            return lost

        if is_run:
            async with world.log.run("x", lease=LEASE) as run:
                lost = await play(run.append)
        else:
            lost = await play(lambda data: world.log.append("x", data))
            await world.log.end("x")
        for seen in lost:
            with pytest.raises(GoneError) as gone:
                await data_of(listening, "x", seen)
            assert await data_of(listening, "x", gone.value.after) == [*"012", *map(str, range(6, 12)), "done"]

    test()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.CRITICAL + 1, "aiopurgatory")
    return caplog


def break_reads(world: World, patch: pytest.MonkeyPatch, after: int = 0) -> None:
    """Let reads of events after the number *after* fail."""
    read = world.store.read

    async def broken(topic: str, number: int, rows: int, size: int) -> Page:
        if number >= after:
            raise LookupError("a corrupt row")
        return await read(topic, number, rows, size)

    patch.setattr(world.store, "read", broken)


def test_error_in_a_tail_ends_its_listeners(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        await world.log.append("x", "a")
        listeners = [world.listen() for _ in range(3)]
        await asyncio.sleep(1.0)
        break_reads(world, monkeypatch)
        world.store.notice()
        await asyncio.sleep(0.1)
        errors = [listener.exception() for listener in listeners]
        for error in errors:
            assert isinstance(error, StoreError)
            assert not isinstance(error, StoreDownError)
            assert "a corrupt row" in str(error)
        assert len({id(error) for error in errors}) == 3  # each has a traceback of its own
        assert "the topic 'x' cannot be read; its listeners end" in caplog.text
        monkeypatch.undo()
        again = world.listen()  # the next one gets a new tail
        await asyncio.sleep(1.0)
        await world.log.end("x")
        assert await again == ["a", "done"]

    test()


def test_error_in_a_tail_with_a_listener_that_is_busy(
    monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        await world.log.append("x", "a")
        busy = world.log.follow("x")
        await anext(busy)
        break_reads(world, monkeypatch)
        world.store.notice()
        await asyncio.sleep(1.0)
        assert world.log.statistics().window_bytes == 0
        monkeypatch.undo()
        other = world.listen()
        await asyncio.sleep(1.0)
        with pytest.raises(StoreError):
            await anext(busy)
        assert world.log.statistics().listeners == 1
        await world.log.end("x")
        assert await other == ["a", "done"]

    test()


def test_error_while_reading_older_events_ends_these_listeners(
    monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time(window_bytes=0)
    async def test(world: World) -> None:
        ids = [await world.log.append("x", str(number)) for number in range(5)]
        first = world.listen(after=ids[-1])
        await asyncio.sleep(1.0)
        break_reads(world, monkeypatch, 2)
        behind = [world.listen(after=ids[1]) for _ in range(3)]
        await asyncio.sleep(1.0)
        for listener in behind:
            with pytest.raises(StoreError, match="a corrupt row"):
                await listener
        assert not first.done()
        first.cancel()

    test()


def test_error_in_a_commit_is_raised_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async def broken(topic: str, commit: Commit, keep: float) -> Page:
            raise LookupError("a full disk")

        await world.log.append("x", "a")
        monkeypatch.setattr(world.store, "commit", broken)
        with pytest.raises(StoreError, match=r"the store has failed: .*a full disk") as raised:
            await world.log.append("x", "b")
        assert isinstance(raised.value.__cause__, LookupError)
        monkeypatch.undo()
        await world.log.append("x", "c")
        await world.log.end("x")
        assert await data_of(world.log, "x") == ["a", "c", "done"]

    test()


def test_start_that_fails_closes_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        other = world.another()
        store = world.server.stores[-1]
        closed: list[str] = []

        async def fail(notify: Any, notify_all: Any) -> None:
            raise LookupError("no tables")

        async def close() -> None:
            closed.append("store")

        with monkeypatch.context() as patch:
            patch.setattr(store, "open", fail)
            patch.setattr(store, "aclose", close)
            for _ in range(2):
                with pytest.raises(LookupError, match="no tables"):
                    await other.start()
        assert closed == ["store"] * 2
        assert not other.purgatory.is_open
        await other.append("x", "a")

    test()


def test_append_that_a_closed_store_refuses_says_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async def refuse(topic: str, commit: Commit, keep: float) -> Page:
            await asyncio.sleep(1.0)
            raise AssertionError("it is not open")

        await world.log.append("x", "a")
        monkeypatch.setattr(world.store, "commit", refuse)
        append = asyncio.create_task(world.log.append("x", "b"))
        await asyncio.sleep(0.5)
        await world.log.aclose()
        with pytest.raises(PurgatoryClosedError):
            await append

    test()


# producers


@in_virtual_time()
async def test_append_waits_through_an_outage(world: World) -> None:
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        world.outage(LEASE * 0.9)
        await run.append("b")
    assert await data_of(world.log, "x") == ["a", "b", "done"]


@in_virtual_time()
async def test_append_gives_up_after_the_lease(world: World) -> None:
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        world.outage(LEASE * 2)
        began = world.now()
        with pytest.raises(StoreDownError, match="the server is down"):
            await run.append("b")
        assert LEASE * 0.5 < world.now() - began <= LEASE
        await asyncio.sleep(LEASE * 1.5)
        await run.append("c")  # nobody has listened, so it goes on
    assert await data_of(world.log, "x") == ["a", "c", "done"]


@in_virtual_time()
async def test_appends_that_queue_give_up_together(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(100.0)
    began = world.now()
    appends = [asyncio.create_task(world.log.append("x", str(number), timeout=5.0)) for number in range(20)]
    await asyncio.wait(appends)
    assert all(isinstance(append.exception(), StoreDownError) for append in appends)
    assert world.now() - began < 6.0


@in_virtual_time()
async def test_append_without_patience_tries_once(world: World) -> None:
    world.outage(10.0)
    began = world.now()
    with pytest.raises(StoreDownError):
        await world.log.append("x", "a", timeout=0)
    assert world.now() - began < 0.1
    await asyncio.sleep(10.0)
    await asyncio.gather(*(world.log.append("x", str(number), timeout=0) for number in range(5)))
    await world.log.end("x")
    assert sorted(await data_of(world.log, "x")) == [*map(str, range(5)), "done"]


@pytest.mark.parametrize("fault", ["reply lost", "not made"])
def test_append_repeated_by_the_log_adds_one_event(fault: str) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async with world.log.run("x", lease=LEASE) as run:
            for number in range(10):
                world.store.faults = [fault] * (number % 3)
                await run.append(str(number))
            world.store.faults = [fault]
        assert await data_of(world.log, "x") == [*map(str, range(10)), "done"]

    test()


def test_append_repeated_after_another_writers_adds_one_event() -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        logs = [world.log, world.another(), world.another()]
        random = Random(7)

        async def write(log: EventLog, store: SimulatedStore, writer: int) -> None:
            for number in range(40):
                store.faults = ["reply lost"] * (random.random() < 0.5)
                await log.append("x", f"{writer}:{number}")

        await asyncio.gather(*map(write, logs, world.server.stores, range(3)))
        await world.log.end("x")
        *got, end = await data_of(world.log, "x")
        assert end == "done"
        assert sorted(got) == sorted(f"{writer}:{number}" for writer in range(3) for number in range(40))

    test()


@in_virtual_time()
async def test_end_whose_reply_was_lost_is_its_own(world: World) -> None:
    await world.log.append("x", "a")
    world.store.faults = ["reply lost"]
    assert await world.log.end("x") == await world.log.last_id("x")
    with pytest.raises(EndedError):
        await world.log.end("x")


@in_virtual_time()
async def test_run_begins_once_though_the_reply_is_lost(world: World) -> None:
    world.store.faults = ["reply lost"]
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
    assert await data_of(world.log, "x") == ["a", "done"]


@in_virtual_time()
async def test_run_that_could_not_begin_is_entered_again(world: World) -> None:
    run = world.log.run("x", lease=LEASE)
    world.store.faults = ["reply lost"] * 50
    world.outage(LEASE * 1.1)
    with pytest.raises(StoreDownError):
        await run.__aenter__()
    world.store.faults.clear()
    await asyncio.sleep(LEASE)
    async with run:
        await run.append("a")
        with pytest.raises(TopicExistsError):
            await world.another().run("x").__aenter__()
    assert await data_of(world.log, "x") == ["a", "done"]


@in_virtual_time()
async def test_silent_run_lives_as_long_as_its_block(world: World) -> None:
    listener = world.listen()
    async with world.log.run("x", lease=LEASE):
        await asyncio.sleep(100.0)
        assert not listener.done()
        before = world.log.statistics().reads
        await asyncio.sleep(100.0)
        assert world.log.statistics().reads == before  # a renewal needs no read
    assert await listener == ["done"]


@in_virtual_time()
async def test_living_run_survives_any_outage(world: World) -> None:
    listener = world.listen()
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        for seconds in (1.0, 2.9, 3.1, 4.0, 7.3, 30.0):
            world.outage(seconds)
            await asyncio.sleep(seconds + 2 * LEASE)
            world.store.notice()
        await run.append("b")
    assert await listener == ["a", "b", "done"]


async def begun(world: World) -> tuple[Run, Callable[[], object]]:
    """Begin a run of another log. Returns: it, and a function that kills all of its tasks, as a crash does."""
    before = asyncio.all_tasks()
    run = await world.another().run("x", lease=LEASE).__aenter__()
    tasks = asyncio.all_tasks() - before
    assert tasks
    return run, lambda: [task.cancel() for task in tasks]


@in_virtual_time()
async def test_dead_run_is_abandoned_after_the_lease_and_a_third(world: World) -> None:
    run, kill = await begun(world)
    await run.append("a")
    began, listener = world.now(), world.listen()
    kill()
    assert await listener == ["a", "abandoned"]
    assert LEASE * 4 / 3 <= world.now() - began + 0.1 < LEASE * 1.5
    assert world.log.statistics().abandoned == 1


@in_virtual_time()
async def test_dead_run_is_abandoned_once_by_many_readers(world: World) -> None:
    logs = [world.another() for _ in range(5)]
    _, kill = await begun(world)
    listeners = [world.listen(log=log) for log in logs]
    await asyncio.sleep(LEASE)
    kill()
    assert [await listener for listener in listeners] == [["abandoned"]] * 5
    assert sum(log.statistics().abandoned for log in logs) == 1


# leaving a run in an outage


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_run_left_in_an_outage_does_not_keep_its_task(how: str) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async def produce() -> None:
            async with world.log.run("x", lease=LEASE) as run:
                await run.append("a")
                world.outage(LEASE * 0.8)
                if how == "failed":
                    raise LookupError
                await asyncio.sleep(60)

        task = asyncio.create_task(produce())
        await asyncio.sleep(0.5)
        began = world.now()
        task.cancel() if how == "cancelled" else None
        with suppress(LookupError, asyncio.CancelledError):
            await task
        assert world.now() - began <= PARTING
        assert world.server.is_down
        assert await data_of(world.log, "x") == ["a", how]  # it was written in the background

    test()


@in_virtual_time()
async def test_run_done_in_an_outage_waits_for_its_end(world: World) -> None:
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        world.outage(LEASE * 0.8)
    assert not world.server.is_down
    assert await data_of(world.log, "x") == ["a", "done"]


def test_run_done_in_a_long_outage_raises(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async def produce() -> None:
            async with world.log.run("x", lease=LEASE) as run:
                await run.append("a")
                world.outage(LEASE * 3)

        began = world.now()
        with pytest.raises(StoreDownError):
            await produce()
        assert world.now() - began < LEASE * 1.1
        assert "the run 'x' is done, and its listeners learn it by the lease: the server is down" in caplog.text
        await asyncio.sleep(LEASE * 2)
        assert await data_of(world.log, "x") == ["a", "abandoned"]

    test()


@in_virtual_time()
async def test_closed_log_writes_the_ends_of_cancelled_runs(world: World) -> None:
    async def produce(topic: str) -> None:
        async with world.log.run(topic) as run:
            await run.append("a")
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(produce(f"x{number}")) for number in range(5)]
    await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
        asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(0)
    await world.log.aclose()
    other = world.another()
    assert [await data_of(other, f"x{number}") for number in range(5)] == [["a", "cancelled"]] * 5


@in_virtual_time()
async def test_closed_log_in_an_outage_waits_for_a_second(world: World) -> None:
    async def produce() -> None:
        async with world.log.run("x") as run:
            await run.append("a")
            await asyncio.sleep(60)

    task = asyncio.create_task(produce())
    await asyncio.sleep(0.5)
    world.outage(100.0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    began = world.now()
    await world.log.aclose()
    assert world.now() - began <= PARTING


@in_virtual_time()
async def test_closed_log_ends_an_append_in_an_outage(world: World) -> None:
    await world.log.start()
    world.outage(100.0)
    append = asyncio.create_task(world.log.append("x", "a"))
    await asyncio.sleep(3.0)
    await world.log.aclose()
    began = world.now()
    with pytest.raises(PurgatoryClosedError):
        await append
    assert world.now() - began <= 1.0


# cut off


async def produce_for_ever(log: EventLog, **options: Any) -> None:
    async with log.run("x", lease=LEASE, **options) as run:
        await run.append("a")
        await asyncio.sleep(1_000)


@in_virtual_time()
async def test_closed_log_ends_its_open_runs_at_once(world: World) -> None:
    producer = asyncio.create_task(produce_for_ever(world.log))
    listener = world.listen(log=world.another())
    await asyncio.sleep(0.5)
    began = world.now()
    await world.log.aclose()
    assert await listener == ["a", "abandoned"]
    assert world.now() - began < 0.1
    producer.cancel()
    with suppress(asyncio.CancelledError):
        await producer


@in_virtual_time()
async def test_closed_log_in_an_outage_leaves_its_runs_to_the_lease(world: World) -> None:
    producer = asyncio.create_task(produce_for_ever(world.log))
    await asyncio.sleep(0.5)
    world.outage(LEASE / 2)
    began = world.now()
    await world.log.aclose()
    assert world.now() - began <= PARTING
    assert await data_of(world.another(), "x") == ["a", "abandoned"]
    assert LEASE < world.now() - began < LEASE * 2
    producer.cancel()
    with suppress(asyncio.CancelledError):
        await producer


@pytest.mark.parametrize("how", ["log closed", "cancelled", "failed"])
def test_try_of_a_job_that_is_cut_off_is_taken_over(how: str) -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        async def fail() -> None:
            async with world.log.run("x", lease=LEASE, resume=True) as run:
                await run.append("a")
                raise LookupError

        listener = world.listen(log=world.another())
        producer = asyncio.create_task(fail() if how == "failed" else produce_for_ever(world.log, resume=True))
        await asyncio.sleep(0.5)
        if how == "log closed":
            await world.log.aclose()
        producer.cancel()
        with suppress(LookupError, asyncio.CancelledError):
            await producer
        await asyncio.sleep(LEASE * 0.9)
        async with world.another().run("x", lease=LEASE, resume=True) as run:
            assert run.last_id is not None
            await run.append("b")
        assert await listener == ["a", "b", "done"]

    test()


@in_virtual_time()
async def test_try_of_a_job_that_nobody_tries_again_is_abandoned(world: World) -> None:
    producer = asyncio.create_task(produce_for_ever(world.log, resume=True))
    listener = world.listen(log=world.another())
    await asyncio.sleep(0.5)
    producer.cancel()
    began = world.now()
    assert await listener == ["a", "abandoned"]
    assert LEASE < world.now() - began < LEASE * 1.5


@in_virtual_time()
async def test_last_try_of_a_job_ends_it(world: World) -> None:
    with suppress(LookupError):
        async with world.log.run("x", resume=True) as run:
            try:
                raise LookupError
            except LookupError:
                await run.end("failed")
                raise
    assert await data_of(world.log, "x") == ["failed"]


def test_run_ended_by_another_stops_renewing() -> None:
    @in_virtual_time()
    async def test(world: World) -> None:
        before = asyncio.all_tasks()
        async with world.log.run("x", lease=LEASE) as run:
            tasks = asyncio.all_tasks() - before
            await asyncio.sleep(LEASE)
            assert not any(task.done() for task in tasks)
            await world.another().end("x", "stopped")
            await asyncio.sleep(LEASE)
            assert any(task.done() for task in tasks)
            with pytest.raises(EndedError):
                await run.append("a")

    test()


# retention


@in_virtual_time(keep_seconds=100.0)
async def test_event_is_as_old_as_its_append(world: World) -> None:
    """Not as old as the event that its writer knew before."""
    await world.log.append("x", "old")
    await asyncio.sleep(90.0)
    await world.log.append("x", "new")
    await asyncio.sleep(50.0)
    await world.log.append("x", "newest")
    await world.log.end("x")
    assert await data_of(world.log, "x") == ["new", "newest", "done"]


@in_virtual_time(keep_seconds=60.0)
async def test_old_topics_are_forgotten(world: World) -> None:
    for number in range(20):
        await world.log.append(f"x{number}", "a")
        await asyncio.sleep(10.0)
    assert len(world.server._topics) <= 7


@in_virtual_time()
async def test_writers_of_topics_are_bounded(world: World) -> None:
    for number in range(1_200):
        await world.log.append(f"x{number}", "a")
    assert len(world.log._writers) == 1_000
    await world.log.append("x0", "b")
    await world.log.end("x0")
    assert await data_of(world.log, "x0") == ["a", "b", "done"]


@in_virtual_time(unknown_timeout=1.0)
async def test_nothing_is_left_of_topics_that_are_gone(world: World) -> None:
    for number in range(50):
        topic = f"x{number}"
        listeners = [world.listen(topic), world.listen(f"unknown {number}")]
        await world.log.append(topic, "a")
        await world.log.end(topic)
        assert await listeners[0] == ["a", "done"]
        with suppress(NotFoundError):
            await listeners[1]
    tails = world.log._tails
    assert tails is not None
    await settle(lambda: True)
    assert not tails._tails
    assert not tails._older
    assert not tails._tasks._tasks
    assert not tails.windows._turn
