"""Snapshots: the data of the page, and a snapshot's cost to the event loop."""

from __future__ import annotations

import asyncio
import time
import weakref

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web.inspector import snapshot
from aiopurgatory.web.inspector.snapshot import Names

from .helpers import Wait, get, search, state, state_with


@pytest.mark.parametrize("options", [{"clock": ManualClock()}])
async def test_state_tells_what_is_pending_and_how_full_the_wheels_are(purgatory: Purgatory, port: int) -> None:
    for timeout in (30.0, 30.0, 3000.0, None, None, None):
        purgatory.watch(Wait(timeout), ["key"])
    found = await state_with(port, pending=6)
    assert (found["state"], found["untimed"], found["due"]) == ("open", 3, 0)
    assert [ring["tick"] for ring in found["rings"]] == pytest.approx([0.001, 0.02, 0.4, 8.0, 160.0])
    assert [sum(count for _, count in ring["filled"]) for ring in found["rings"]] == [0, 0, 0, 2, 1]
    assert [ring["buckets"] for ring in found["rings"]] == [0, 0, 0, 1, 1]
    assert all(0 <= hand < 1 for hand in found["hands"])
    # As a clock: the bucket that the hand reaches in 3000 s.
    ((part, _),) = found["rings"][4]["filled"]
    ahead = (part - found["hands"][4] * 20) % 20 * 160
    assert 3000 - 161 < ahead <= 3001


async def test_hands_move_with_the_time_and_not_with_the_work(clock: ManualClock) -> None:
    async with Purgatory(clock=clock) as purgatory:
        purgatory.watch(Wait(5.0), ["key"])
        assert snapshot.take_hands(purgatory) == [0, 0, 0]
        await clock.advance(2.0)
        assert snapshot.take_hands(purgatory)[2] == 2 / 8


@pytest.mark.parametrize("options", [{"wheel_size": size} for size in (2, 120, 121, 1000)])
async def test_state_draws_no_more_parts_than_a_page_can(
    purgatory: Purgatory, port: int, options: dict[str, int]
) -> None:
    size = options["wheel_size"]
    for step in range(size):
        purgatory.watch(Wait(1.0 + step / 1000), ["key"])
    for ring in (await state_with(port, pending=size))["rings"]:
        assert ring["parts"] == min(size, 120)
        assert all(0 <= part < ring["parts"] and count > 0 for part, count in ring["filled"])
        assert ring["size"] == size


async def test_most_watched_keys_come_first(purgatory: Purgatory, port: int) -> None:
    for number in range(30):
        for _ in range(number + 1):
            purgatory.watch(Wait(None), [("orders", number)])
    found = await state_with(port, pending=465)
    assert found["most_watched"] == [
        {"key": f"('orders', {number})", "watchers": number + 1} for number in range(29, 19, -1)
    ]


async def test_oldest_operations_come_first_and_once(purgatory: Purgatory, port: int) -> None:
    gone = purgatory.watch(Wait(None), ["hot"])
    for number in range(8):
        purgatory.watch(Wait(None), ["hot", number])
    for number in range(8):
        purgatory.watch(Wait(100.0), [f"late {number}"])
    gone.cancel()
    found = await state_with(port, pending=16)
    assert [op["key"] for op in found["oldest"]] == ["'hot'"] * 8 + ["'late 0'", "'late 1'"]
    assert [op["keys"] for op in found["oldest"]] == [2] * 8 + [1] * 2
    assert {op["kind"] for op in found["oldest"]} == {"Wait"}
    assert [op["since"] for op in found["oldest"]] == sorted(op["since"] for op in found["oldest"])
    assert found["oldest"][0]["deadline"] is None
    assert found["oldest"][9]["deadline"] - found["oldest"][9]["since"] == pytest.approx(100.0)


@pytest.mark.parametrize("options", [{"purge_interval": 1000}])
async def test_stale_entries_are_not_taken_for_pending(purgatory: Purgatory, port: int) -> None:
    ended = purgatory.watch(Wait(None), ["a", "b"])
    ended.force_complete()
    purgatory.watch(Wait(None), ["b"])
    found = await state_with(port, pending=1, completed=1)
    assert [op["key"] for op in found["oldest"]] == ["'b'"]
    assert [len(hit["oldest"]) for hit in await search(port, "a")] == [0]


@pytest.fixture
def few_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_KEYS", 100)
    monkeypatch.setattr(snapshot, "NEWEST", 10)


@pytest.mark.usefixtures("few_visited")
async def test_many_keys_are_visited_in_part_and_it_says_so(purgatory: Purgatory, port: int) -> None:
    for number in range(1000):
        purgatory.watch(Wait(None), [number])
    for _ in range(3):
        purgatory.watch(Wait(None), ["first of the newest"])
    found = await state_with(port, pending=1003)
    assert found["scope"] == {"keys": 110, "of": 1001, "partial": True}
    assert found["most_watched"][0] == {"key": "'first of the newest'", "watchers": 3}
    assert [op["key"] for op in found["oldest"]] == [str(number) for number in range(10)]
    assert [hit["key"] for hit in await search(port, "500")] == ["500"]
    assert (await get(port, "/search?key=500")).json["scope"]["partial"]


@pytest.mark.usefixtures("few_visited")
@pytest.mark.parametrize("keys", [100, 101, 105])
async def test_newest_keys_are_shown_once(purgatory: Purgatory, port: int, keys: int) -> None:
    for number in range(keys):
        purgatory.watch(Wait(None), [number])
    scope = (await state_with(port, pending=keys))["scope"]
    assert scope == {"keys": keys, "of": keys, "partial": keys > 100}


async def test_nothing_that_ended_is_kept(purgatory: Purgatory, port: int) -> None:
    op = purgatory.watch(Wait(None), ["jane"])
    gone = weakref.ref(op)
    known = await state_with(port, pending=1)
    await search(port, "jane")
    op.cancel()
    del op
    await state(port, known["cursor"])
    await asyncio.sleep(0)
    assert gone() is None


# the loop is not held


async def test_loop_has_its_turns_while_many_keys_are_visited(purgatory: Purgatory) -> None:
    for number in range(20_000):
        purgatory.watch(Wait(None), [("orders", number)])
    for looking in (
        snapshot.take_keys(purgatory, Names(True)),
        snapshot.find(purgatory, Names(True), "nowhere"),
        snapshot.find(purgatory, Names(False), "nowhere"),
    ):
        before = time.thread_time()
        task = asyncio.create_task(looking)
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        # Each turn took a millisecond or so of the whole.
        assert turns >= (time.thread_time() - before) / (5 * snapshot.TURN)
        assert turns > 3


async def test_keys_may_come_and_go_and_none_that_ends_is_kept(
    purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "TURN", 0.0)  # a turn for each key
    for looking in (snapshot.take_keys(purgatory, Names(True)), snapshot.find(purgatory, Names(True), "nowhere")):
        ops = [weakref.ref(purgatory.watch(Wait(None), [number])) for number in range(100)]
        task = asyncio.create_task(looking)
        for number, op in enumerate(ops):
            await asyncio.sleep(0)  # it has just been visited
            purgatory.cancel_for_key(number)
            assert op() is None
            purgatory.watch(Wait(None), [f"new {number}"])
        assert (await task)["scope"]["keys"] == 100
        for number in range(100):
            purgatory.cancel_for_key(f"new {number}")


async def test_snapshots_leave_the_purgatory_as_it_is(purgatory: Purgatory, port: int) -> None:
    for number in range(10):
        purgatory.watch(Wait(100.0), [number])
    before = purgatory.statistics()
    await state_with(port, pending=10)
    await search(port, "1")
    assert purgatory.statistics() == before
