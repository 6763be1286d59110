"""Streams of events from handlers of one's own, without a server: their iterator may be left in any way."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import EventAnswer, LongPolling, Policy
from aiopurgatory.web.answer import ReadFailedError

from .eventsource import Event, Forgets, Parser
from .polls import Counters, settle
from .test_longpoll_async import Database


class Handlers:
    """Handlers that iterate the events of one LongPolling, and a publisher."""

    def __init__(self, purgatory: Purgatory, counters: Counters, **policy: Any) -> None:
        self.counters = counters
        self.polling = LongPolling(purgatory, counters, policy=Policy(**policy))

    async def start(self, resource: str = "n", last_event_id: str | None = None, **more: Any) -> EventAnswer:
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        return await self.polling.events(resource, headers, **more)

    def publish(self, resource: str = "n") -> None:
        self.counters.values[resource] = self.counters.values.get(resource, 0) + 1
        self.polling.notify(resource)


def parsed(*chunks: bytes) -> list[Event]:
    parser = Parser()
    for chunk in chunks:
        parser.feed(chunk)
    return parser.events


async def rest(events: EventAnswer) -> list[bytes]:
    return [chunk async for chunk in events]


@pytest.fixture
async def handlers(purgatory: Purgatory, counters: Counters) -> AsyncIterator[Handlers]:
    handlers = Handlers(purgatory, counters)
    yield handlers
    await settle()
    found = handlers.polling.statistics()
    assert (purgatory.num_delayed, found.streams, found.clients, found.groups) == (0, 0, 0, 0)
    check_invariants(purgatory)


async def test_events_come_as_they_are_published(handlers: Handlers) -> None:
    events = await handlers.start()
    assert (events.status, events.headers["content-type"]) == (200, "text/event-stream")
    chunks = [await anext(events)]
    assert chunks[0].startswith(b"retry: ")
    handlers.publish()
    chunks.append(await anext(events))
    handlers.publish()
    handlers.publish()  # versions in between are merged
    chunks.append(await anext(events))
    assert [event.id for event in parsed(*chunks)] == ["0", "1", "3"]
    await events.aclose()
    assert await rest(events) == []


async def test_stream_resumes_from_the_last_event_id_or_since(handlers: Handlers) -> None:
    handlers.publish()
    for how in ({"last_event_id": "1"}, {"since": "1"}, {"last_event_id": "1", "since": "9"}):
        events = await handlers.start(**how)
        assert parsed(await anext(events)) == []
        await events.aclose()
    events = await handlers.start(last_event_id="1" * 10_000)  # too long to be ours
    assert parsed(await anext(events)) == [Event("message", "1", "n None 1")]
    await events.aclose()


async def test_heartbeat_comes_in_silence(handlers: Handlers, clock: ManualClock) -> None:
    events = await handlers.start()
    await anext(events)
    beat = asyncio.ensure_future(anext(events))
    await clock.advance(14.9)
    assert not beat.done()
    await clock.advance(0.2)
    assert await beat == b":\n"
    await events.aclose()


async def test_version_that_is_gone_is_told(purgatory: Purgatory) -> None:
    counters = Forgets()
    counters.gone = {"old"}
    events = await Handlers(purgatory, counters).start(last_event_id="old")
    assert parsed(await anext(events))[0] == Event("gone", "", "old is gone")
    await events.aclose()


# refusals


async def test_refusal_is_an_answer(purgatory: Purgatory, counters: Counters) -> None:
    handlers = Handlers(purgatory, counters, max_per_group=1)
    counters.values["n"] = -1
    gone = await handlers.start()
    assert (gone.status, await rest(gone)) == (410, [b"n was compacted"])
    first = await handlers.start("m", group="all")
    second = await handlers.start("m", group="all")
    assert (second.status, second.headers["refused"]) == (503, "group")
    assert len(await rest(second)) == 1
    assert handlers.polling.statistics().refused == {"group": 1}
    purgatory.close()
    assert len(await rest(first)) == 2  # the events, and when to reconnect
    closed = await handlers.start("m")
    assert (closed.status, closed.headers["refused"], await rest(closed)) == (503, "closed", [])


async def test_error_of_the_source_is_raised(handlers: Handlers) -> None:
    with pytest.raises(LookupError):
        await handlers.start("broken")


async def test_error_of_the_source_later_is_raised_by_the_iteration(purgatory: Purgatory) -> None:
    class Breaks(Counters):
        def version(self, resource: str) -> str:
            if self.values:
                raise LookupError("broken")
            return "0"

    handlers = Handlers(purgatory, Breaks())
    events = await handlers.start()
    await anext(events)
    handlers.publish()
    with pytest.raises(LookupError):
        await anext(events)
    assert await rest(events) == []
    assert (purgatory.num_delayed, handlers.polling.statistics().streams) == (0, 0)


async def test_keys_that_are_one_str_are_refused(handlers: Handlers) -> None:
    with pytest.raises(TypeError, match="keys must be"):
        await handlers.start(keys="orders")


async def test_handler_cancelled_during_the_first_read_leaves_nothing(purgatory: Purgatory) -> None:
    database = Database()
    database.gate.clear()
    polling = LongPolling(purgatory, database)
    task = asyncio.create_task(polling.events("n", {}, group="all"))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    await settle()
    assert task.cancelled()
    found = polling.statistics()
    assert (purgatory.num_delayed, found.streams, found.groups, database.under_way) == (0, 0, 0, 0)


# the iterator is left


async def test_break_releases_the_place(handlers: Handlers, purgatory: Purgatory) -> None:
    async def handler() -> None:
        async for _ in await handlers.start(client="ann", group="all"):
            break

    gc.disable()
    try:
        await handler()
        await settle()
        assert (purgatory.num_delayed, handlers.polling.statistics().groups) == (0, 0)
    finally:
        gc.enable()


async def test_answer_that_nobody_iterates_keeps_no_place(handlers: Handlers, purgatory: Purgatory) -> None:
    gc.disable()
    try:
        await handlers.start()
        await settle()
        assert purgatory.num_delayed == 0
    finally:
        gc.enable()


async def test_answer_that_is_kept_and_not_iterated_expires(
    handlers: Handlers, purgatory: Purgatory, clock: ManualClock
) -> None:
    events = await handlers.start(group="all")
    await clock.advance(30.0)
    await settle()
    found = handlers.polling.statistics()
    assert (purgatory.statistics().expired, purgatory.num_delayed, found.streams, found.groups) == (1, 0, 0, 0)
    assert len(await rest(events)) == 1  # it was read before


async def test_reader_slower_than_the_stall_gets_no_more(handlers: Handlers, clock: ManualClock) -> None:
    events = await handlers.start()
    await anext(events)
    handlers.publish()
    await clock.advance(30.0)
    handlers.publish()
    assert await rest(events) == []


@pytest.mark.parametrize("turns", range(1, 6))
async def test_cancelled_iteration_releases_the_place(handlers: Handlers, turns: int) -> None:
    events = await handlers.start(client="ann")
    await anext(events)
    task = asyncio.ensure_future(anext(events))
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 3:
            handlers.publish()
    task.cancel()
    await asyncio.wait([task])
    await settle()
    if task.cancelled():
        assert await rest(events) == []
    assert turns > 3 or handlers.polling.statistics().streams == 0
    await events.aclose()


async def test_aclosing_releases_the_place(handlers: Handlers, purgatory: Purgatory) -> None:
    async with aclosing(await handlers.start()) as events:
        await anext(events)
        assert purgatory.num_delayed == 1
    assert purgatory.num_delayed == 0


async def test_disconnect_ends_the_iteration(handlers: Handlers) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    events = await handlers.start(receive=receive)
    await anext(events)
    reading = asyncio.create_task(rest(events))
    await settle()
    assert not reading.done()
    left.set()
    assert await reading == []


async def test_newer_stream_of_the_client_ends_the_older(handlers: Handlers) -> None:
    older = await handlers.start(client="ann")
    await anext(older)
    newer = await handlers.start(client="ann")
    assert parsed(*await rest(older))[0].kind == "replaced"
    await newer.aclose()


async def test_stream_ends_at_its_age(purgatory: Purgatory, counters: Counters, clock: ManualClock) -> None:
    handlers = Handlers(purgatory, counters, max_age=60.0, jitter=0.0)
    reading = asyncio.create_task(rest(await handlers.start()))
    await clock.advance(60.0)
    chunks = await reading
    assert chunks[-1].startswith(b"retry: ")
    assert purgatory.statistics().completed == 1


async def test_failing_database_ends_the_iteration(purgatory: Purgatory) -> None:
    class Fails(Database):
        async def version(self, resource: str) -> str:
            if self.numbers:
                raise ReadFailedError
            return await super().version(resource)

    database = Fails()
    polling = LongPolling(purgatory, database)
    events = await polling.events("n", {})
    await anext(events)
    database.numbers["n"] = 1
    polling.notify("n")
    assert [chunk[:7] for chunk in await rest(events)] == [b"retry: "]


async def test_resource_that_is_gone_later_ends_the_iteration(handlers: Handlers, purgatory: Purgatory) -> None:
    events = await handlers.start()
    await anext(events)
    purgatory.fail_for_key("n", GoneError("n moved"))
    assert parsed(*await rest(events)) == [Event("gone", "", "n moved")]
