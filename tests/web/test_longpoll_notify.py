"""The polls that notify() answers, and when: after the linger, and from other threads."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .polls import Counters, Polls, settle

LINGER = 5.0


@pytest.fixture
def lingering(purgatory: Purgatory, counters: Counters) -> Polls:
    return Polls(purgatory, counters, linger=LINGER)


@pytest.fixture(params=[0.0, LINGER])
def linger(request: pytest.FixtureRequest) -> float:
    found: float = request.param
    return found


async def test_linger_batches_what_happens_after_the_first_event(
    purgatory: Purgatory, counters: Counters, clock: ManualClock
) -> None:
    polls = Polls(purgatory, counters, linger=0.5)
    poll = polls.start()
    await settle()
    for _ in range(3):
        polls.publish()
    await clock.advance(0.499)
    assert not poll.done()
    polls.publish()
    await clock.advance(0.001)
    assert (await poll).headers["etag"] == '"4"'
    assert purgatory.num_delayed == 0
    second = polls.start(known='"4"')
    await settle()
    polls.publish()
    await clock.advance(0.5)
    assert (await second).status == 200


async def test_linger_counts_against_the_deadline(lingering: Polls, purgatory: Purgatory, clock: ManualClock) -> None:
    poll = lingering.start(wait=3)
    await clock.advance(2.0)
    lingering.publish()
    await clock.advance(1.0)
    assert (await poll).status == 200
    await clock.advance(5.0)
    assert purgatory.num_delayed == 0


async def test_linger_with_nobody_there_parks_nothing(lingering: Polls, purgatory: Purgatory) -> None:
    lingering.publish()
    assert purgatory.num_delayed == 0
    assert (await lingering.now()).status == 200


async def test_linger_parks_nothing_for_what_nobody_polls(clock: ManualClock, counters: Counters) -> None:
    async with Purgatory(clock=clock, max_pending=2) as purgatory:
        polls = Polls(purgatory, counters, linger=5.0)
        poll = polls.start()
        await settle()
        for number in range(10):
            polls.publish(f"other-{number}")
        assert purgatory.num_delayed == 1
        polls.publish()  # this one lingers
        assert not poll.done()
        await clock.advance(5.0)
        assert (await poll).status == 200
        polls.publish()
        assert purgatory.num_delayed == 0


async def test_linger_is_for_each_key_of_a_poll(lingering: Polls, purgatory: Purgatory, clock: ManualClock) -> None:
    both = [lingering.start(keys=["n", "m"]), lingering.start(keys=["m"], client="ann")]
    await settle()
    lingering.counters.values["n"] = 1
    lingering.polling.notify("m")
    await clock.advance(4.0)
    assert not any(poll.done() for poll in both)
    await clock.advance(1.0)
    assert [(await poll).status for poll in both] == [200, 200]
    assert (purgatory.num_delayed, lingering.polling.statistics().clients) == (0, 0)


async def test_linger_in_a_full_purgatory_answers_at_once(clock: ManualClock, counters: Counters) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        polls = Polls(purgatory, counters, linger=5.0)
        for known in ('"0"', '"1"'):
            poll = polls.start(known=known)
            await settle()
            polls.publish()
            assert (await poll).status == 200


@pytest.mark.parametrize("is_told", [True, False])
async def test_linger_cut_short_by_closing_is_forgotten(lingering: Polls, purgatory: Purgatory, is_told: bool) -> None:
    poll = lingering.start()
    await settle()
    lingering.publish()
    purgatory.close()
    if is_told:
        await settle()
    lingering.publish()
    assert (await poll).status == 503


async def test_linger_works_after_the_purgatory_is_started_again(
    lingering: Polls, purgatory: Purgatory, clock: ManualClock
) -> None:
    poll = lingering.start()
    await settle()
    lingering.publish()
    await purgatory.aclose()
    assert (await poll).status == 503
    await purgatory.start()
    again = lingering.start(known='"1"')
    await settle()
    lingering.publish()
    await clock.advance(4.9)
    assert not again.done()
    await clock.advance(0.1)
    assert (await again).status == 200


# merged, and in slices


async def test_notify_of_one_key_is_merged(polls: Polls, purgatory: Purgatory) -> None:
    poll = polls.start()
    await settle()
    for _ in range(10):
        polls.publish()
    assert purgatory.statistics().checks == 0  # none of them yet
    assert (await poll).headers["etag"] == '"10"'
    assert purgatory.statistics().checks == 1


@pytest.mark.parametrize("budget", [0.0005, 1000.0])
async def test_notify_answers_in_slices_of_the_turn_budget(counters: Counters, budget: float) -> None:
    async with Purgatory(clock=ManualClock(), turn_budget=budget) as purgatory:
        polls = Polls(purgatory, counters)
        parked = [polls.start() for _ in range(3000)]
        while purgatory.num_delayed < len(parked):
            await settle()
        polls.publish()
        left = []
        while purgatory.num_delayed:
            await asyncio.sleep(0)
            left.append(purgatory.num_delayed)
        assert (len(set(left)) > 4) == (budget < 1)  # the control: with a budget without a bound, all at once
        assert {(await poll).status for poll in parked} == {200}


async def test_notify_with_a_limit_answers_the_oldest_polls(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, linger: float
) -> None:
    polls = Polls(purgatory, counters, linger=linger)
    parked = [polls.start() for _ in range(6)]
    await settle()
    counters.values["n"] = 1
    polls.polling.notify("n", limit=1)
    polls.polling.notify("n", 2)  # the limits of merged calls add up
    await clock.advance(linger)
    await settle()
    assert [poll.done() for poll in parked] == [True] * 3 + [False] * 3
    polls.polling.notify("n", 1)
    polls.polling.notify("n")
    await clock.advance(linger)
    assert [(await poll).status for poll in parked] == [200] * 6


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (True, TypeError), (1.0, TypeError)])
async def test_notify_with_a_bad_limit_is_refused(
    purgatory: Purgatory, counters: Counters, linger: float, parked: bool, limit: int, error: type[Exception]
) -> None:
    polls = Polls(purgatory, counters, linger=linger)
    poll = polls.start() if parked else None
    await settle()
    with pytest.raises(error, match=r"^limit must be an int >= 1, or None, got "):
        polls.polling.notify("n", limit)
    if poll is not None:
        poll.cancel()
        await settle()


# other threads


def in_thread(call: Callable[[], object]) -> list[object]:
    """The result or exception of *call* in another thread, while the event loop stood still."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as exc:
            found.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


@pytest.mark.parametrize("lingering", [False, True])
async def test_notify_in_another_thread_is_refused(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, linger: float, lingering: bool
) -> None:
    polls = Polls(purgatory, counters, linger=linger)
    (nobody,) = in_thread(lambda: polls.polling.notify("n"))
    poll = polls.start()
    await settle()
    if lingering and linger:
        polls.publish()
    (somebody,) = in_thread(lambda: polls.polling.notify("n"))
    for refusal in (nobody, somebody):
        assert isinstance(refusal, RuntimeError)
        assert str(refusal).endswith("from here, use notify_threadsafe(key)")
    assert not poll.done()
    polls.publish()
    await clock.advance(linger)
    assert (await poll).status == 200


async def test_notify_threadsafe_answers_every_poll(polls: Polls) -> None:
    parked = [polls.start() for _ in range(3)]
    await settle()
    polls.counters.values["n"] = 1
    assert in_thread(lambda: polls.polling.notify_threadsafe("n")) == [None]
    assert not any(poll.done() for poll in parked)
    async with asyncio.timeout(5):
        assert {(await poll).body for poll in parked} == {b"n 0 1"}


async def test_notify_threadsafe_honours_the_linger(lingering: Polls, purgatory: Purgatory, clock: ManualClock) -> None:
    poll = lingering.start()
    await settle()
    for _ in range(3):
        lingering.counters.values["n"] = lingering.counters.values.get("n", 0) + 1
        in_thread(lambda: lingering.polling.notify_threadsafe("n"))
    await asyncio.sleep(0.01)  # the calls come by the loop's wake-up descriptor
    assert purgatory.num_delayed == 2  # the poll and one linger
    await clock.advance(4.9)
    assert not poll.done()
    lingering.counters.values["n"] += 1
    await clock.advance(0.1)
    assert (await poll).headers["etag"] == '"4"'


async def test_notify_threadsafe_in_the_loop_works_too(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, linger: float
) -> None:
    polls = Polls(purgatory, counters, linger=linger)
    poll = polls.start()
    await settle()
    counters.values["n"] = 1
    polls.polling.notify_threadsafe("n")
    await asyncio.sleep(0.01)
    await clock.advance(linger)
    assert (await poll).status == 200


def test_notify_threadsafe_without_a_running_loop_is_silent(counters: Counters, linger: float) -> None:
    purgatory = Purgatory()
    polls = Polls(purgatory, counters, linger=linger)
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


# calls from threads, merged


class Blocked:
    """Keeps the loop from turning while a thread calls: the work that the calls leave for it piles up."""

    def __init__(self, call: Callable[[int], object], calls: int) -> None:
        def run() -> None:
            for number in range(calls):
                call(number)

        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.bytes = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()


async def test_notify_threadsafe_of_one_key_is_merged(
    purgatory: Purgatory, counters: Counters, clock: ManualClock, linger: float
) -> None:
    polls = Polls(purgatory, counters, linger=linger)
    poll = polls.start()
    await settle()
    counters.values["n"] = 1
    loop = asyncio.get_running_loop()
    one = Blocked(lambda _: loop.call_soon_threadsafe(print), 20_000)  # the control: a callback for each call
    merged = Blocked(lambda _: polls.polling.notify_threadsafe("n"), 20_000)
    assert merged.bytes < one.bytes / 20
    await asyncio.sleep(0.01)
    await clock.advance(linger)
    assert (await poll).body == b"n 0 1"


async def test_notify_threadsafe_of_many_keys_lets_the_loop_turn(counters: Counters, linger: float) -> None:
    clock = ManualClock()
    async with Purgatory(clock=clock, turn_budget=0.001) as purgatory:
        polls = Polls(purgatory, counters, linger=linger)
        keys = [f"n {number}" for number in range(3000)]
        parked = [polls.start(key) for key in keys]
        await settle()
        while purgatory.num_delayed < len(keys):
            await settle()
        counters.values |= dict.fromkeys(keys, 1)
        Blocked(lambda number: polls.polling.notify_threadsafe(keys[number]), len(keys))
        turns = 0
        while (purgatory.num_delayed < 2 * len(keys)) if linger else purgatory.num_delayed:
            await asyncio.sleep(0)
            turns += 1
            assert turns < 100_000
        assert turns > 3  # all at once would be one turn or two
        await clock.advance(linger)
        assert {(await poll).status for poll in parked} == {200}


# no missed trigger


@pytest.mark.parametrize("every_key", [False, True])
@pytest.mark.parametrize("notified", [False, True])
async def test_deadline_within_the_linger_misses_no_trigger(
    lingering: Polls, purgatory: Purgatory, clock: ManualClock, notified: bool, every_key: bool
) -> None:
    poll = lingering.start(wait=2)
    await settle()
    lingering.counters.values["n"] = 1
    if notified:
        lingering.polling.notify_all() if every_key else lingering.polling.notify("n")
    await clock.advance(2.0)
    assert (await poll).status == 200
    assert purgatory.statistics().missed_triggers == (0 if notified else 1)
    await clock.advance(5.0)
    late = lingering.start(wait=2, known='"1"')  # the linger is over
    await settle()
    lingering.counters.values["n"] = 2
    await clock.advance(2.0)
    assert (await late).status == 200
    assert purgatory.statistics().missed_triggers == (1 if notified else 2)
