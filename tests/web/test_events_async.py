"""Streams of events of a source that has to be awaited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import EventRoute

from .eventsource import Client, Event
from .test_longpoll_async import Database, Polls, settle


@pytest.fixture
async def polls(purgatory: Purgatory) -> AsyncIterator[Polls]:
    polls = Polls(purgatory)
    yield polls
    await settle()
    assert (purgatory.num_delayed, polls.polling.statistics().streams) == (0, 0)


async def start(polls: Polls, resource: str = "n", **headers: str) -> Client:
    client = Client(EventRoute(polls.polling), resource, **headers)
    await settle()
    return client


async def leave(client: Client) -> None:
    client.leave()
    await client.ended()


async def test_stream_has_the_state_first_and_then_each_version(polls: Polls) -> None:
    client = await start(polls)
    for _ in range(2):
        polls.publish()
        await settle()
    assert client.events == [
        Event("message", "0", "n None 0"),
        Event("message", "1", "n 0 1"),
        Event("message", "2", "n 1 2"),
    ]
    await leave(client)


async def test_event_during_a_read_is_not_missed(polls: Polls) -> None:
    client = await start(polls)
    polls.database.gate.clear()
    polls.publish()
    await settle()
    polls.publish()  # too late for the call that is under way
    polls.database.gate.set()
    await settle()
    assert client.events[-1].id == "2"
    await leave(client)


async def test_event_while_another_is_sent_is_not_missed(polls: Polls) -> None:
    client = await start(polls)
    client.reads.clear()
    polls.publish()
    await settle()
    polls.publish()
    await settle()
    client.reads.set()
    await settle()
    assert [event.id for event in client.events] == ["0", "1", "2"]
    await leave(client)


async def test_streams_of_a_resource_share_their_reads(polls: Polls) -> None:
    clients = [await start(polls) for _ in range(100)]
    before = len(polls.database.calls)
    polls.database.numbers["n"] = 1
    polls.polling.purgatory.check_and_complete("n")  # all in one loop iteration; notify() checks in slices
    await settle()
    assert {client.events[-1].id for client in clients} == {"1"}
    assert len(polls.database.calls) - before == 2
    for client in clients:
        await leave(client)


async def test_heartbeat_comes_and_brings_what_nobody_was_told_of(polls: Polls, clock: ManualClock) -> None:
    client = await start(polls)
    await clock.advance(15.001)
    await settle()
    assert (client.comments, len(client.events)) == (1, 1)
    polls.database.numbers["n"] = 1
    await clock.advance(15.001)
    await settle()
    assert client.events[-1].id == "1"
    await leave(client)


async def test_check_without_news_sends_a_heartbeat(polls: Polls) -> None:
    client = await start(polls)
    polls.polling.notify("n")
    await settle()
    assert (client.comments, len(client.events), client.task.done()) == (1, 1, False)
    await leave(client)


async def test_version_too_old_is_told_before_the_state(polls: Polls) -> None:
    client = await start(polls, last_event_id="old")
    assert client.events == [Event("gone", "", "old is gone"), Event("message", "0", "n None 0")]
    await leave(client)


async def test_source_that_fails_at_the_start_is_answered_503(polls: Polls) -> None:
    client = await start(polls, "broken")
    await client.ended()
    assert (client.status, client.headers["refused"]) == (503, "source")


async def test_source_that_fails_later_ends_the_stream(purgatory: Purgatory, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Database):
        async def version(self, resource: str) -> str:
            if self.numbers:
                raise OSError("the database is away")
            return await super().version(resource)

    caplog.set_level(logging.ERROR)
    polls = Polls(purgatory)
    polls.polling = type(polls.polling)(purgatory, database := Fails())
    client = await start(polls)
    database.numbers["n"] = 1
    polls.polling.notify("n")
    await client.ended()
    assert (client.complete, len(client.events), len(client.retries)) == (True, 1, 2)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("the source ")


async def test_client_that_leaves_during_a_read_leaves_nothing(polls: Polls) -> None:
    client = await start(polls)
    polls.database.gate.clear()
    polls.publish()
    await settle()
    await leave(client)
    polls.database.gate.set()


async def test_purgatory_that_closes_during_a_read_ends_the_stream(polls: Polls, purgatory: Purgatory) -> None:
    client = await start(polls)
    polls.database.gate.clear()
    polls.publish()
    await settle()
    purgatory.close()
    await asyncio.wait_for(client.ended(), 5)
    assert client.complete
    polls.database.gate.set()


async def test_stream_replaced_during_the_first_read_is_not_reported(purgatory: Purgatory) -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
    polls = Polls(purgatory)
    polls.database.gate.clear()
    route = EventRoute(polls.polling, client=lambda scope: "ann")
    older = Client(route)
    await settle()
    newer = Client(route)
    await settle()
    polls.database.gate.set()
    await older.ended()
    assert (older.events[-1].kind, reports) == ("replaced", [])
    await leave(newer)


async def test_server_that_stops_during_the_first_read_answers_503(polls: Polls) -> None:
    polls.database.gate.clear()
    client = await start(polls)
    client.task.cancel()
    await client.ended()
    assert (client.status, client.headers["refused"]) == (503, "closed")
    polls.database.gate.set()


@pytest.mark.parametrize("end", ["leave", "close", "fail", "stall"])
async def test_end_during_the_first_read_ends_the_stream(
    polls: Polls, purgatory: Purgatory, clock: ManualClock, end: str
) -> None:
    polls.database.gate.clear()  # and nothing opens it
    client = await start(polls)
    match end:
        case "leave":
            client.leave()
        case "close":
            purgatory.close()
        case "fail":
            purgatory.fail_for_key("n", GoneError("n moved"))
        case "stall":
            await clock.advance(30.0)
    await client.ended()
    refused = {"close": "closed", "stall": "source"}.get(end)
    assert (client.status, client.headers.get("refused")) == (
        {"leave": 499, "fail": 410}.get(end, 503),
        refused,
    )
    assert polls.database.under_way == 0


async def test_source_that_does_not_answer_later_ends_the_stream(polls: Polls, clock: ManualClock) -> None:
    """The client reads, so it is told to reconnect."""
    client = await start(polls)
    polls.database.gate.clear()
    polls.publish()
    await clock.advance(30.0)
    await client.ended()
    assert (client.complete, len(client.retries), polls.database.under_way) == (True, 2, 0)


async def test_reads_of_events_count_by_what_they_find(polls: Polls, purgatory: Purgatory) -> None:
    clients = [await start(polls) for _ in range(10)]
    polls.publish()
    await settle()
    assert (checks(purgatory), reads(purgatory)) == ((1, 0), (10, 0))
    polls.polling.notify("n")
    await settle()
    assert (checks(purgatory), reads(purgatory)) == ((2, 0), (20, 10))
    for client in clients:
        await leave(client)


async def test_checks_during_the_read_of_an_event_call_for_one(polls: Polls, purgatory: Purgatory) -> None:
    client = await start(polls)
    polls.database.gate.clear()
    polls.publish()
    await settle()
    for _ in range(10):
        polls.publish()
    polls.database.gate.set()
    await settle()
    assert (client.events[-1].id, checks(purgatory), reads(purgatory)) == ("11", (2, 0), (2, 0))  # merged
    polls.database.gate.clear()
    polls.publish()
    await settle()
    await leave(client)
    assert (checks(purgatory), reads(purgatory)) == ((3, 0), (3, 1))
    polls.database.gate.set()


def checks(purgatory: Purgatory) -> tuple[int, int]:
    found = purgatory.statistics()
    return found.checks, found.checks_without_effect


def reads(purgatory: Purgatory) -> tuple[int, int]:
    found = purgatory.statistics()
    return found.reads, found.reads_in_vain
