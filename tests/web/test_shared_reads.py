"""Which polls of a source that has to be awaited share a call: all that one notification wakes, and no others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from core.parts import turns  # type: ignore[import-not-found]

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import Answer, EventRoute

from .eventsource import Client, leave
from .polls import Database, Polls, settle

#: So short that each slice of a check wakes one poll.
BUDGET = 1e-9

WAYS: dict[str, Callable[[Purgatory], object]] = {
    "notify": lambda purgatory: purgatory.notify("n"),
    "notify_all": lambda purgatory: purgatory.notify_all(),
    "check_and_complete": lambda purgatory: purgatory.check_and_complete("n"),
    "check_all": lambda purgatory: purgatory.check_all(),
}

ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
async def purgatory() -> AsyncIterator[Purgatory]:
    async with Purgatory(clock=ManualClock(), turn_budget=BUDGET) as purgatory:
        yield purgatory
        check_invariants(purgatory)


@pytest.fixture
def source() -> Database:
    return Database()


async def park(polls: Polls, number: int, **more: Any) -> list[asyncio.Task[Answer]]:
    """Start polls, which read once and wait. Forget their calls."""
    parked = [polls.start(**more) for _ in range(number)]
    await settle()
    assert polls.polling.purgatory.num_delayed >= number
    polls.source.calls.clear()
    return parked


@pytest.mark.parametrize("is_slow", [False, True])
async def test_notify_in_slices_makes_two_calls(polls: Polls, is_slow: bool) -> None:
    parked = await park(polls, 3_000)
    if is_slow:
        polls.source.gate.clear()
    polls.publish()
    await turns(100)
    assert sum(poll.done() for poll in parked) < (1 if is_slow else 1_000)  # otherwise there are no slices
    await turns(6_000)
    polls.source.gate.set()
    assert {(await poll).body for poll in parked} == {b"n 0 1"}
    assert polls.source.calls == [("version", "n"), ("read", "n")]


async def test_notify_of_other_keys_between_slices_adds_no_call(polls: Polls) -> None:
    parked = await park(polls, 100)
    others = await park(polls, 100, resource="m", keys=["m"])
    polls.publish()
    while not all(poll.done() for poll in parked):
        polls.polling.purgatory.check_and_complete("m")
        await asyncio.sleep(0)
    assert polls.source.calls.count(("version", "n")) == polls.source.calls.count(("read", "n")) == 1
    for poll in others:
        poll.cancel()
    await settle()


async def test_streams_in_slices_make_two_calls(polls: Polls) -> None:
    route = EventRoute(polls.polling)
    clients = [Client(route) for _ in range(300)]
    await settle()
    polls.source.calls.clear()
    polls.publish()
    await turns(50)
    assert sum(len(client.events) > 1 for client in clients) < 100  # otherwise there are no slices
    await turns(1_000)
    assert {client.events[-1].id for client in clients} == {"1"}
    assert polls.source.calls == [("version", "n"), ("read", "n")]
    await leave(*clients)


@ways
async def test_change_after_a_read_has_ended_is_read(polls: Polls, purgatory: Purgatory, way: str) -> None:
    """The first change answers the polls of the first slices. Later ones must not get its result."""
    parked = await park(polls, 100)
    polls.publish()
    await turns(40)
    answered = {poll for poll in parked if poll.done()}
    assert 0 < len(answered) < 90
    polls.source.values["n"] = 2
    waiting = purgatory.waiting("n")
    WAYS[way](purgatory)
    await turns(1_000)
    found = [(await poll).headers["etag"] for poll in parked if poll not in answered]
    assert set(found) <= {'"1"', '"2"'}
    assert found.count('"1"') < 10 < len(waiting)  # woken before the second change
    assert len(polls.source.calls) <= 6


@pytest.mark.parametrize("leaving", range(1, 8))
async def test_poll_woken_as_others_leave_shares_no_call_of_theirs(polls: Polls, leaving: int) -> None:
    """That is being cancelled."""
    parked = await park(polls, 50)
    polls.source.gate.clear()
    polls.publish()
    while not polls.source.calls:  # noqa: ASYNC110 each iteration counts
        await asyncio.sleep(0)
    for poll in parked[:leaving]:
        poll.cancel()
    await turns(100)
    polls.source.gate.set()
    assert {(await poll).status for poll in parked[leaving:]} == {200}


async def test_poll_that_comes_as_another_leaves_the_queue_is_read_for(purgatory: Purgatory) -> None:
    polls = Polls(purgatory, Database(), max_reads=1)
    polls.source.gate.clear()
    busy, queued = await polls.park("busy", known=None), await polls.park(known=None)
    queued.cancel()
    late = polls.start(known=None)
    await settle()
    polls.source.gate.set()
    assert [(await poll).status for poll in (busy, late)] == [200, 200]


async def test_deadline_gets_no_result_of_before(polls: Polls, purgatory: Purgatory) -> None:
    """Its last read is to find an unannounced change."""
    parked = await park(polls, 10, known='"0", "1"')
    polls.publish()
    await turns(100)
    polls.source.values["n"] = 2  # and nobody is told
    purgatory.expire_all()
    await turns(100)
    assert {(await poll).headers["etag"] for poll in parked} == {'"2"'}


@pytest.mark.parametrize("seed", range(20))
async def test_answers_are_never_older_than_their_polls(
    polls: Polls, purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Changes in every loop iteration, each with a notification. Clients poll again with their new versions."""
    chance = random.Random(seed)
    monkeypatch.setattr(polls.source, "gate", Jam(chance))
    is_over, answers = False, 0

    async def client(name: int) -> str:
        nonlocal answers
        known = '"0"'
        while not is_over:
            at_first = polls.source.values.get("n", 0)
            answer = await polls.start(known=known, client=name)
            if answer.status == 200:
                etag = answer.headers["etag"]
                assert int(etag.strip('"')) >= max(at_first, int(known.strip('"')) + 1)
                known = etag
                answers += 1
        return known

    clients = [asyncio.create_task(client(name)) for name in range(20)]
    await turns(20)
    for _ in range(300):
        if chance.random() < 0.7:
            polls.source.values["n"] = polls.source.values.get("n", 0) + 1
            WAYS[chance.choice([*WAYS])](purgatory)
        await asyncio.sleep(0)
    await turns(500)  # a poll that missed the last change waits for ever
    is_over = True
    purgatory.expire_all()
    assert {await one for one in clients} == {f'"{polls.source.values["n"]}"'}
    assert answers > 100


class Jam:
    """A gate that opens after a random number of loop iterations."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def wait(self) -> None:
        for _ in range(self._chance.randrange(8)):
            await asyncio.sleep(0)
