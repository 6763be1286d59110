"""The events of streams, and their times, without a server: on a clock that stands still."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import PurgatoryMiddleware
from aiopurgatory.web.stream import EventStream

from .conftest import Kept, Making
from .eventsource import Client, Event, Streams, leave, through
from .exchange import Messages, part
from .polls import KNOWN, Given, check_empty, settle
from .test_sources import Hasty

# events


async def test_times_to_reconnect_are_spread_as_promised(make: Making) -> None:
    streams = make(retry_after=(2, 4))
    clients = [await streams.start() for _ in range(100)]
    retries = [client.retries[0] for client in clients]
    assert 2000 <= min(retries) < max(retries) <= 4000
    assert len(set(retries)) > 50


async def test_stream_goes_on_from_the_last_event_id_or_since(make: Making) -> None:
    streams = make(since=lambda scope: "2")
    for _ in range(7):
        await streams.publish()
    current, behind, loaded = [await streams.start(last_event_id=last) for last in ("7", "3", "")]
    assert (current.events, len(current.retries)) == ([], 1)
    assert behind.events == [Event("message", "7", "n 3 7")]
    assert loaded.events == [Event("message", "7", "n 2 7")]
    await streams.publish()
    assert (current.ids, behind.ids) == (["8"], ["7", "8"])


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"one", "one"),
        (b"", ""),
        (b"\n", "\n"),
        (b"two\nlines", "two\nlines"),
        (b"\r\nid: 9\rretry: 1\n\nevent: x\n", "\nid: 9\nretry: 1\n\nevent: x\n"),
        (b"\n\r", "\n\n"),
        (b"  spaces ", "  spaces "),
        (": 🐢\u2028\x85\x0b".encode(), ": 🐢\u2028\x85\x0b"),
    ],
)
async def test_body_of_any_lines_comes_as_one_event(make: Making, body: bytes, data: str) -> None:
    client = await make(Given("1", body)).start()
    assert client.events == [Event("message", "1", data)]


async def test_head_is_told_what_get_would_be(make: Making, caplog: pytest.LogCaptureFixture) -> None:
    """It replaces no stream of its client."""
    streams = make(client=lambda scope: "ann")
    get, head = await streams.start(), await streams.start(method="HEAD")
    assert (head.status, head.headers, head.complete, head.events) == (200, get.headers, True, [])
    assert (streams.purgatory.num_delayed, streams.polling.statistics().streams, caplog.records) == (1, 1, [])
    await leave(get)
    streams.purgatory.close()
    assert (await streams.start(method="HEAD")).status == 503


# heartbeats


@pytest.mark.parametrize("after", [0.1, 0.2, 0.3, 0.7, 1.1, 2.3, 7.9])
async def test_event_puts_the_heartbeat_off(streams: Streams, clock: ManualClock, after: float) -> None:
    client = await streams.start()
    for count in range(1, 20):
        await clock.advance(after)
        await streams.publish()
        await clock.advance(14.999)
        assert client.comments == count - 1
        await clock.advance(0.001)
        assert client.comments == count


async def test_version_without_notify_comes_with_the_heartbeat(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    streams.source.values["n"] = 1
    await clock.advance(15.0)
    assert (client.ids, client.comments) == (["0", "1"], 0)


async def test_expire_all_sends_heartbeats(streams: Streams) -> None:
    client = await streams.start()
    assert streams.purgatory.expire_all() == 0
    await settle()
    assert (client.comments, streams.purgatory.num_delayed) == (1, 1)


# clients that read slowly


async def test_client_that_does_not_read_costs_one_event(streams: Streams) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1_000):
        await streams.publish()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert (len(client.unread), streams.purgatory.num_delayed, len(streams.source.reads)) == (1, 1, 2)
    assert grown < 20_000
    client.reads.set()
    await settle()
    assert client.events[1:] == [Event("message", "1", "n 0 1"), Event("message", "1001", "n 1 1001")]


@pytest.mark.parametrize("resource", ["n", "gone"])
async def test_client_that_reads_no_headers_loses_its_place(make: Making, clock: ManualClock, resource: str) -> None:
    async def never(message: Any) -> None:
        await asyncio.Event().wait()

    streams = make(max_per_group=1, group=lambda scope: "all")
    client = Client(through(streams.route, send=never), resource)
    await settle()
    await clock.advance(30.0)
    await settle()
    check_empty(streams.polling)
    client.task.cancel()
    await asyncio.wait([client.task])


async def test_client_that_reads_slowly_keeps_its_place(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    for number in range(1, 10):
        await streams.publish()
        await clock.advance(20.0)
        await client.read_one()
        assert client.ids[-1] == str(number)


async def test_versions_without_end_leave_the_loop_its_turns(make: Making) -> None:
    client = await make(Hasty(pairs=False)).start()
    assert len(client.events) > 1


# the end


async def test_client_that_has_left_before_leaves_nothing(streams: Streams) -> None:
    await leave(Client(streams.route))


async def test_long_body_that_nobody_reads_ends_its_stream_with_a_retry(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an app with a middleware, which keeps it."""
    monkeypatch.setattr("aiopurgatory.web.connected.UNREAD", 0.01)
    server = through(PurgatoryMiddleware(streams.route, streams.purgatory), Messages(part(b"x" * 70_000)).receive)
    client = Client(server)
    await client.ended()
    assert (client.complete, len(client.retries), client.ids) == (True, 2, ["0"])


# its age


async def test_stream_at_its_age_ends_with_a_time_to_come_back(make: Making, clock: ManualClock) -> None:
    streams = make(jitter=0.0, max_age=100.0)
    client = await streams.start()
    for _ in range(3):
        await clock.advance(33.0)
        await streams.publish()
    assert not client.task.done()
    await clock.advance(1.0)
    await client.ended()
    assert (client.complete, len(client.retries), client.ids) == (True, 2, ["0", "1", "2", "3"])
    assert (streams.purgatory.statistics().completed, streams.purgatory.num_delayed) == (1, 0)
    again = await streams.start(last_event_id="3")
    await streams.publish()
    assert again.ids == ["4"]


async def test_ages_are_spread_by_the_jitter(make: Making, clock: ManualClock) -> None:
    streams = make(jitter=0.5, max_age=100.0, heartbeat=1000.0)
    clients = [await streams.start() for _ in range(100)]
    await clock.advance(49.9)
    assert streams.polling.statistics().streams == 100
    await clock.advance(25.1)
    assert 20 < streams.polling.statistics().streams < 80
    await clock.advance(25.0)
    for client in clients:
        await client.ended()


@pytest.mark.parametrize(("max_age", "goes_on"), [({}, False), ({"max_age": None}, True)])
async def test_stream_lasts_an_hour_or_without_end(
    make: Making, clock: ManualClock, max_age: dict[str, Any], goes_on: bool
) -> None:
    streams = make(heartbeat=10_000.0, **max_age)
    client = await streams.start()
    await clock.advance(3300.0)
    assert not client.task.done()
    await clock.advance(300.0)
    await settle()
    assert client.task.done() is not goes_on


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("is_closed", [True, False])
async def test_server_cancels_or_closes_and_the_stream_ends(make: Making, reads: bool, is_closed: bool) -> None:
    streams = make(stall=0.05)
    client = await streams.start()
    if not reads:
        client.reads.clear()
        await streams.publish()
    streams.purgatory.close() if is_closed else client.task.cancel()
    await client.ended()
    assert client.complete == reads
    assert len(client.retries) == 1 + reads
    assert all(1000 <= retry <= 3000 for retry in client.retries)
    assert streams.purgatory.num_delayed == 0


async def test_server_cancels_twice_and_the_stream_ends(streams: Streams) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    for _ in range(2):
        client.task.cancel()
        await settle()
    assert (client.task.done(), client.task.cancelled()) == (True, False)


@pytest.mark.parametrize("turns", range(12))
async def test_stream_cancelled_at_any_turn_leaves_nothing(make: Making, turns: int) -> None:
    streams = make(client=lambda scope: "ann", group=lambda scope: "tenant")
    client = Client(streams.route)
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 6:
            streams.source.values["n"] = 1
            streams.polling.notify("n")
    client.task.cancel()
    await settle()
    assert client.task.done()
    check_empty(streams.polling)


@pytest.mark.parametrize("how", ["leave", "close", "replace", "stall"])
async def test_ended_stream_needs_no_garbage_collector(make: Making, clock: ManualClock, kept: Kept, how: str) -> None:
    streams = make(client=lambda scope: "ann")
    client = await streams.start()
    await streams.publish()
    assert kept(EventStream) == 1
    match how:
        case "leave":
            client.hang_up()
        case "close":
            streams.purgatory.close()
        case "replace":
            await leave(await streams.start())
        case _:
            client.reads.clear()
            await clock.advance(45.0)
    await client.ended()
    await settle()
    assert kept(EventStream) == 0


@pytest.mark.parametrize("failure", [LookupError("broken"), OSError("broken"), TimeoutError("broken")], ids=repr)
@pytest.mark.parametrize("method", ["version", "read"])
async def test_source_that_raises_later_is_heard(make: Making, method: str, failure: Exception) -> None:
    streams = make(Given())
    client = await streams.start()
    streams.source.given, streams.source.body = (failure, b"") if method == "version" else ("2", failure)
    streams.polling.notify("n")
    with pytest.raises(type(failure), match="broken"):
        await client.ended()
    assert (client.complete, streams.purgatory.num_delayed) == (False, 0)


@pytest.mark.parametrize("resource", ["broken", "spaced"])
async def test_source_that_raises_at_the_start_is_heard(streams: Streams, resource: str) -> None:
    client = await streams.start(resource)
    with pytest.raises((LookupError, ValueError), match=r"no such counter|version\(\) must return"):
        await client.ended()
    assert client.status == 0


# versions that are gone


async def test_version_too_old_is_told_before_the_state(streams: Streams) -> None:
    client = await streams.start(last_event_id="old")
    assert client.events == [Event("gone", "", "old is gone"), Event("message", "0", "n None 0")]
    await streams.publish()
    assert client.events[2:] == [Event("message", "1", "n 0 1")]


# places


async def test_stream_keeps_its_place_from_event_to_event(clock: ManualClock, source: Any) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        streams = Streams(purgatory, source, group=lambda scope: "tenant", max_per_group=1)
        client = await streams.start()
        for _ in range(10):
            source.values["n"] = source.values.get("n", 0) + 1
            streams.polling.notify("n")
            others = [Client(streams.route) for _ in range(3)]  # they start before the stream has sent its event
            await settle()
            assert [other.status for other in others] == [503] * 3
        assert len(client.events) == 11
        assert streams.polling.statistics().groups == 1
        await leave(client)


async def test_newest_stream_of_a_client_ends_its_older_one(make: Making) -> None:
    streams = make(client=lambda scope: "ann")
    older, elsewhere, newer = await streams.start(), await streams.start("other"), await streams.start()
    await older.ended()
    assert older.events[1:] == [Event("replaced", "0", "the same client has sent a newer poll")]
    assert (older.complete, older.retries[-1]) == (True, 86_400_000)
    poll = asyncio.create_task(streams.polling.answer("n", KNOWN, client="ann"))
    await newer.ended()
    assert newer.events[-1].kind == "replaced"
    newest = await streams.start()
    assert (await poll).status == 409
    await streams.publish()
    assert newest.ids == ["0", "1"]
    await leave(elsewhere, newest)
    assert streams.polling.statistics().clients == 0


async def test_client_behind_middleware_that_never_reads_is_dropped(streams: Streams, clock: ManualClock) -> None:
    client = Client(BaseHTTPMiddleware(streams.route, lambda request, call_next: call_next(request)))
    await clock.advance(0.0)
    client.reads.clear()
    for _ in range(10):
        await streams.publish()
        await clock.advance(1.0)
    assert (len(client.unread), streams.purgatory.num_delayed) == (1, 1)
    await clock.advance(30.0)
    assert (streams.purgatory.num_delayed, client.task.done()) == (0, False)
    client.reads.set()
    await leave(client)


async def test_events_pass_a_compressing_middleware_as_they_are(streams: Streams) -> None:
    client = Client(GZipMiddleware(streams.route, minimum_size=0), accept_encoding="gzip")
    await settle()
    await streams.publish()
    assert client.ids == ["0", "1"]
    assert "content-encoding" not in client.headers
    await leave(client)


async def test_check_that_sends_an_event_had_an_effect(streams: Streams, purgatory: Purgatory) -> None:
    clients = [await streams.start() for _ in range(10)]

    def checks() -> tuple[int, int]:
        found = purgatory.statistics()
        return found.checks, found.checks_without_effect

    await streams.publish()
    assert checks() == (1, 0)
    streams.polling.notify("n")
    await settle()
    assert checks() == (2, 1)
    clients[0].reads.clear()
    await streams.publish()  # the event is under way to one of them
    await streams.publish()
    assert checks() == (4, 1)
