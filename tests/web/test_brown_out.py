"""A source that answers slowly, or not at all: polls still end in time, and leave at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import Answer

from .exchange import Messages
from .polls import Database, Polls, check_empty, settle

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory, Database(), max_reads=2)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls that may not queue any longer end in the next iterations."""
    monkeypatch.setattr("aiopurgatory.web.reads.MAX_QUEUE", 0.0)


async def occupy(polls: Polls) -> list[asyncio.Task[Answer]]:
    """Take both of the calls that may be under way: they wait for the gate."""
    polls.source.gate.clear()
    return [await polls.park(f"other-{i}") for i in range(2)]


async def end(polls: Polls, *tasks: asyncio.Task[Answer]) -> None:
    polls.source.gate.set()
    for task in tasks:
        task.cancel()
    await settle()
    assert polls.source.under_way == 0
    check_empty(polls.polling)


async def status_of(task: asyncio.Task[Answer]) -> tuple[int, str | None]:
    """The answer, which must come before the clock moves."""
    answer = await asyncio.wait_for(task, 10)
    return answer.status, answer.headers.get("refused")


@pytest.mark.parametrize("wait", ["0", "20"])
async def test_poll_during_its_read_ends_at_once(
    polls: Polls, purgatory: Purgatory, wait: str, reported: list[Any]
) -> None:
    polls.source.gate.clear()
    client = Messages()
    query = {"wait": wait}
    leaves, older = (
        polls.start(query=query, receive=client.receive, client=name, group="all") for name in ("ann", "bob")
    )
    await settle()
    newer = polls.start(query=query, client="bob", group="all")
    assert await status_of(older) == (409, None)
    client.leave()
    assert await status_of(leaves) == (499, None)
    purgatory.close()
    assert await status_of(newer) == (503, "closed")
    assert (polls.source.under_way, reported) == (0, [])  # nobody else wanted it
    check_empty(polls.polling)


async def test_fail_for_key_ends_a_poll_during_its_read(polls: Polls, purgatory: Purgatory) -> None:
    polls.source.gate.clear()
    poll = await polls.park()
    purgatory.fail_for_key("n", ConnectionError("not leader"))
    with pytest.raises(ConnectionError, match="not leader"):
        await asyncio.wait_for(poll, 10)


async def test_poll_that_may_not_wait_reads_once(polls: Polls) -> None:
    for known, status in (('"0"', 304), (None, 200)):
        assert await status_of(polls.start(known=known, query={"wait": "0"})) == (status, None)
    assert polls.source.reads_of("n") == 2
    statistics = polls.purgatory.statistics()
    assert (statistics.expired, statistics.completed, statistics.missed_triggers) == (1, 1, 0)


async def test_leaving_ends_a_poll_during_its_body(polls: Polls) -> None:
    client = Messages()
    poll = polls.start(known=None, receive=client.receive)
    while ("read", "n") not in polls.source.calls:
        await asyncio.sleep(0)
        if ("version", "n") in polls.source.calls and polls.source.under_way == 0:
            polls.source.gate.clear()
    client.leave()
    assert await status_of(poll) == (499, None)
    await end(polls)


async def test_shared_read_goes_on_for_those_who_stay(polls: Polls) -> None:
    polls.source.gate.clear()
    client = Messages()
    leaving, staying = polls.start(known=None, receive=client.receive), polls.start(known=None)
    await settle()
    client.leave()
    assert await status_of(leaving) == (499, None)
    polls.source.gate.set()
    assert await status_of(staying) == (200, None)
    assert polls.source.reads_of("n") == 1


async def test_read_that_nobody_wants_is_not_begun(polls: Polls) -> None:
    others = await occupy(polls)
    client = Messages()
    poll = await polls.park(receive=client.receive)
    client.leave()
    assert await status_of(poll) == (499, None)
    polls.source.gate.set()
    await settle()
    assert polls.source.reads_of("n") == 0
    await end(polls, *others)


async def test_read_given_up_frees_its_place_for_others(polls: Polls) -> None:
    others = await occupy(polls)
    poll = await polls.park()
    assert polls.source.reads_of("n") == 0
    others[0].cancel()
    await settle()
    assert polls.source.reads_of("n") == 1
    await end(polls, poll, *others)


async def test_read_in_the_queue_at_the_deadline_is_503(polls: Polls, clock: ManualClock) -> None:
    others = await occupy(polls)
    assert await status_of(polls.start(query={"wait": "0"})) == (503, "source")
    poll = polls.start(query={"wait": "2"})
    await clock.advance(1.999)
    await settle()
    assert not poll.done()
    await clock.advance(0.001)
    assert await status_of(poll) == (503, "source")
    assert poll.result().headers["retry-after"] in "123"
    assert polls.source.reads_of("n") == 0
    await end(polls, *others)


async def test_read_under_way_at_the_deadline_is_finished(polls: Polls, clock: ManualClock) -> None:
    polls.source.gate.clear()
    poll = polls.start(known='"old"', query={"wait": "2"})
    await clock.advance(2.0)
    await settle()
    assert not poll.done()
    polls.source.gate.set()
    assert await status_of(poll) == (410, None)


@pytest.mark.parametrize("checked", [False, True])
async def test_last_read_that_cannot_begin_is_no_news(polls: Polls, clock: ManualClock, checked: bool) -> None:
    """Unless a key was checked since the poll has read: then there may be news."""
    poll = await polls.park(query={"wait": "2"})
    others = await occupy(polls)
    if checked:
        polls.purgatory.check_and_complete("n")
        await settle()
    await clock.advance(2.0)
    assert await status_of(poll) == ((503, "source") if checked else (304, None))
    assert polls.source.reads_of("n") == 1
    await end(polls, *others)


async def test_check_while_the_last_read_queues_is_no_304(
    polls: Polls, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.web.reads.MAX_QUEUE", 2.5)
    poll = await polls.park(query={"wait": "2"})
    others = await occupy(polls)
    await clock.advance(2.0)
    await settle()
    assert not poll.done()
    polls.purgatory.check_and_complete("n")
    assert (await poll).headers["refused"] == "source"
    await end(polls, *others)


async def test_bodies_are_read_before_versions(purgatory: Purgatory) -> None:
    """Otherwise, every poll that queues for its first read delays polls that are almost done."""
    polls = Polls(purgatory, Database(), max_reads=1)
    herd = [polls.start(f"n-{i}", known=None) for i in range(20)]
    answers = [await poll for poll in herd]
    assert {answer.status for answer in answers} == {200}
    kinds = [kind for kind, _ in polls.source.calls]
    # A call that ends lets another begin at once: its own poll asks for the body an iteration later.
    assert max(kinds[:i].count("version") - kinds[:i].count("read") for i in range(41)) <= 2


async def test_source_that_fails_now_and_then_is_logged_seldom(polls: Polls, caplog: pytest.LogCaptureFixture) -> None:
    lines = caplog.records
    for _ in range(100):
        assert (await polls.start("broken")).status == 503
        assert (await polls.start(known=None)).status == 200
    assert [(line.levelname, line.exc_info is not None) for line in lines] == [("ERROR", True)]


async def test_long_outage_is_logged_again(
    polls: Polls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.web.answer.LOG_EVERY", 0.0)
    for _ in range(3):
        await polls.start("broken")
    assert [text[-1] for text in caplog.messages] == ["1", "2", "3"]


async def test_read_that_fails_as_it_is_cancelled_is_no_outage(
    purgatory: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    class Converts(Database):
        async def version(self, resource: str) -> str:
            try:
                return await super().version(resource)
            except asyncio.CancelledError:
                raise OSError("the statement was cancelled") from None

    polls = Polls(purgatory, database := Converts())
    database.gate.clear()
    poll = await polls.park()
    poll.cancel()
    await settle()
    assert (poll.cancelled(), caplog.records) == (True, [])
