"""What an EventRoute needs of something else than states: events that each count, and that come to an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import EventRoute, GoneError, NotFoundError, Policy
from aiopurgatory.web.desk import Desk
from aiopurgatory.web.prefer import PollRequest
from aiopurgatory.web.sse import event, gone
from aiopurgatory.web.stream import EventFeed, EventStream
from aiopurgatory.web.streamed import Streamable, Streamed

from .eventsource import Client, Event
from .polls import settle


class Log(Streamable[str]):
    """Events in memory, of one topic. Those up to *trimmed* are gone."""

    def __init__(self, purgatory: Purgatory, **policy: Any) -> None:
        self.events: list[bytes] = []
        self.trimmed = 0
        self.is_over = False
        self.failure: Exception | None = None
        self.purgatory = purgatory
        self.desk = Desk(self, purgatory, Policy(**policy), "log", (), False)
        super().__init__(Events(self))

    def append(self, *events: bytes, is_over: bool = False) -> None:
        self.events += events
        self.is_over = is_over
        self.purgatory.notify("log")

    def last(self, topic: str) -> str:
        return str(len(self.events))


class Events(Streamed[str]):
    def __init__(self, log: Log) -> None:
        super().__init__(log.desk)
        self._log = log

    def open(self, request: PollRequest[str]) -> tuple[EventStream[str], EventFeed]:
        log = self._log
        stream = EventStream(request, log.last, log.purgatory, log.desk.policy)
        return stream, Reader(log, request.since)


class Reader:
    def __init__(self, log: Log, after: str | None) -> None:
        self._log = log
        self.version = after
        self.seen = ""
        self.is_over = False

    def close(self) -> None:
        pass

    async def next(self, after: str | None, /) -> bytes:
        await asyncio.sleep(0)
        log = self._log
        if log.failure is not None:
            raise type(log.failure)(*log.failure.args)  # a new one: what is raised keeps its frames
        start, found = int(after or "0"), b""
        if start < log.trimmed:
            found, start = gone(GoneError(f"{start} is gone")), log.trimmed
        self.seen = self.version = log.last("log")
        self.is_over = log.is_over
        return found + b"".join(event(str(i), log.events[i - 1]) for i in range(start + 1, len(log.events) + 1))


@pytest.fixture
async def log(purgatory: Purgatory) -> AsyncIterator[Log]:
    log = Log(purgatory)
    yield log
    await settle()
    assert (purgatory.num_delayed, log.desk.streams) == (0, 0)
    check_invariants(purgatory)


async def start(log: Log, **headers: str) -> Client:
    client = Client(EventRoute(log), "log", **headers)
    await settle()
    return client


def sent(*numbers: int) -> list[Event]:
    return [Event("message", str(number), f"e{number}") for number in numbers]


async def test_stream_has_each_event_once_and_in_order(log: Log) -> None:
    log.append(b"e1", b"e2")
    client = await start(log)
    log.append(b"e3")
    log.append(b"e4")  # before the third is read
    await settle()
    late = await start(log, last_event_id="2")
    assert (client.events, late.events) == (sent(1, 2, 3, 4), sent(3, 4))
    for each in (client, late):
        each.leave()
        await each.ended()


async def test_first_stream_starts_the_purgatory() -> None:
    """Its age is measured by a clock that the purgatory has from then on."""
    purgatory = Purgatory(clock=ManualClock(start=1e6))
    log = Log(purgatory)
    client = await start(log)
    log.append(b"e1")
    await settle()
    assert (client.events, client.task.done()) == (sent(1), False)
    client.leave()
    await client.ended()
    await purgatory.aclose()


async def test_stream_ends_after_the_last_event(log: Log) -> None:
    client = await start(log)
    log.append(b"e1", is_over=True)
    await client.ended()
    assert (client.events, client.complete, len(client.retries)) == (sent(1), True, 1)


async def test_stream_that_begins_with_the_last_event_ends(log: Log) -> None:
    log.append(b"e1", b"e2", is_over=True)
    client = await start(log, last_event_id="1")
    await client.ended()
    assert (client.status, client.events, client.complete) == (200, sent(2), True)


async def test_resume_after_the_end_is_answered_204(log: Log) -> None:
    """EventSource stops for good then."""
    log.append(b"e1", is_over=True)
    client = await start(log, last_event_id="1")
    await client.ended()
    assert (client.status, client.complete, client.events) == (204, True, [])
    assert "content-type" not in client.headers
    assert log.desk.answered == {204: 1}


async def test_events_that_are_gone_are_told_before_those_kept(log: Log) -> None:
    log.append(b"e1", b"e2", b"e3")
    log.trimmed = 2
    client = await start(log, last_event_id="1")
    assert client.events == [Event("gone", "", "1 is gone"), *sent(3)]
    client.leave()
    await client.ended()


async def test_silent_stream_has_heartbeats(log: Log, clock: ManualClock) -> None:
    client = await start(log)
    assert (client.status, client.events, client.comments) == (200, [], 0)  # nothing yet, and it is open
    await clock.advance(15.001)
    await settle()
    assert client.comments == 1
    log.append(b"e1")
    await settle()
    assert client.events == sent(1)
    client.leave()
    await client.ended()


@pytest.mark.parametrize(("failure", "status"), [(NotFoundError("no log"), 404), (GoneError("gone"), 410)])
async def test_feed_that_refuses_before_the_first_event(log: Log, failure: Exception, status: int) -> None:
    log.failure = failure
    client = await start(log)
    await client.ended()
    assert client.status == status


async def test_feed_that_fails_later_ends_the_stream(log: Log) -> None:
    client = await start(log)
    log.failure = NotFoundError("deleted")
    log.append(b"e1")
    await client.ended()
    assert client.events == [Event("gone", "", "deleted")]


async def test_something_else_than_what_can_be_streamed_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^polling must be a LongPolling or an EventLog, got 7$"):
        EventRoute(7)  # type: ignore[call-overload]
