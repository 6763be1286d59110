"""The events of streams, and their times, without a server: on a clock that stands still."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, Policy
from aiopurgatory.web.stream import EventStream

from .eventsource import Client, Event, Forgets, Streams
from .polls import Counters, settle


@pytest.fixture
async def streams(purgatory: Purgatory, counters: Counters) -> AsyncIterator[Streams]:
    streams = Streams(purgatory, counters)
    yield streams
    assert (purgatory.num_delayed, streams.polling.statistics().streams) == (0, 0)


async def leave(*clients: Client) -> None:
    for client in clients:
        client.leave()
        await client.ended()


def ids(client: Client) -> list[str]:
    return [event.id for event in client.events]


# events


async def test_stream_has_the_state_first_and_then_each_version(streams: Streams) -> None:
    client = await streams.start()
    assert client.events == [Event("message", "0", "n None 0")]
    await streams.publish()
    await streams.publish()
    await streams.publish("other")
    assert client.events[1:] == [Event("message", "1", "n 0 1"), Event("message", "2", "n 1 2")]
    assert not client.task.done()
    await leave(client)


async def test_stream_has_the_headers_of_one(streams: Streams) -> None:
    client = await streams.start()
    assert client.status == 200
    assert client.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-store, no-transform",
        "x-accel-buffering": "no",
    }
    await leave(client)


async def test_times_to_reconnect_are_spread_as_promised(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, retry_after=(2, 4))
    clients = [await streams.start() for _ in range(100)]
    retries = [client.retries[0] for client in clients]
    assert 2000 <= min(retries) < max(retries) <= 4000
    assert len(set(retries)) > 50
    await leave(*clients)


async def test_stream_goes_on_from_the_last_event_id(streams: Streams, counters: Counters) -> None:
    for _ in range(7):
        await streams.publish()
    current, behind = await streams.start(last_event_id="7"), await streams.start(last_event_id="3")
    assert (current.events, len(current.retries)) == ([], 1)
    assert behind.events == [Event("message", "7", "n 3 7")]
    await streams.publish()
    assert (ids(current), ids(behind)) == (["8"], ["7", "8"])
    await leave(current, behind)


async def test_last_event_id_is_newer_than_since(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, since=lambda scope: "2")
    for _ in range(7):
        await streams.publish()
    clients = [await streams.start(), await streams.start(last_event_id="5"), await streams.start(last_event_id="")]
    assert [client.events[0].data for client in clients] == ["n 2 7", "n 5 7", "n 2 7"]
    await leave(*clients)


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
async def test_body_of_any_lines_comes_as_one_event(purgatory: Purgatory, body: bytes, data: str) -> None:
    class Fixed:
        def version(self, resource: str) -> str:
            return "1"

        def read(self, resource: str, since: str | None, version: str) -> bytes:
            return body

    client = Client(EventRoute(LongPolling(purgatory, Fixed())))
    await settle()
    assert client.events == [Event("message", "1", data)]
    await leave(client)


async def test_body_is_read_once_for_all_streams(streams: Streams, counters: Counters) -> None:
    clients = [await streams.start() for _ in range(50)]
    await streams.publish()
    assert counters.reads == [("n", None, "0"), ("n", "0", "1")]
    assert {client.events[-1].data for client in clients} == {"n 0 1"}
    await leave(*clients)


async def test_stream_of_several_keys_has_an_event_for_any(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, resource=lambda scope: "sum", keys=lambda scope: ["a", "b"])
    client = await streams.start()
    for number, key in enumerate("ab", 1):
        counters.values["sum"] = number
        streams.polling.notify(key)
        await settle()
    assert ids(client) == ["0", "1", "2"]
    await leave(client)


async def test_method_other_than_get_is_refused(streams: Streams) -> None:
    client = await streams.start(method="POST")
    assert (client.status, client.headers["allow"], client.complete) == (405, "GET, HEAD", True)


async def test_head_is_told_what_get_would_be(
    streams: Streams, purgatory: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    get = await streams.start()
    head = await streams.start(method="HEAD")
    assert (head.status, head.headers, head.complete, head.events) == (200, get.headers, True, [])
    assert (purgatory.num_delayed, streams.polling.statistics().streams, caplog.records) == (1, 1, [])
    await leave(get)
    purgatory.close()
    assert (await streams.start(method="HEAD")).status == 503


async def test_head_replaces_no_stream(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, client=lambda scope: "ann")
    get = await streams.start()
    assert (await streams.start(method="HEAD")).status == 200
    await streams.publish()
    assert ids(get) == ["0", "1"]
    await leave(get)


async def test_method_other_than_get_is_logged_with_the_remedy(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await streams.start(method="POST")
    (record,) = caplog.records
    assert record.getMessage().startswith("EventRoute refused POST ")
    assert record.getMessage().endswith("pass methods=['GET', 'HEAD'] to the Route before it")


async def test_websocket_is_refused(streams: Streams) -> None:
    with pytest.raises(TypeError, match="got a scope of type 'websocket'"):
        await streams.route({"type": "websocket"}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["heartbeat", "stall", "max_age"])
def test_times_out_of_range_are_refused(streams: Streams, name: str) -> None:
    for value, error in [(0, ValueError), (-1, ValueError), (float("nan"), ValueError), ("5", TypeError)]:
        with pytest.raises(error, match=f"^{name} must be .*, got "):
            Policy(**{name: value})  # type: ignore[arg-type]


# heartbeats


async def test_heartbeat_comes_when_nothing_was_sent(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    await clock.advance(14.999)
    assert client.comments == 0
    await clock.advance(0.001)
    assert client.comments == 1
    await clock.advance(45.0)
    assert client.comments == 4
    assert ids(client) == ["0"]
    await leave(client)


async def test_event_puts_the_heartbeat_off(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    for _ in range(5):
        await clock.advance(10.0)
        await streams.publish()
    assert client.comments == 0
    await clock.advance(15.0)
    assert client.comments == 1
    await leave(client)


@pytest.mark.parametrize("after", [0.1, 0.2, 0.3, 0.7, 1.1, 2.3, 7.9])
async def test_heartbeat_comes_in_time_after_an_event_at_any_moment(
    streams: Streams, clock: ManualClock, after: float
) -> None:
    client = await streams.start()
    for count in range(1, 20):
        await clock.advance(after)
        await streams.publish()
        await clock.advance(15.0)
        assert client.comments == count
    await leave(client)


async def test_check_without_news_does_not_put_the_heartbeat_off(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    for _ in range(3):
        await clock.advance(5.0)
        streams.polling.notify("n")
    assert client.comments == 1
    await leave(client)


async def test_version_without_notify_comes_with_the_heartbeat(
    streams: Streams, counters: Counters, clock: ManualClock
) -> None:
    client = await streams.start()
    counters.values["n"] = 1
    await clock.advance(15.0)
    assert (ids(client), client.comments) == (["0", "1"], 0)
    await leave(client)


async def test_expire_all_sends_heartbeats(streams: Streams, purgatory: Purgatory) -> None:
    client = await streams.start()
    purgatory.expire_all()
    await settle()
    assert (client.comments, purgatory.num_delayed) == (1, 1)
    await leave(client)


# clients that read slowly


async def test_client_that_does_not_read_costs_one_event(
    streams: Streams, counters: Counters, purgatory: Purgatory
) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5_000):
        await streams.publish()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert (len(client.unread), purgatory.num_delayed) == (1, 1)
    assert grown < 50_000
    assert len(counters.reads) == 2
    client.reads.set()
    await settle()
    assert client.events[1:] == [Event("message", "1", "n 0 1"), Event("message", "5001", "n 1 5001")]
    await leave(client)


async def test_client_that_never_reads_loses_its_place(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    client.reads.clear()
    await clock.advance(10.0)
    await streams.publish()
    await clock.advance(29.999)
    assert not client.task.done()
    await clock.advance(0.001)
    await client.ended()
    assert (ids(client), client.complete) == (["0"], False)


class NeverReads(Client):
    async def _send(self, message: Any) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("resource", ["n", "gone"])
async def test_client_that_never_reads_the_headers_loses_its_place(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, resource: str
) -> None:
    streams = Streams(purgatory, counters, max_per_group=1, group=lambda scope: "all")
    client = NeverReads(streams.route, resource)
    await settle()
    await clock.advance(30.0)
    await settle()
    assert (streams.polling.statistics().streams, streams.polling.statistics().groups) == (0, 0)
    client.task.cancel()
    await asyncio.wait([client.task])


async def test_client_that_never_reads_a_heartbeat_loses_its_place(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    client.reads.clear()
    await clock.advance(15.0 + 30.0)
    await client.ended()


async def test_client_that_reads_slowly_keeps_its_place(streams: Streams, clock: ManualClock) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    for number in range(1, 10):
        await streams.publish()
        await clock.advance(20.0)
        await client.read_one()
        assert ids(client)[-1] == str(number)
    await leave(client)


async def test_versions_without_end_leave_the_loop_its_turns(purgatory: Purgatory) -> None:
    class Endless:
        number = 0

        def version(self, resource: str) -> str:
            self.number += 1
            return str(self.number)

        def read(self, resource: str, since: str | None, version: str) -> bytes:
            return b""

    client = Client(EventRoute(LongPolling(purgatory, Endless())))
    await settle()
    assert len(client.events) > 1
    await leave(client)


# the end


@pytest.mark.parametrize("reads", [True, False])
async def test_client_leaves_and_its_stream_ends_at_once(streams: Streams, purgatory: Purgatory, reads: bool) -> None:
    client, other = await streams.start(), await streams.start()
    if not reads:
        client.reads.clear()
        await streams.publish()
    client.leave()
    await settle()
    assert (client.task.done(), client.task.cancelled(), purgatory.num_delayed) == (True, False, 1)
    assert not client.complete
    await streams.publish()
    assert not other.task.done()
    await leave(other)


async def test_client_that_has_left_before_leaves_nothing(streams: Streams) -> None:
    client = Client(streams.route)
    client.leave()
    await client.ended()


async def test_stream_whose_connection_is_broken_ends(streams: Streams) -> None:
    client = await streams.start()
    client.broken = True
    await streams.publish()
    await client.ended()


@pytest.mark.parametrize("place", ["start", "event"])
async def test_stream_whose_transport_uvloop_has_closed_ends(streams: Streams, place: str) -> None:
    async def closed(scope: Any, receive: Any, send: Any) -> None:
        async def fail(message: Any) -> None:
            if place == "start" or message["type"] != "http.response.start":
                raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

        await streams.route(scope, receive, fail)

    await Client(closed).ended()
    assert streams.polling.statistics().answered == {200: 1}


async def test_send_that_fails_for_another_reason_is_heard(streams: Streams) -> None:
    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        async def fail(message: Any) -> None:
            raise RuntimeError("Expected ASGI message")

        await streams.route(scope, receive, fail)

    with pytest.raises(RuntimeError, match="Expected ASGI message"):
        await Client(wrong).ended()


async def test_body_in_many_parts_ends_its_stream_with_a_retry(streams: Streams, purgatory: Purgatory) -> None:
    client = Client(streams.route)
    client.send_body(70)
    for _ in range(100):
        await asyncio.sleep(0)
    await client.ended()
    assert (client.complete, len(client.retries), ids(client), purgatory.num_delayed) == (True, 2, ["0"], 0)


async def test_receive_that_raises_ends_its_stream(streams: Streams, purgatory: Purgatory) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        async def fail() -> Any:
            raise OSError("broken pipe")

        await streams.route(scope, fail, send)

    client = Client(broken)
    await client.ended()
    assert purgatory.num_delayed == 0


# its age


async def test_stream_at_its_age_ends_with_a_time_to_come_back(
    purgatory: Purgatory, counters: Counters, clock: ManualClock
) -> None:
    streams = Streams(purgatory, counters, jitter=0.0, max_age=100.0)
    client = await streams.start()
    for _ in range(3):
        await clock.advance(33.0)
        await streams.publish()
    assert not client.task.done()
    await clock.advance(1.0)
    await client.ended()
    assert (client.complete, len(client.retries), ids(client)) == (True, 2, ["0", "1", "2", "3"])
    assert (purgatory.statistics().completed, purgatory.num_delayed) == (1, 0)
    again = await streams.start(last_event_id="3")
    await streams.publish()
    assert ids(again) == ["4"]
    await leave(again)


async def test_stream_at_its_age_has_no_event_without_end(
    purgatory: Purgatory, counters: Counters, clock: ManualClock
) -> None:
    streams = Streams(purgatory, counters, jitter=0.0, max_age=10.0)
    client = await streams.start()
    for _ in range(200):
        await streams.publish()
        await clock.advance(0.1)
    assert client.task.done()
    assert ids(client)[-1] == "100"


async def test_ages_are_spread_by_the_jitter(purgatory: Purgatory, counters: Counters, clock: ManualClock) -> None:
    streams = Streams(purgatory, counters, jitter=0.5, max_age=100.0, heartbeat=1000.0)
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
    purgatory: Purgatory, counters: Counters, clock: ManualClock, max_age: dict[str, Any], goes_on: bool
) -> None:
    streams = Streams(purgatory, counters, heartbeat=10_000.0, **max_age)
    client = await streams.start()
    await clock.advance(3300.0)
    assert not client.task.done()
    await clock.advance(300.0)
    await settle()
    assert client.task.done() is not goes_on
    await leave(client)


async def test_closed_purgatory_ends_streams_with_a_retry(streams: Streams, purgatory: Purgatory) -> None:
    clients = [await streams.start() for _ in range(10)]
    purgatory.close()
    for client in clients:
        await client.ended()
        assert (client.complete, len(client.retries), len(client.events)) == (True, 2, 1)
        assert 1000 <= client.retries[1] <= 3000


async def test_purgatory_closes_on_a_client_that_does_not_read(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, stall=0.05)
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    purgatory.close()
    await client.ended()
    assert ids(client) == ["0"]


async def test_purgatory_closes_with_an_event_on_its_way(streams: Streams, purgatory: Purgatory) -> None:
    client = await streams.start()
    streams.counters.values["n"] = 1
    streams.polling.notify("n")
    purgatory.close()
    await client.ended()
    assert client.complete
    assert ids(client) in (["0"], ["0", "1"])


@pytest.mark.parametrize("reads", [True, False])
async def test_server_cancels_and_the_stream_ends(purgatory: Purgatory, counters: Counters, reads: bool) -> None:
    streams = Streams(purgatory, counters, stall=0.05)
    client = await streams.start()
    if not reads:
        client.reads.clear()
        await streams.publish()
    client.task.cancel()
    await client.ended()
    assert client.complete == reads
    assert len(client.retries) == 1 + reads
    assert purgatory.num_delayed == 0


async def test_server_cancels_twice_and_the_stream_ends(streams: Streams) -> None:
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    for _ in range(2):
        client.task.cancel()
        await settle()
    assert (client.task.done(), client.task.cancelled()) == (True, False)


@pytest.mark.parametrize("turns", range(12))
async def test_stream_cancelled_at_any_turn_leaves_nothing(
    purgatory: Purgatory, counters: Counters, turns: int
) -> None:
    streams = Streams(purgatory, counters, client=lambda scope: "ann", group=lambda scope: "tenant")
    client = Client(streams.route)
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 6:
            counters.values["n"] = 1
            streams.polling.notify("n")
    client.task.cancel()
    await settle()
    assert client.task.done()
    found = streams.polling.statistics()
    assert (purgatory.num_delayed, purgatory.watched_entries, found.clients, found.groups, found.streams) == (
        0,
        0,
        0,
        0,
        0,
    )
    check_invariants(purgatory)


def streams_in_memory() -> list[object]:
    return [thing for thing in gc.get_objects() if isinstance(thing, EventStream)]


@pytest.mark.parametrize("how", ["leave", "close", "replace", "stall"])
async def test_stream_that_has_ended_needs_no_garbage_collector(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, how: str
) -> None:
    streams = Streams(purgatory, counters, client=lambda scope: "ann")
    gc.collect()
    gc.disable()
    try:
        before = len(streams_in_memory())
        client = await streams.start()
        await streams.publish()
        assert len(streams_in_memory()) == before + 1
        if how == "leave":
            client.leave()
        elif how == "close":
            purgatory.close()
        elif how == "replace":
            await leave(await streams.start())
        else:
            client.reads.clear()
            await clock.advance(45.0)
        await client.ended()
        await settle()
        assert len(streams_in_memory()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("failure", [LookupError, OSError, TimeoutError])
async def test_source_that_raises_later_is_heard(purgatory: Purgatory, failure: type[Exception]) -> None:
    class Breaks(Counters):
        def read(self, resource: str, since: str | None, version: str) -> bytes:
            if version == "1":
                raise failure("broken")
            return super().read(resource, since, version)

    streams = Streams(purgatory, Breaks())
    client = await streams.start()
    await streams.publish()
    with pytest.raises(failure, match="broken"):
        await client.ended()
    assert not client.complete


@pytest.mark.parametrize("resource", ["broken", "spaced"])
async def test_source_that_raises_at_the_start_is_heard(streams: Streams, resource: str) -> None:
    client = await streams.start(resource)
    with pytest.raises((LookupError, ValueError), match=r"no such counter|version\(\) must return"):
        await client.ended()
    assert client.status == 0


async def test_version_that_raises_while_waiting_is_heard(purgatory: Purgatory) -> None:
    class Source:
        failure: Exception | None = None

        def version(self, resource: str) -> str:
            if self.failure is not None:
                raise self.failure
            return "1"

        def read(self, resource: str, since: str | None, version: str) -> bytes:
            return b""

    source = Source()
    polling = LongPolling(purgatory, source)
    for failure in (LookupError("broken"), TimeoutError("slow")):
        source.failure = None
        client = Client(EventRoute(polling))
        await settle()
        source.failure = failure
        polling.notify("n")
        with pytest.raises(type(failure), match=str(failure)):
            await client.ended()
    assert purgatory.num_delayed == 0


# versions that are gone


async def test_version_too_old_is_told_before_the_state(streams: Streams) -> None:
    client = await streams.start(last_event_id="old")
    assert client.events == [Event("gone", "", "old is gone"), Event("message", "0", "n None 0")]
    await streams.publish()
    assert client.events[2:] == [Event("message", "1", "n 0 1")]
    await leave(client)


async def test_client_too_far_behind_gets_the_state_from_scratch(purgatory: Purgatory) -> None:
    counters = Forgets()
    counters.gone.add("1")
    streams = Streams(purgatory, counters)
    client = await streams.start()
    client.reads.clear()
    await streams.publish()
    await streams.publish()
    client.reads.set()
    await settle()
    assert client.events[2:] == [Event("gone", "", "1 is gone"), Event("message", "2", "n None 2")]
    await leave(client)


async def test_resource_that_is_gone_is_answered_as_for_a_long_poll(streams: Streams, counters: Counters) -> None:
    counters.values["n"] = -1
    client = await streams.start()
    assert (client.status, client.complete) == (410, True)
    assert streams.polling.statistics().answered == {410: 1}


async def test_resource_that_goes_ends_its_streams(streams: Streams, counters: Counters) -> None:
    client = await streams.start()
    counters.values["n"] = -1
    streams.polling.notify("n")
    await client.ended()
    assert client.events[1:] == [Event("gone", "", "n was compacted")]
    assert client.complete


# places


async def test_full_purgatory_refuses_a_stream_as_it_does_a_poll(clock: ManualClock, counters: Counters) -> None:
    async with Purgatory(clock=clock, max_pending=2) as purgatory:
        streams = Streams(purgatory, counters)
        clients = [await streams.start(), await streams.start()]
        refused = await streams.start()
        poll = await streams.polling.answer("n", {"if-none-match": '"0"'})
        assert (refused.status, refused.headers["refused"], refused.complete) == (503, "full", True)
        assert 1 <= int(refused.headers["retry-after"]) <= 3
        assert (poll.status, poll.headers["refused"]) == (503, "full")
        await leave(clients[0])
        clients.append(await streams.start())
        assert clients[-1].status == 200
        await leave(*clients)


async def test_stream_keeps_its_place_from_event_to_event(clock: ManualClock, counters: Counters) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        streams = Streams(purgatory, counters, group=lambda scope: "tenant", max_per_group=1)
        client = await streams.start()
        for _ in range(10):
            counters.values["n"] = counters.values.get("n", 0) + 1
            streams.polling.notify("n")
            others = [Client(streams.route) for _ in range(3)]  # they start before the stream has sent its event
            await settle()
            assert [other.status for other in others] == [503] * 3
        assert len(client.events) == 11
        assert streams.polling.statistics().groups == 1
        await leave(client)


async def test_closed_purgatory_refuses_a_stream(streams: Streams, purgatory: Purgatory) -> None:
    purgatory.close()
    client = await streams.start()
    assert (client.status, client.headers["refused"], client.complete) == (503, "closed", True)


async def test_first_stream_starts_the_purgatory(counters: Counters) -> None:
    purgatory = Purgatory()
    client = await Streams(purgatory, counters).start()
    assert purgatory.is_open
    await purgatory.aclose()
    await client.ended()
    assert client.complete


async def test_group_has_its_share_of_streams_and_polls(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, group=lambda scope: "tenant", max_per_group=2)
    clients = [await streams.start()]
    poll = asyncio.create_task(streams.polling.answer("n", {"if-none-match": '"0"'}, group="tenant"))
    await settle()
    refused = await streams.start()
    assert (refused.status, refused.headers["refused"]) == (503, "group")
    await streams.publish()
    assert (await poll).status == 200
    clients.append(await streams.start())
    assert [client.status for client in clients] == [200, 200]
    await leave(*clients)
    assert streams.polling.statistics().groups == 0


async def test_newest_stream_of_a_client_ends_its_older_one(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, client=lambda scope: "ann")
    older, elsewhere, newer = await streams.start(), await streams.start("other"), await streams.start()
    await older.ended()
    assert older.events[1:] == [Event("replaced", "0", "the same client has sent a newer poll")]
    assert (older.complete, older.retries[-1]) == (True, 86_400_000)
    poll = asyncio.create_task(streams.polling.answer("n", {"if-none-match": '"0"'}, client="ann"))
    await newer.ended()
    assert newer.events[-1].kind == "replaced"
    newest = await streams.start()
    assert (await poll).status == 409
    await streams.publish()
    assert ids(newest) == ["0", "1"]
    await leave(elsewhere, newest)
    assert streams.polling.statistics().clients == 0


async def test_stream_replaced_before_its_headers_is_not_reported(purgatory: Purgatory, counters: Counters) -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
    streams = Streams(purgatory, counters, client=lambda scope: "ann")
    may_send = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        async def send_later(message: Any) -> None:
            await may_send.wait()
            await send(message)

        await streams.route(scope, receive, send_later)

    older = Client(slow)
    await settle()
    newer = await streams.start()
    may_send.set()
    await older.ended()
    assert (older.events[-1].kind, reports) == ("replaced", [])
    await leave(newer)


async def test_client_that_cannot_be_kept_leaves_nothing(purgatory: Purgatory, counters: Counters) -> None:
    class Odd:
        hashed = 0

        def __hash__(self) -> int:
            self.hashed += 1
            if self.hashed == 2:
                raise LookupError("hashed twice")
            return 1

    streams = Streams(purgatory, counters, client=lambda scope: Odd())
    client = await streams.start()
    with pytest.raises(LookupError, match="hashed twice"):
        await client.ended()
    assert (purgatory.num_delayed, streams.polling.statistics().streams) == (0, 0)


async def test_statistics_count_streams(purgatory: Purgatory, counters: Counters) -> None:
    streams = Streams(purgatory, counters, client=lambda scope: scope["path"], group=lambda scope: "tenant")
    clients = [await streams.start(), await streams.start("m")]
    counted = streams.polling.statistics()
    assert (counted.streams, counted.clients, counted.groups, counted.answered) == (2, 2, 1, {200: 2})
    await streams.publish()
    await leave(*clients)
    counted = streams.polling.statistics()
    assert (counted.streams, counted.clients, counted.groups, counted.answered) == (0, 0, 0, {200: 2})


# middleware


async def pass_on(request: Any, call_next: Callable[[Any], Any]) -> Any:
    return await call_next(request)


async def test_events_pass_a_middleware_one_by_one(streams: Streams) -> None:
    client = Client(BaseHTTPMiddleware(streams.route, pass_on))
    await settle()
    await settle()
    assert ids(client) == ["0"]
    for _ in range(3):
        await streams.publish()
        await settle()
    assert ids(client) == ["0", "1", "2", "3"]
    await leave(client)


async def test_purgatory_closes_and_streams_end_behind_a_middleware(streams: Streams, purgatory: Purgatory) -> None:
    client = Client(BaseHTTPMiddleware(streams.route, pass_on))
    for _ in range(3):
        await settle()
    purgatory.close()
    await client.ended()
    assert (client.complete, len(client.retries)) == (True, 2)


async def test_client_behind_middleware_that_never_reads_is_dropped(
    streams: Streams, clock: ManualClock, purgatory: Purgatory
) -> None:
    client = Client(BaseHTTPMiddleware(streams.route, pass_on))
    await clock.advance(0.0)
    client.reads.clear()
    for _ in range(10):
        await streams.publish()
        await clock.advance(1.0)
    assert (len(client.unread), purgatory.num_delayed) == (1, 1)
    await clock.advance(30.0)
    assert (purgatory.num_delayed, client.task.done()) == (0, False)
    client.leave()
    client.reads.set()
    await client.ended()


async def test_events_pass_a_compressing_middleware_as_they_are(streams: Streams) -> None:
    client = Client(GZipMiddleware(streams.route, minimum_size=0), accept_encoding="gzip")
    await settle()
    await streams.publish()
    assert ids(client) == ["0", "1"]
    assert "content-encoding" not in client.headers
    await leave(client)


async def test_long_polls_and_streams_have_one_source(streams: Streams) -> None:
    stream = await streams.start()
    poll = Client(LongPollRoute(streams.polling), if_none_match='"0"')
    await settle()
    await streams.publish()
    await poll.ended()
    assert (stream.events[-1].data, poll.status) == ("n 0 1", 200)
    await leave(stream)


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
    clients[0].reads.set()
    await settle()
    assert checks() == (4, 1)
    for client in clients:
        client.leave()
        await client.ended()
