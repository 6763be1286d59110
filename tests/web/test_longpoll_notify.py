"""The polls that notify() answers, and when: after the linger, and from other threads."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .polls import Counters, Polls, settle

# merged


async def test_notify_with_a_limit_answers_the_oldest_polls(polls: Polls) -> None:
    parked = [await polls.park() for _ in range(6)]
    polls.source.values["n"] = 1
    polls.polling.notify("n", limit=1)
    polls.polling.notify("n", limit=2)  # the limits of merged calls add up
    await settle()
    assert [poll.done() for poll in parked] == [True] * 3 + [False] * 3
    polls.polling.notify("n", limit=1)
    polls.polling.notify("n")
    assert [(await poll).status for poll in parked] == [200] * 6


# a linger


@pytest.fixture
def lingering(purgatory: Purgatory, source: Any) -> Polls:
    return Polls(purgatory, source, linger=5.0)


async def test_linger_gathers_what_happens_after_the_first_event(lingering: Polls, clock: ManualClock) -> None:
    for known, tag in (('"0"', '"3"'), ('"3"', '"6"')):
        poll = await lingering.park(known=known)
        for _ in range(2):
            lingering.publish()
        await clock.advance(4.9)
        assert not poll.done()
        lingering.publish()
        await clock.advance(0.1)
        assert (await poll).headers["etag"] == tag
    assert lingering.purgatory.num_delayed == 0


async def test_notify_all_checks_every_poll_at_once(lingering: Polls) -> None:
    polls = [await lingering.park("n"), await lingering.park("m")]
    lingering.source.values |= {"n": 1, "m": 1}
    lingering.polling.notify_all()
    async with asyncio.timeout(5):
        assert [(await poll).status for poll in polls] == [200, 200]


@pytest.mark.parametrize("notified", [True, False])
async def test_deadline_within_the_linger_misses_no_trigger(
    lingering: Polls, clock: ManualClock, notified: bool
) -> None:
    poll = await lingering.park(wait=2)
    lingering.source.values["n"] = 1
    if notified:
        lingering.polling.notify("n")
    await clock.advance(2.0)
    assert (await poll).status == 200
    assert lingering.purgatory.statistics().missed_triggers == (0 if notified else 1)
    await clock.advance(5.0)
    late = await lingering.park(wait=2, known='"1"')  # the linger is over
    lingering.source.values["n"] = 2
    await clock.advance(2.0)
    assert (await late).status == 200
    assert lingering.purgatory.statistics().missed_triggers == (1 if notified else 2)


async def test_limits_add_up_within_the_linger(lingering: Polls, clock: ManualClock) -> None:
    parked = [await lingering.park() for _ in range(4)]
    lingering.source.values["n"] = 1
    lingering.polling.notify("n", limit=1)
    lingering.polling.notify("n", limit=2)
    await clock.advance(5.0)
    assert [poll.done() for poll in parked] == [True] * 3 + [False]
    parked[3].cancel()


async def test_linger_parks_nothing_for_what_nobody_polls(lingering: Polls) -> None:
    lingering.publish("m")
    assert lingering.purgatory.num_delayed == 0


async def test_linger_in_a_full_purgatory_answers_at_once(clock: ManualClock, source: Any) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        polls = Polls(purgatory, source, linger=5.0)
        poll = await polls.park()
        polls.publish()
        assert (await poll).status == 200


async def test_linger_cut_short_by_closing_is_forgotten(lingering: Polls, clock: ManualClock) -> None:
    poll = await lingering.park()
    lingering.publish()
    await lingering.purgatory.aclose()
    assert (await poll).status == 503
    await lingering.purgatory.start()
    again = await lingering.park(known='"1"')
    lingering.publish()
    await clock.advance(4.9)
    assert not again.done()
    await clock.advance(0.1)
    assert (await again).status == 200


async def test_notify_threadsafe_honours_the_linger(lingering: Polls, clock: ManualClock) -> None:
    poll = await lingering.park()
    lingering.source.values["n"] = 1
    in_thread(lambda: lingering.polling.notify_threadsafe("n"), 3)
    await settle()  # the calls come by the loop's wake-up descriptor
    with pytest.raises(RuntimeError, match=r"from here, use notify_threadsafe\(key\)"):
        in_thread(lambda: lingering.polling.notify("n"))
    await clock.advance(4.9)
    assert not poll.done()
    await clock.advance(0.1)
    assert (await poll).status == 200


# other threads


def in_thread(call: Callable[[], object], calls: int = 1) -> None:
    """*calls* of it in another thread, while the event loop stands still."""

    def run() -> None:
        for _ in range(calls):
            call()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()


def left_by(call: Callable[[], object]) -> int:
    """The bytes that 20,000 calls of it in another thread leave."""
    tracemalloc.start()
    in_thread(call, 20_000)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return left


@pytest.mark.parametrize("linger", [0.0, 5.0])
def test_notify_threadsafe_without_a_running_loop_is_silent(linger: float) -> None:
    purgatory = Purgatory()
    polls = Polls(purgatory, Counters(), linger=linger)
    polls.polling.notify_threadsafe("n")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(purgatory.start())
    loop.run_until_complete(purgatory.aclose())
    polls.polling.notify_threadsafe("n")
    loop.run_until_complete(purgatory.start())
    clock_tasks = asyncio.all_tasks(loop)
    loop.close()  # and the purgatory is never told
    polls.polling.notify_threadsafe("n")
    for task in clock_tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("linger", [0.0, 5.0])
async def test_notify_threadsafe_of_one_key_is_merged(
    purgatory: Purgatory, source: Any, clock: ManualClock, linger: float
) -> None:
    polls = Polls(purgatory, source, linger=linger)
    poll = await polls.park()
    polls.source.values["n"] = 1
    loop = asyncio.get_running_loop()
    one = left_by(lambda: loop.call_soon_threadsafe(print))  # the control: a callback for each call
    assert left_by(lambda: polls.polling.notify_threadsafe("n")) < one / 20
    await settle()
    await clock.advance(linger)
    assert (await poll).body == b"n 0 1"
