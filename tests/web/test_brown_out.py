"""A source that answers slowly, or not at all: polls still end in time, and leave at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextvars import ContextVar
from statistics import median
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import Answer, LongPolling, Policy

from .test_longpoll_async import POLICY, Database, Polls, settle


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory, max_reads=2)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disconnect is noticed at once, and polls that may not queue any longer end in the next iterations."""
    monkeypatch.setattr("aiopurgatory.web.poll.LISTEN_AFTER", 0.0)
    monkeypatch.setattr("aiopurgatory.web.reads.MAX_QUEUE", 0.0)


class Leaving:
    """ASGI's receive() of a client that leaves when it is told."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}


def hang(polls: Polls) -> None:
    """Every call that begins from here on waits for the gate."""
    polls.database.gate.clear()


def occupy(polls: Polls) -> list[asyncio.Task[Answer]]:
    """Take both of the calls that may be under way."""
    hang(polls)
    return [polls.start(f"other-{i}") for i in range(2)]


async def end(polls: Polls, *tasks: asyncio.Task[Answer]) -> None:
    polls.database.gate.set()
    for task in tasks:
        task.cancel()
    await settle()
    assert (polls.polling.purgatory.num_delayed, polls.database.under_way) == (0, 0)
    check_invariants(polls.polling.purgatory)


async def status_of(task: asyncio.Task[Answer]) -> tuple[int, str | None]:
    """The answer, which must be there by now."""
    await settle()
    assert task.done(), "the poll goes on"
    answer = task.result()
    return answer.status, answer.headers.get("refused")


async def test_leaving_ends_a_poll_during_its_read(polls: Polls) -> None:
    hang(polls)
    client = Leaving()
    poll = polls.start(receive=client, group="all")
    await settle()
    client.left.set()
    assert await status_of(poll) == (499, None)
    assert polls.polling.statistics().groups == 0
    assert polls.database.under_way == 0  # nobody else wanted it


async def test_poll_that_may_not_wait_ends_like_any_other(polls: Polls, purgatory: Purgatory) -> None:
    hang(polls)
    client = Leaving()
    leaves, older = (polls.start(query={"wait": "0"}, receive=client, client=name) for name in ("ann", "bob"))
    await settle()
    newer = polls.start(query={"wait": "0"}, client="bob")
    assert await status_of(older) == (409, None)
    client.left.set()
    assert await status_of(leaves) == (499, None)
    purgatory.close()
    assert await status_of(newer) == (503, "closed")
    assert polls.database.under_way == 0


async def test_poll_that_may_not_wait_reads_once(polls: Polls, purgatory: Purgatory) -> None:
    for known, status in (('"0"', 304), (None, 200)):
        assert await status_of(polls.start(known=known, query={"wait": "0"})) == (status, None)
    assert (polls.database.reads_of("n"), purgatory.num_delayed) == (2, 0)
    statistics = purgatory.statistics()
    assert (statistics.expired, statistics.completed, statistics.missed_triggers) == (1, 1, 0)


async def test_read_has_the_context_of_a_poll_that_wants_it(purgatory: Purgatory) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")

    class Tenants:
        async def version(self, resource: str) -> str:
            await asyncio.sleep(0)
            return tenant.get()

        async def read(self, resource: str, since: str | None, version: str) -> bytes:
            return tenant.get().encode()

    polling = LongPolling(purgatory, Tenants(), policy=POLICY, max_reads=1)

    async def ask(name: str) -> Answer:
        tenant.set(name)
        return await polling.answer(name, {})

    names = ["ann", "bob", "cy"]
    answers = await asyncio.gather(*[asyncio.create_task(ask(name)) for name in names])
    assert [(answer.headers["etag"].strip('"'), answer.body.decode()) for answer in answers] == [
        (name, name) for name in names
    ]


async def test_source_that_is_cancelled_has_failed(purgatory: Purgatory) -> None:
    class Pool(Database):
        async def version(self, resource: str) -> str:
            raise asyncio.CancelledError  # as one that was closed

    answer = await LongPolling(purgatory, Pool(), policy=POLICY).answer("n", {})
    assert (answer.status, answer.headers["refused"]) == (503, "source")


async def test_leaving_ends_a_poll_during_its_body(polls: Polls) -> None:
    client = Leaving()
    poll = polls.start(known=None, receive=client)
    while ("read", "n") not in polls.database.calls:
        await asyncio.sleep(0)
        if ("version", "n") in polls.database.calls and polls.database.under_way == 0:
            hang(polls)
    client.left.set()
    assert await status_of(poll) == (499, None)
    await end(polls)


async def test_closing_ends_a_poll_during_its_read(polls: Polls, purgatory: Purgatory) -> None:
    hang(polls)
    poll = polls.start()
    await settle()
    purgatory.close()
    assert await status_of(poll) == (503, "closed")
    assert polls.database.under_way == 0


async def test_fail_for_key_ends_a_poll_during_its_read(polls: Polls, purgatory: Purgatory) -> None:
    hang(polls)
    poll = polls.start()
    await settle()
    purgatory.fail_for_key("n", ConnectionError("not leader"))
    await settle()
    assert poll.done()
    with pytest.raises(ConnectionError, match="not leader"):
        await poll


async def test_shared_read_goes_on_for_those_who_stay(polls: Polls) -> None:
    hang(polls)
    client = Leaving()
    leaving, staying = polls.start(known=None, receive=client), polls.start(known=None)
    await settle()
    client.left.set()
    assert await status_of(leaving) == (499, None)
    polls.database.gate.set()
    assert await status_of(staying) == (200, None)
    assert polls.database.reads_of("n") == 1


async def test_read_that_nobody_wants_is_not_begun(polls: Polls) -> None:
    others = occupy(polls)
    await settle()
    client = Leaving()
    poll = polls.start(receive=client)
    await settle()
    client.left.set()
    assert await status_of(poll) == (499, None)
    polls.database.gate.set()
    await settle()
    assert polls.database.reads_of("n") == 0
    await end(polls, *others)


async def test_read_given_up_frees_its_place_for_others(polls: Polls) -> None:
    others = occupy(polls)
    await settle()
    poll = polls.start()
    await settle()
    assert polls.database.reads_of("n") == 0
    others[0].cancel()
    await settle()
    assert polls.database.reads_of("n") == 1
    await end(polls, poll, *others)


async def test_read_in_the_queue_at_the_deadline_is_503(polls: Polls, clock: ManualClock) -> None:
    others = occupy(polls)
    await settle()
    poll = polls.start(query={"wait": "2"})
    await clock.advance(1.999)
    await settle()
    assert not poll.done()
    await clock.advance(0.001)
    assert await status_of(poll) == (503, "source")
    assert poll.result().headers["retry-after"] in "123"
    assert polls.database.reads_of("n") == 0
    await end(polls, *others)


async def test_read_under_way_at_the_deadline_is_finished(polls: Polls, clock: ManualClock) -> None:
    hang(polls)
    poll = polls.start(known='"old"', query={"wait": "2"})
    await clock.advance(2.0)
    await settle()
    assert not poll.done()
    polls.database.gate.set()
    assert await status_of(poll) == (410, None)


@pytest.mark.parametrize("checked", [False, True])
async def test_last_read_that_cannot_begin_is_no_news(
    polls: Polls, purgatory: Purgatory, clock: ManualClock, checked: bool
) -> None:
    """Unless a key was checked since the poll has read: then there may be news."""
    poll = polls.start(query={"wait": "2"})
    await settle()
    others = occupy(polls)
    await settle()
    if checked:
        purgatory.check_and_complete("n")
        await settle()
    await clock.advance(2.0)
    assert await status_of(poll) == ((503, "source") if checked else (304, None))
    assert polls.database.reads_of("n") == 1
    await end(polls, *others)


async def test_check_while_the_last_read_queues_is_no_304(
    polls: Polls, purgatory: Purgatory, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.web.reads.MAX_QUEUE", 0.05)
    poll = polls.start(query={"wait": "2"})
    await settle()
    others = occupy(polls)
    await clock.advance(2.0)
    await settle()
    assert not poll.done()
    purgatory.check_and_complete("n")
    assert (await poll).headers["refused"] == "source"
    await end(polls, *others)


async def test_poll_that_may_not_wait_queues_for_a_short_time(polls: Polls) -> None:
    others = occupy(polls)
    await settle()
    poll = polls.start(query={"wait": "0"})
    await asyncio.wait([poll], timeout=5)
    assert await status_of(poll) == (503, "source")
    await end(polls, *others)


async def test_bodies_are_read_before_versions(purgatory: Purgatory) -> None:
    """Otherwise, every poll that queues for its first read delays those that are almost done."""
    polls = Polls(purgatory, max_reads=1)
    herd = [polls.start(f"n-{i}", known=None) for i in range(20)]
    answers = [await poll for poll in herd]
    assert {answer.status for answer in answers} == {200}
    kinds = [kind for kind, _ in polls.database.calls]
    # A call that ends lets another begin at once: its own poll asks for the body an iteration later.
    assert max(kinds[:i].count("version") - kinds[:i].count("read") for i in range(41)) <= 2


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    caplog.set_level(logging.WARNING)
    return caplog.records


async def test_outage_is_logged_once_a_minute(polls: Polls, caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog)
    for _ in range(382):
        assert (await polls.start("broken")).status == 503
    assert [(line.levelname, line.exc_info is not None) for line in lines] == [("ERROR", True)]


async def test_source_that_fails_now_and_then_is_logged_seldom(polls: Polls, caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog)
    for _ in range(100):
        assert (await polls.start("broken")).status == 503
        assert (await polls.start(known=None)).status == 200
    assert [line.levelname for line in lines] == ["ERROR"]


async def test_long_outage_is_logged_again(
    polls: Polls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.web.outages.LOG_EVERY", 0.0)
    lines = logged(caplog)
    for _ in range(3):
        await polls.start("broken")
    assert [line.getMessage()[-1] for line in lines] == ["1", "2", "3"]


async def test_read_that_fails_since_it_is_cancelled_is_no_outage(
    purgatory: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    class Converts(Database):
        async def version(self, resource: str) -> str:
            try:
                return await super().version(resource)
            except asyncio.CancelledError:
                raise OSError("the statement was cancelled") from None

    lines = logged(caplog)
    polling = LongPolling(purgatory, database := Converts(), policy=POLICY)
    database.gate.clear()
    poll = asyncio.create_task(polling.answer("n", {}))
    await settle()
    poll.cancel()
    await settle()
    assert (poll.cancelled(), lines) == (True, [])


@pytest.mark.slow
@pytest.mark.parametrize("times_out", [True, False])
async def test_brown_out_ends_polls_in_time(monkeypatch: pytest.MonkeyPatch, times_out: bool) -> None:
    """300 clients of as many topics, and a source that does not answer: it times out after 1 s, or never does."""
    monkeypatch.undo()

    class Hangs:
        async def version(self, resource: int) -> str:
            async with asyncio.timeout(1.0 if times_out else None):
                await asyncio.Event().wait()
            raise AssertionError

        async def read(self, resource: int, since: str | None, version: str) -> bytes:
            raise AssertionError

    async with Purgatory() as purgatory:
        polling = LongPolling(purgatory, Hangs(), policy=Policy(max_per_group=300))

        async def client(topic: int) -> tuple[int, float]:
            began = time.monotonic()
            answer = await polling.answer(topic, {}, {"wait": "2"}, client=topic, group="all", receive=leaving)
            return answer.status, time.monotonic() - began

        async def crowd() -> list[asyncio.Task[tuple[int, float]]]:
            tasks = [asyncio.create_task(client(topic)) for topic in range(300)]
            await asyncio.sleep(0.3)
            assert polling.statistics().groups == 1
            return tasks

        leaving = Leaving()
        tasks = await crowd()
        if times_out:  # otherwise the calls that have begun go on
            found = await asyncio.gather(*tasks)
            times = [seconds for _, seconds in found]
            assert Counter(status for status, _ in found) == {503: 300}
            assert median(times) < 2.5
            assert max(times) < 4.0
            tasks = await crowd()
        leaving.left.set()
        await asyncio.sleep(1.0)
        assert (polling.statistics().groups, purgatory.num_delayed) == (0, 0)
        assert {task.result()[0] for task in tasks} <= {499, 503}
        leaving.left.clear()
        tasks = await crowd()
        purgatory.close()
        began = time.monotonic()
        await asyncio.gather(*tasks)
        assert time.monotonic() - began < 0.5
