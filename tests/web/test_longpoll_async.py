"""Long polls of a source that has to be awaited: shared reads, and changes that a poll can miss."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import Answer

from .polls import Database, Polls, settle


@pytest.fixture
def source() -> Database:
    return Database()


async def test_poll_that_comes_during_a_read_gets_one_of_its_own(polls: Polls) -> None:
    polls.source.gate.clear()
    early = await polls.park()
    polls.source.values["n"] = 1  # and nobody is told
    late = await polls.park()
    polls.source.gate.set()
    assert (await late).body == b"n 0 1"
    assert not early.done()
    early.cancel()


async def test_reads_under_way_are_bounded(purgatory: Purgatory) -> None:
    polls = Polls(purgatory, Database(), max_reads=3)
    herd = [polls.start(f"n-{i}") for i in range(50)]
    await settle()
    for i in range(50):
        polls.source.values[f"n-{i}"] = 1
    purgatory.check_all()
    assert {(await poll).status for poll in herd} == {200}
    assert polls.source.most_under_way == 3


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
        assert polls.source.calls == [("version", "n"), ("read", "n")]


async def test_poll_without_news_reads_once_more_at_its_deadline(polls: Polls, clock: ManualClock) -> None:
    silent, told = polls.start(), polls.start("told")
    await settle()
    await clock.advance(29.9)
    polls.source.values["told"] = 1  # and nobody is told
    await clock.advance(0.1)
    await settle()
    assert ((await silent).status, (await told).status) == (304, 200)


async def test_read_that_fails_answers_its_polls_alone(polls: Polls, caplog: pytest.LogCaptureFixture) -> None:
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


def test_call_that_outlives_its_loop_frees_no_place_in_the_next() -> None:
    class Stubborn(Database):
        async def version(self, resource: str) -> str:
            if resource == "stubborn":
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                await may_end.wait()
            return await super().version(resource)

    async def leave() -> None:
        (await polls.park("stubborn")).cancel()
        await polls.purgatory.aclose()

    async def park_two() -> list[asyncio.Task[Answer]]:
        await polls.purgatory.start()
        polls.source.gate.clear()
        return [await polls.park(name, known=None) for name in ("a", "b")]

    async def end() -> None:
        may_end.set()
        await settle()

    async def answer(parked: list[asyncio.Task[Answer]]) -> list[int]:
        polls.source.gate.set()
        statuses = [(await poll).status for poll in parked]
        await polls.purgatory.aclose()
        return statuses

    polls, may_end = Polls(Purgatory(), Stubborn(), max_reads=1), asyncio.Event()
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(leave())
        parked = second.run(park_two())
        first.run(end())
        assert polls.source.reads_of("b") == 0  # the other one's read has the only place
        assert second.run(answer(parked)) == [200, 200]
