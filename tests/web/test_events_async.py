"""Streams of events of a source that has to be awaited."""

from __future__ import annotations

from typing import Any

import pytest

from aiopurgatory import GoneError
from aiopurgatory.testing import ManualClock

from .conftest import Making
from .eventsource import Streams, leave
from .polls import Database, settle


@pytest.fixture
def source() -> Database:
    return Database()


async def test_check_without_news_sends_a_heartbeat(streams: Streams) -> None:
    client = await streams.start()
    streams.polling.notify("n")
    await settle()
    assert (client.comments, client.ids, client.task.done()) == (1, ["0"], False)


async def test_source_that_fails_at_the_start_is_answered_503(streams: Streams) -> None:
    client = await streams.start("broken")
    await client.ended()
    assert (client.status, client.headers["refused"]) == (503, "source")


async def test_source_that_fails_later_ends_the_stream(make: Making, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Database):
        async def version(self, resource: str) -> str:
            return await super().version("broken" if self.values else resource)

    streams = make(Fails())
    client = await streams.start()
    await streams.publish()
    await client.ended()
    assert (client.complete, client.ids, len(client.retries)) == (True, ["0"], 2)
    assert [text.partition(",")[0] for text in caplog.messages] == ["the source Fails cannot be read"]


@pytest.mark.parametrize(
    ("end", "status", "refused"),
    [
        ("leave", 499, None),
        ("close", 503, "closed"),
        ("fail", 410, None),
        ("stall", 503, "source"),
        ("cancel", 503, "closed"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_end_during_a_read_ends_the_stream(
    streams: Streams, clock: ManualClock, end: str, status: int, refused: str | None, is_first: bool
) -> None:
    source = streams.source
    if is_first:
        source.gate.clear()  # and nothing opens it
    client = await streams.start()
    if not is_first:
        source.gate.clear()
        await streams.publish()
    match end:
        case "leave":
            client.hang_up()
        case "close":
            streams.purgatory.close()
        case "fail":
            streams.purgatory.fail_for_key("n", GoneError("n moved"))
        case "stall":
            await clock.advance(30.0)
        case _:
            client.task.cancel()
    await client.ended()
    if is_first:
        assert (client.status, client.headers.get("refused")) == (status, refused)
    else:  # a client that reads is told to reconnect
        retries = 1 if refused is None else 2
        assert (client.status, client.complete, len(client.retries)) == (200, end != "leave", retries)
    await settle()
    assert source.under_way == 0


async def test_stream_replaced_during_the_first_read_is_not_reported(make: Making, reported: list[Any]) -> None:
    streams = make(client=lambda scope: "ann")
    streams.source.gate.clear()
    older, _ = await streams.start(), await streams.start()
    streams.source.gate.set()
    await older.ended()
    assert (older.events[-1].kind, reported) == ("replaced", [])


async def test_checks_and_reads_of_events_count_by_what_they_find(streams: Streams, source: Database) -> None:
    def counted() -> tuple[int, int, int, int]:
        found = streams.purgatory.statistics()
        return found.checks, found.checks_without_effect, found.reads, found.reads_in_vain

    client, other = await streams.start(), await streams.start()
    await streams.publish()
    assert counted() == (1, 0, 2, 0)
    streams.polling.notify("n")
    await settle()
    assert counted() == (2, 0, 4, 2)
    await leave(other)
    source.gate.clear()
    for _ in range(11):
        await streams.publish()
    source.gate.set()
    await settle()
    assert (client.ids[-1], counted()) == ("12", (13, 0, 6, 2))
    source.gate.clear()
    await streams.publish()
    await leave(client)
    assert counted() == (14, 0, 7, 3)
    source.gate.set()
