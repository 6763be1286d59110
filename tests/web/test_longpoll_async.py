"""Long polls of a source that has to be awaited: shared reads, and changes that a poll can miss."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import Answer, LongPolling, Policy

POLICY = Policy(jitter=0.0, margin=0.0, max_wait=30.0)


class Database:
    """Each resource is a number. A call sees the state at its beginning, and answers when it is let."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.calls: list[tuple[str, ...]] = []
        self.under_way = self.most_under_way = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def version(self, resource: str) -> str:
        return str(await self._call("version", resource))

    async def read(self, resource: str, since: str | None, version: str) -> bytes:
        await self._call("read", resource)
        if since == "old":
            raise GoneError("old is gone")
        return f"{resource} {since} {version}".encode()

    async def _call(self, what: str, resource: str) -> int:
        self.calls.append((what, resource))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        seen = self.numbers.get(resource, 0)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if resource == "broken":
                raise OSError("the database is away")
        finally:
            self.under_way -= 1
        return seen

    def reads_of(self, resource: str) -> int:
        return self.calls.count(("version", resource))


class Polls:
    def __init__(self, purgatory: Purgatory, **more: Any) -> None:
        self.database = Database()
        self.polling = LongPolling(purgatory, self.database, policy=POLICY, **more)

    def start(self, resource: str = "n", known: str | None = '"0"', **more: Any) -> asyncio.Task[Answer]:
        headers = {} if known is None else {"if-none-match": known}
        return asyncio.create_task(self.polling.answer(resource, headers, **more))

    def publish(self, resource: str = "n") -> None:
        self.database.numbers[resource] = self.database.numbers.get(resource, 0) + 1
        self.polling.notify(resource)


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory)


@pytest.mark.parametrize("known", ['"0"', "*", 'W/"0"', '"7", "0"'])
async def test_poll_without_news_waits_for_them(polls: Polls, known: str) -> None:
    poll = polls.start(known=known)
    await settle()
    assert not poll.done()
    polls.publish()
    assert (await poll).headers["etag"] == '"1"'


async def test_event_during_a_read_is_not_missed(polls: Polls) -> None:
    polls.database.gate.clear()
    poll = polls.start()
    await settle()
    polls.publish()  # too late for the call that is under way
    polls.database.gate.set()
    assert (await poll).body == b"n 0 1"


async def test_poll_that_comes_during_a_read_gets_one_of_its_own(polls: Polls) -> None:
    polls.database.gate.clear()
    early = polls.start()
    await settle()
    polls.database.numbers["n"] = 1  # and nobody is told
    late = polls.start()
    await settle()
    polls.database.gate.set()
    assert (await late).body == b"n 0 1"
    assert not early.done()
    early.cancel()


async def test_herd_shares_its_reads(polls: Polls) -> None:
    herd = [polls.start() for _ in range(10_000)]
    await settle()
    before = len(polls.database.calls)
    polls.database.numbers["n"] = 1
    polls.polling.purgatory.check_and_complete("n")  # all in one loop iteration; notify() checks in slices
    bodies = {(await poll).body for poll in herd}
    assert bodies == {b"n 0 1"}
    assert before <= 2
    assert len(polls.database.calls) - before <= 3  # the version, and the body; one more for the latecomer


async def test_reads_under_way_are_bounded(purgatory: Purgatory) -> None:
    polls = Polls(purgatory, max_reads=3)
    herd = [polls.start(f"n-{i}") for i in range(50)]
    await settle()
    for i in range(50):
        polls.database.numbers[f"n-{i}"] = 1
    purgatory.check_all()
    assert {(await poll).status for poll in herd} == {200}
    assert polls.database.most_under_way == 3


async def test_read_cancelled_before_it_began_harms_no_later_poll(polls: Polls, purgatory: Purgatory) -> None:
    before = asyncio.all_tasks()
    poll = polls.start(known=None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reads = asyncio.all_tasks() - before - {poll}
    assert len(reads) == 1
    reads.pop().cancel()
    await asyncio.wait([poll])
    assert poll.cancelled()
    assert (await polls.start(known=None)).body == b"n None 0"
    assert purgatory.num_delayed == 0


if sys.version_info >= (3, 12):

    @pytest.mark.asyncio(loop_factories=["asyncio"])
    async def test_polls_in_a_loop_with_eager_tasks_share_reads(polls: Polls) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        herd = [polls.start(known=None) for _ in range(10)]
        assert {(await poll).body for poll in herd} == {b"n None 0"}
        assert polls.database.calls == [("version", "n"), ("read", "n")]


async def test_poll_without_news_reads_once_more_at_its_deadline(polls: Polls, clock: ManualClock) -> None:
    silent, told = polls.start(), polls.start("told")
    await settle()
    await clock.advance(29.9)
    polls.database.numbers["told"] = 1  # and nobody is told
    await clock.advance(0.1)
    await settle()
    assert ((await silent).status, (await told).status) == (304, 200)


async def test_read_that_fails_answers_its_polls_and_harms_no_other(
    polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        broken = [polls.start("broken") for _ in range(100)]
        other = polls.start()
        await settle()
        answers = [await poll for poll in broken]
    assert {answer.status for answer in answers} == {503}
    assert {answer.headers["refused"] for answer in answers} == {"source"}
    assert all(answer.headers["retry-after"] in "123" for answer in answers)
    assert len(caplog.records) == 1
    assert polls.polling.statistics().refused == {"source": 100}
    polls.publish()
    assert (await other).status == 200


@pytest.mark.parametrize("turns", range(14))
async def test_poll_cancelled_at_any_turn_leaves_nothing(polls: Polls, purgatory: Purgatory, turns: int) -> None:
    poll = polls.start(client="ann", group="all")
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 5:
            polls.publish()
    poll.cancel()
    await settle()
    found = polls.polling.statistics()
    assert (purgatory.num_delayed, found.clients, found.groups, polls.database.under_way) == (0, 0, 0, 0)
    check_invariants(purgatory)


async def test_poll_replaced_while_it_reads_is_not_reported(polls: Polls) -> None:
    """Its task gets the exception, only later: when the read is through."""
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
    polls.database.gate.clear()
    older = polls.start(client="ann")
    await settle()
    newer = polls.start(client="ann")
    await settle()
    polls.database.gate.set()
    assert ((await older).status, reports) == (409, [])
    polls.publish()
    assert (await newer).status == 200


def test_polls_in_the_next_loop_read_again() -> None:
    polling: list[Polls] = []

    async def poll() -> int:
        if not polling:
            polling.append(Polls(Purgatory()))
        polling[0].database.gate = asyncio.Event()
        polling[0].database.gate.set()
        return (await polling[0].start(query={"wait": "0.05"})).status

    assert [asyncio.run(poll()) for _ in range(2)] == [304, 304]
