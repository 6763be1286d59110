"""Streams of events from handlers of one's own, without a server: their iterator may be left in any way."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory.testing import ManualClock
from aiopurgatory.web import EventAnswer

from .conftest import Making
from .eventsource import Event, Streams, parsed
from .exchange import Messages
from .polls import Database, Given, check_empty, settle


async def rest(events: EventAnswer) -> list[bytes]:
    return [chunk async for chunk in events]


async def test_events_come_as_they_are_published(streams: Streams) -> None:
    events = await streams.answer()
    assert (events.status, events.headers["content-type"]) == (200, "text/event-stream")
    chunks = [await anext(events)]
    assert chunks[0].startswith(b"retry: ")
    await streams.publish()
    chunks.append(await anext(events))
    await streams.publish()
    await streams.publish()  # versions in between are merged
    chunks.append(await anext(events))
    assert [event.id for event in parsed(*chunks)] == ["0", "1", "3"]
    await events.aclose()
    assert await rest(events) == []


async def test_stream_resumes_from_the_last_event_id_or_since(streams: Streams) -> None:
    await streams.publish()
    for how in ({"last_event_id": "1"}, {"since": "1"}, {"last_event_id": "1", "since": "9"}):
        events = await streams.answer(**how)
        assert parsed(await anext(events)) == []
        await events.aclose()
    events = await streams.answer(last_event_id="1" * 10_000)  # too long to be ours
    assert parsed(await anext(events)) == [Event("message", "1", "n None 1")]
    await events.aclose()


# refusals


async def test_refusal_is_an_answer(make: Making) -> None:
    streams = make(max_per_group=1)
    streams.source.values["n"] = -1
    gone = await streams.answer()
    assert (gone.status, await rest(gone)) == (410, [b"n was compacted"])
    first = await streams.answer("m", group="all")
    second = await streams.answer("m", group="all")
    assert (second.status, second.headers["refused"]) == (503, "group")
    assert len(await rest(second)) == 1
    assert streams.polling.statistics().refused == {"group": 1}
    streams.purgatory.close()
    assert len(await rest(first)) == 2  # the events, and when to reconnect
    closed = await streams.answer("m")
    assert (closed.status, closed.headers["refused"], await rest(closed)) == (503, "closed", [])


async def test_error_of_the_source_later_is_raised_by_the_iteration(make: Making) -> None:
    streams = make(Given())
    events = await streams.answer()
    await anext(events)
    streams.source.given = LookupError("broken")
    streams.polling.notify("n")
    with pytest.raises(LookupError):
        await anext(events)
    assert await rest(events) == []
    check_empty(streams.polling)


async def test_handler_cancelled_during_the_first_read_leaves_nothing(make: Making) -> None:
    streams = make(database := Database())
    database.gate.clear()
    task = asyncio.create_task(streams.answer(group="all"))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    await settle()
    assert (task.cancelled(), database.under_way) == (True, 0)
    check_empty(streams.polling)


# the iterator is left


@pytest.mark.usefixtures("kept")
async def test_break_releases_the_place(streams: Streams) -> None:
    async def handler() -> None:
        async for _ in await streams.answer(client="ann", group="all"):
            break

    await handler()
    await settle()
    check_empty(streams.polling)


@pytest.mark.usefixtures("kept")
async def test_answer_that_nobody_iterates_keeps_no_place(streams: Streams) -> None:
    await streams.answer()
    await settle()
    check_empty(streams.polling)


async def test_answer_that_is_kept_and_not_iterated_expires(streams: Streams, clock: ManualClock) -> None:
    events = await streams.answer(group="all")
    await clock.advance(30.0)
    await settle()
    assert streams.purgatory.statistics().expired == 1
    check_empty(streams.polling)
    assert len(await rest(events)) == 1  # it was read before


async def test_reader_slower_than_the_stall_gets_no_more(streams: Streams, clock: ManualClock) -> None:
    events = await streams.answer()
    await anext(events)
    await streams.publish()
    await clock.advance(30.0)
    await streams.publish()
    assert await rest(events) == []


@pytest.mark.parametrize("turns", range(1, 6))
async def test_cancelled_iteration_releases_the_place(streams: Streams, turns: int) -> None:
    events = await streams.answer(client="ann")
    await anext(events)
    task = asyncio.ensure_future(anext(events))
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 3:
            streams.source.values["n"] = 1
            streams.polling.notify("n")
    task.cancel()
    await asyncio.wait([task])
    await settle()
    if task.cancelled():
        assert await rest(events) == []
    assert turns > 3 or streams.polling.statistics().streams == 0
    await events.aclose()


async def test_disconnect_ends_the_iteration(streams: Streams) -> None:
    client = Messages()
    events = await streams.answer(receive=client.receive)
    await anext(events)
    reading = asyncio.create_task(rest(events))
    await settle()
    assert not reading.done()
    client.leave()
    assert await reading == []
