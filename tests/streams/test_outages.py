"""Listeners and producers on a server that is down, slow or broken. In virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from aiopurgatory import NotFoundError, PurgatoryClosedError
from aiopurgatory.streams import EndedError, EventLog, Run, StoreDownError, StoreError, TopicExistsError
from aiopurgatory.streams.producer import PARTING
from aiopurgatory.streams.store import Commit, Page
from aiopurgatory.streams.tail import LONGEST_PAUSE, Tail, Window
from aiopurgatory.testing.manual_clock import settle

from .conftest import assert_no_tasks, data_of, ended
from .simulated import SimulatedServer, SimulatedStore

LEASE = 3.0


class World:
    """A server, and a log on it."""

    def __init__(self, **options: Any) -> None:
        self.server = SimulatedServer()
        self.store = SimulatedStore(self.server, Random(1))
        self.log = EventLog(self.store, **options)
        self.others: list[EventLog] = []
        self.tasks = list[asyncio.Task[Any]]()

    def another(self) -> EventLog:
        """A log in another process."""
        self.others.append(EventLog(SimulatedStore(self.server, Random(2))))
        return self.others[-1]

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def listen(
        self, topic: str = "x", after: str | None = None, log: EventLog | None = None
    ) -> asyncio.Task[list[str]]:
        return asyncio.create_task(data_of(log or self.log, topic, after))

    async def produce(self, topic: str = "x", resume: bool = False) -> asyncio.Task[None]:
        """Begin a run of one event, which goes on for long."""

        async def produce() -> None:
            async with self.log.run(topic, lease=LEASE, resume=resume) as run:
                await run.append("a")
                await asyncio.sleep(1_000)

        self.tasks.append(asyncio.create_task(produce()))
        await asyncio.sleep(0.5)
        return self.tasks[-1]

    def outage(self, seconds: float) -> None:
        self.server.is_down = True
        asyncio.get_running_loop().call_later(seconds, setattr, self.server, "is_down", False)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Its log must leave nothing behind. Args: param: options of the log."""
    before = asyncio.all_tasks()
    world = World(**getattr(request, "param", {}))
    await world.log.start()
    yield world
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)
    await settle(lambda: True)
    found = world.log.statistics()
    assert (found.listeners, found.topics, found.window_bytes) == (0, 0, 0)
    for log in (world.log, *world.others):
        await log.aclose()
    await assert_no_tasks(before)


def world_of(**options: float) -> pytest.MarkDecorator:
    """A world with a log of these *options*."""
    return pytest.mark.parametrize("world", [options], indirect=True, ids=["_".join(options)])


async def assert_all_fail(*calls: Awaitable[object], error: type[Exception] = StoreDownError, match: str = "") -> None:
    """Assert that each of these calls, which run together, raises *error*."""
    for raised in await asyncio.gather(*calls, return_exceptions=True):
        assert type(raised) is error
        assert match in str(raised)


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
async def test_first_uses_that_queue_fail_together(world: World) -> None:
    world.outage(60.0)
    other = world.another()
    async with asyncio.timeout(2.5):
        await assert_all_fail(*(data_of(other, str(number)) for number in range(50)))


# listeners


async def test_down_at_the_first_read_is_waited_for(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(60.0)
    began, listener = world.now(), world.listen()
    await asyncio.sleep(1.0)
    assert world.log.statistics().error == "the server is down"
    await asyncio.sleep(61.0 + LONGEST_PAUSE)
    await world.log.end("x")
    assert await listener == ["a", "done"]
    assert world.log.statistics().error is None
    assert world.now() - began < 70.0


@world_of(unknown_timeout=5.0)
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


@world_of(unknown_timeout=5.0)
async def test_listeners_of_an_unknown_topic_add_no_reads_to_an_outage(world: World) -> None:
    for _ in range(40):  # the time of each runs out in the outage
        world.tasks.append(world.listen())
        await asyncio.sleep(0.1)
    world.outage(20.0)
    before = world.log.statistics().reads
    await asyncio.sleep(10.0)
    assert 0 < world.log.statistics().reads - before < 20


@world_of(unknown_timeout=3.0)
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


@world_of(window_bytes=0)
async def test_older_events_come_after_a_broken_connection(world: World) -> None:
    """They come although nothing else happens in the topic."""
    ids = [await world.log.append("x", str(number)) for number in range(5)]
    first = world.listen(after=ids[-1])
    await asyncio.sleep(1.0)
    world.outage(0.1)
    async with asyncio.timeout(1.0), world.log.follow("x", ids[0]) as behind:
        assert [(await anext(behind)).data for _ in range(4)] == ["1", "2", "3", "4"]
    first.cancel()


@pytest.mark.parametrize("close", ["aclose", "purgatory"])
@world_of(window_bytes=0)
async def test_closing_does_not_wait_for_older_events(world: World, close: str) -> None:
    ids = [await world.log.append("x", str(number)) for number in range(5)]
    first = world.listen(after=ids[-1])
    await asyncio.sleep(1.0)
    world.outage(60.0)
    behind = [world.listen(after=ids[1]) for _ in range(3)]
    await asyncio.sleep(5.0)
    async with asyncio.timeout(0.1):
        await world.log.aclose() if close == "aclose" else world.log.purgatory.close()
        await assert_all_fail(first, *behind, error=PurgatoryClosedError)


@world_of(unknown_timeout=5.0)
async def test_deleted_topic_ends_its_listeners(world: World) -> None:
    await world.log.append("x", "a")
    listeners = [world.listen() for _ in range(3)]
    await asyncio.sleep(1.0)
    world.server.delete("x")
    world.store.notice()
    await asyncio.sleep(0.1)
    await assert_all_fail(*listeners, error=NotFoundError, match="the topic is not there any more")


# broken


async def test_error_in_a_tail_ends_its_listeners(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.log.append("x", "a")
    listeners = [world.listen() for _ in range(3)]
    await asyncio.sleep(1.0)
    world.store.broken = LookupError("a corrupt row")
    world.store.notice()
    await asyncio.sleep(0.1)
    errors = {listener.exception() for listener in listeners}
    assert len(errors) == 3  # each has a traceback of its own
    assert {type(error) for error in errors} == {StoreError}
    assert all("a corrupt row" in str(error) for error in errors)
    assert "the topic 'x' cannot be read; its listeners end" in caplog.text
    world.store.broken = None
    again = world.listen()  # the next one gets a new tail
    await asyncio.sleep(1.0)
    await world.log.end("x")
    assert await again == ["a", "done"]


async def test_error_in_a_tail_with_a_listener_that_is_busy(world: World) -> None:
    await world.log.append("x", "a")
    busy = world.log.follow("x")
    await anext(busy)
    world.store.broken = LookupError("a corrupt row")
    world.store.notice()
    await asyncio.sleep(1.0)
    assert world.log.statistics().window_bytes == 0
    world.store.broken = None
    other = world.listen()
    await asyncio.sleep(1.0)
    with pytest.raises(StoreError):
        await anext(busy)
    assert world.log.statistics().listeners == 1
    await world.log.end("x")
    assert await other == ["a", "done"]


@world_of(window_bytes=0)
async def test_error_while_reading_older_events_ends_these_listeners(world: World) -> None:
    ids = [await world.log.append("x", str(number)) for number in range(5)]
    first = world.listen(after=ids[-1])
    await asyncio.sleep(1.0)
    world.store.broken = LookupError("a corrupt row")
    behind = [world.listen(after=ids[1]) for _ in range(3)]
    await asyncio.sleep(1.0)
    await assert_all_fail(*behind, error=StoreError, match="a corrupt row")
    assert not first.done()
    first.cancel()
    world.store.broken = None


async def test_error_in_a_commit_is_raised_and_the_next_one_is_made(world: World) -> None:
    await world.log.append("x", "a")
    world.store.broken = LookupError("a full disk")
    with pytest.raises(StoreError, match=r"the store has failed: .*a full disk") as raised:
        await world.log.append("x", "b")
    assert isinstance(raised.value.__cause__, LookupError)
    world.store.broken = None
    await world.log.append("x", "c")
    assert await ended(world.log, "x") == ["a", "c", "done"]


async def test_start_that_fails_closes_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_append_that_a_closed_store_refuses_says_it_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(topic: str, commit: Commit) -> Page:
        await asyncio.sleep(1.0)
        raise AssertionError("it is not open")

    await world.log.append("x", "a")
    monkeypatch.setattr(world.store, "commit", refuse)
    append = asyncio.create_task(world.log.append("x", "b"))
    await asyncio.sleep(0.5)
    await world.log.aclose()
    with pytest.raises(PurgatoryClosedError):
        await append


# producers


async def test_append_and_end_wait_through_an_outage(world: World) -> None:
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        world.outage(LEASE * 0.97)  # the last try is made when the lease is over
        await run.append("b")
        world.outage(LEASE * 0.8)
    assert not world.server.is_down
    assert await data_of(world.log, "x") == ["a", "b", "done"]


async def test_append_gives_up_after_the_lease(world: World) -> None:
    async with world.log.run("x", lease=LEASE) as run:
        await run.append("a")
        world.outage(LEASE * 2)
        began = world.now()
        with pytest.raises(StoreDownError, match="the server is down"):
            await run.append("b")
        assert LEASE <= world.now() - began <= LEASE + 0.1  # the last attempt also takes its time
        await asyncio.sleep(LEASE * 1.5)
        await run.append("c")  # nobody has listened, so it goes on
    assert await data_of(world.log, "x") == ["a", "c", "done"]


async def test_appends_that_queue_give_up_together(world: World) -> None:
    await world.log.append("x", "a")
    world.outage(100.0)
    async with asyncio.timeout(6.0):
        await assert_all_fail(*(world.log.append("x", str(number), timeout=5.0) for number in range(20)))


async def test_append_without_patience_tries_once(world: World) -> None:
    world.outage(10.0)
    async with asyncio.timeout(0.1):
        await assert_all_fail(world.log.append("x", "a", timeout=0))
    await asyncio.sleep(10.0)
    await asyncio.gather(*(world.log.append("x", str(number), timeout=0) for number in range(5)))
    assert sorted(await ended(world.log, "x")) == [*map(str, range(5)), "done"]


@pytest.mark.parametrize("fault", ["reply lost", "not made"])
async def test_run_whose_writes_are_repeated_has_each_once(world: World, fault: str) -> None:
    world.store.faults = [fault]
    async with world.log.run("x", lease=LEASE) as run:
        for number in range(10):
            world.store.faults = [fault] * (number % 3)
            await run.append(str(number))
        world.store.faults = [fault]
    assert await data_of(world.log, "x") == [*map(str, range(10)), "done"]


async def test_end_whose_reply_was_lost_is_its_own(world: World) -> None:
    await world.log.append("x", "a")
    world.store.faults = ["reply lost"]
    assert await world.log.end("x") == await world.log.last_id("x")
    with pytest.raises(EndedError):
        await world.log.end("x")


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


async def test_silent_run_lives_as_long_as_its_block(world: World) -> None:
    listener = world.listen()
    async with world.log.run("x", lease=LEASE):
        await asyncio.sleep(100.0)
        assert not listener.done()
        before = world.log.statistics().reads
        await asyncio.sleep(100.0)
        assert world.log.statistics().reads == before  # a renewal needs no read
    assert await listener == ["done"]


async def begun(world: World) -> tuple[Run, Callable[[], object]]:
    """Begin a run of another log. Returns: it, and a function that kills all of its tasks, as a crash does."""
    before = asyncio.all_tasks()
    run = await world.another().run("x", lease=LEASE).__aenter__()
    tasks = asyncio.all_tasks() - before
    assert tasks
    return run, lambda: [task.cancel() for task in tasks]


async def test_dead_run_is_abandoned_after_the_lease_and_a_third(world: World) -> None:
    run, kill = await begun(world)
    await run.append("a")
    began, listener = world.now(), world.listen()
    kill()
    assert await listener == ["a", "abandoned"]
    assert LEASE * 4 / 3 <= world.now() - began + 0.1 < LEASE * 1.5
    assert world.log.statistics().abandoned == 1
    with pytest.raises(EndedError, match=r"it has ended \(abandoned\)"):
        await run.append("b")


# leaving a run in an outage


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_run_left_in_an_outage_does_not_keep_its_task(world: World, how: str) -> None:
    async def produce() -> None:
        async with world.log.run("x", lease=LEASE) as run:
            await run.append("a")
            world.outage(LEASE * 0.8)
            if how == "failed":
                raise LookupError
            await asyncio.sleep(60)

    task = asyncio.create_task(produce())
    await asyncio.sleep(0.5)
    task.cancel() if how == "cancelled" else None
    async with asyncio.timeout(PARTING + 0.01):
        await asyncio.wait([task])
    assert world.server.is_down
    assert await data_of(world.log, "x") == ["a", how]  # it was written in the background


async def test_run_done_in_a_long_outage_raises(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(LEASE * 1.1):
        with pytest.raises(StoreDownError):  # noqa: PT012
            async with world.log.run("x", lease=LEASE) as run:
                await run.append("a")
                world.outage(LEASE * 3)
    assert "the run 'x' is done, and its listeners learn it by the lease: the server is down" in caplog.text
    await asyncio.sleep(LEASE * 2)
    assert await data_of(world.log, "x") == ["a", "abandoned"]


async def test_closed_log_writes_the_ends_of_cancelled_runs(world: World) -> None:
    for task in [await world.produce(f"x{number}") for number in range(5)]:
        task.cancel()
        asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(0)
    await world.log.aclose()
    other = world.another()
    assert [await data_of(other, f"x{number}") for number in range(5)] == [["a", "cancelled"]] * 5


async def test_closed_log_ends_an_append_in_an_outage(world: World) -> None:
    await world.log.start()
    world.outage(100.0)
    append = asyncio.create_task(world.log.append("x", "a"))
    await asyncio.sleep(3.0)
    await world.log.aclose()
    async with asyncio.timeout(1.0):
        await assert_all_fail(append, error=PurgatoryClosedError)


# cut off


async def test_closed_log_in_an_outage_leaves_its_runs_to_the_lease(world: World) -> None:
    await world.produce()
    world.outage(LEASE / 2)
    began = world.now()
    await world.log.aclose()
    assert world.now() - began <= PARTING
    assert await data_of(world.another(), "x") == ["a", "abandoned"]
    assert LEASE < world.now() - began < LEASE * 2


@pytest.mark.parametrize("how", ["log closed", "cancelled", "failed"])
async def test_try_of_a_job_that_is_cut_off_is_taken_over(world: World, how: str) -> None:
    listener = world.listen(log=world.another())
    if how == "failed":
        with suppress(LookupError):
            async with world.log.run("x", lease=LEASE, resume=True) as run:
                await run.append("a")
                raise LookupError
    else:
        producer = await world.produce(resume=True)
        if how == "log closed":
            await world.log.aclose()
        producer.cancel()
    await asyncio.sleep(LEASE * 0.9)
    async with world.another().run("x", lease=LEASE, resume=True) as run:
        assert run.last_id is not None
        await run.append("b")
    assert await listener == ["a", "b", "done"]


async def test_try_of_a_job_that_nobody_tries_again_is_abandoned(world: World) -> None:
    listener = world.listen(log=world.another())
    (await world.produce(resume=True)).cancel()
    began = world.now()
    assert await listener == ["a", "abandoned"]
    assert LEASE < world.now() - began < LEASE * 1.5


async def test_run_ended_by_another_stops_renewing(world: World) -> None:
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


# retention


@world_of(keep_seconds=100.0)
async def test_event_is_as_old_as_its_append(world: World) -> None:
    """Not as old as the event that its writer knew before."""
    await world.log.append("x", "old")
    await asyncio.sleep(90.0)
    await world.log.append("x", "new")
    await asyncio.sleep(50.0)
    await world.log.append("x", "newest")
    assert await ended(world.log, "x") == ["new", "newest", "done"]


@world_of(keep_seconds=60.0)
async def test_old_topics_are_forgotten(world: World) -> None:
    for number in range(20):
        await world.log.append(f"x{number}", "a")
        await asyncio.sleep(10.0)
    kept = [number for number in range(20) if await world.log.last_id(f"x{number}") is not None]
    assert 0 < len(kept) <= 7


async def test_writers_of_topics_are_bounded(world: World) -> None:
    for number in range(1_200):
        await world.log.append(f"x{number}", "a")
    assert world.log._writer.cache_info().currsize == 1_000
    await world.log.append("x0", "b")
    assert await ended(world.log, "x0") == ["a", "b", "done"]


@world_of(unknown_timeout=1.0)
async def test_nothing_is_left_of_topics_that_are_gone(world: World) -> None:
    for number in range(50):
        topic = f"x{number}"
        listeners = [world.listen(topic), world.listen(f"unknown {number}")]
        await world.log.append(topic, "a")
        await world.log.end(topic)
        assert await listeners[0] == ["a", "done"]
        with suppress(NotFoundError):
            await listeners[1]
    del listeners
    await settle(lambda: True)
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Tail | Window)]
