"""How long polls wait and how they are answered, without a server: on a clock that stands still."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web.longpoll import LongPolling, Policy

from .polls import Counters, Polls, settle

# the policy


@pytest.mark.parametrize(
    ("asked", "applied"),
    [(None, 20.0), (5.0, 5.0), (0.1, 2.0), (99.0, 20.0), (math.inf, 20.0), (0.0, 0.0), (-3.0, 0.0), (-math.inf, 0.0)],
)
def test_wait_asked_for_is_clamped(asked: float | None, applied: float) -> None:
    assert Policy(min_wait=2.0, max_wait=20.0).applied(asked) == applied


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [
        ({}, 16.0, 17.0),
        ({"jitter": 0.0}, 16.0, 16.0),
        ({"jitter": 0.5, "margin": 0.5}, 15.5, 23.5),
        ({"jitter": 0.0, "margin": 100.0}, 8.0, 8.0),
    ],
)
def test_timeout_is_spread_as_promised(policy: dict[str, float], low: float, high: float) -> None:
    timeouts = [Policy(**policy).timeout(16.0) for _ in range(2000)]  # type: ignore[arg-type]
    assert low <= min(timeouts) <= max(timeouts) <= high
    assert max(timeouts) - min(timeouts) >= 0.95 * (high - low)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_wait", [0, -1, math.inf, math.nan]),
        ("min_wait", [-1, 31, math.nan]),
        ("jitter", [-0.1, 1.1, math.nan]),
        ("margin", [-1, math.inf, math.nan]),
        ("linger", [-1, math.inf, math.nan]),
        ("max_per_client", [0, -1]),
        ("retry_after", [(-1, 1), (2, 1)]),
    ],
)
def test_policy_out_of_range_names_the_argument(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
            Policy(**{name: value})


# answers


async def test_poll_that_has_nothing_is_answered_now(polls: Polls) -> None:
    answer = await polls.now(known=None)
    assert (answer.status, answer.body) == (200, b"n None 0")
    assert answer.headers == {
        "etag": '"0"',
        "cache-control": "no-store",
        "vary": "Prefer",
        "content-type": "application/json",
    }


async def test_poll_waits_for_news(polls: Polls, purgatory: Purgatory) -> None:
    poll, other = polls.start(), polls.start("other")
    await settle()
    assert not poll.done()
    assert polls.publish() == 1
    answer = await poll
    assert (answer.status, answer.body, answer.headers["etag"]) == (200, b"n 0 1", '"1"')
    assert purgatory.num_delayed == 1
    other.cancel()
    await settle()


@pytest.mark.parametrize("known", ['W/"0"', '"7", "0"', "0", "*"])
async def test_poll_with_any_form_of_the_version_waits(polls: Polls, known: str) -> None:
    poll = polls.start(known=known)
    await settle()
    assert not poll.done()
    polls.publish()
    assert (await poll).status == 200


async def test_poll_with_several_versions_gets_the_full_body(polls: Polls) -> None:
    assert (await polls.now(known='"7", "8"')).body == b"n None 0"


async def test_poll_without_news_ends_at_its_deadline(polls: Polls, clock: ManualClock) -> None:
    poll = polls.start(wait=8)
    await clock.advance(7.999)
    assert not poll.done()
    await clock.advance(0.001)
    answer = await poll
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers == {
        "etag": '"0"',
        "cache-control": "no-store",
        "vary": "Prefer",
        "preference-applied": "wait=8",
    }


async def test_poll_by_since_ends_with_204(polls: Polls, clock: ManualClock) -> None:
    poll = polls.start(known='"99"', since="0")
    await clock.advance(30.0)
    answer = await poll
    assert (answer.status, answer.headers["etag"]) == (204, '"0"')
    polls.publish()
    assert (await polls.now(since="0")).body == b"n 0 1"


async def test_poll_keeps_its_deadline_when_a_check_has_no_effect(polls: Polls, clock: ManualClock) -> None:
    poll = polls.start(wait=8)
    for _ in range(7):
        await clock.advance(1.0)
        polls.polling.notify("n")
    await clock.advance(1.0)
    assert (await poll).status == 304


async def test_news_that_came_with_the_deadline_win(polls: Polls, clock: ManualClock, counters: Counters) -> None:
    poll = polls.start(wait=8)
    await clock.advance(7.0)
    counters.values["n"] = 1  # and nobody is told
    await clock.advance(1.0)
    assert (await poll).status == 200


async def test_news_after_the_event_are_in_the_answer(polls: Polls, counters: Counters) -> None:
    poll = polls.start()
    await settle()
    polls.publish()
    counters.values["n"] += 1
    assert (await poll).headers["etag"] == '"2"'


async def test_wait_of_zero_is_answered_now_without_parking(polls: Polls, purgatory: Purgatory) -> None:
    answer = await polls.now(wait=0)
    assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=0")
    assert purgatory.statistics().expired == 0


@pytest.mark.parametrize(
    ("prefer", "query", "told"),
    [
        ("wait=5", {}, "wait=5"),
        ("wait=500", {}, "wait=30"),
        ("wait=5", {"wait": "0.25"}, "wait=0.25"),
        ("wait=5", {"wait": "10"}, "wait=10"),
        ("", {"wait": "inf"}, "wait=30"),
        ("", {"wait": "-1"}, "wait=0"),
        ("wait=soon", {}, None),
        ("", {}, None),
    ],
)
async def test_applied_wait_is_told_if_one_was_asked_for(
    polls: Polls, prefer: str, query: dict[str, str], told: str | None
) -> None:
    answer = await polls.polling.answer("n", {"prefer": prefer}, query)
    assert answer.headers.get("preference-applied") == told


@pytest.mark.parametrize("wait", ["", "nan", "soon", "1s", "\ud800", "9" * 70_000 + "x"])
async def test_query_wait_that_is_no_number_is_refused(polls: Polls, wait: str) -> None:
    answer = await polls.polling.answer("n", {}, {"wait": wait})
    assert answer.status == 400
    assert answer.body.startswith(b"wait must be a number of seconds, got ")
    assert len(answer.body) < 300


async def test_version_too_old_is_gone(polls: Polls, counters: Counters) -> None:
    for _ in range(2):  # an error is not kept
        answer = await polls.now(known='"old"')
        assert (answer.status, answer.body) == (410, b"old is gone")
        assert "etag" not in answer.headers
    assert len(counters.reads) == 2


async def test_source_gone_while_waiting_is_told(polls: Polls, counters: Counters) -> None:
    poll = polls.start()
    await settle()
    counters.values["n"] = -1
    polls.polling.notify("n")
    assert (await poll).body == b"n was compacted"


async def test_source_that_raises_is_heard(polls: Polls, counters: Counters) -> None:
    with pytest.raises(LookupError, match="no such counter"):
        await polls.now("broken")


async def test_version_that_would_break_the_header_is_refused(polls: Polls) -> None:
    with pytest.raises(ValueError, match=r"^version must be printable ASCII without spaces and quotes, got 'a b'$"):
        await polls.now("spaced", known=None)


# shared bodies


async def test_body_is_read_once_for_all_who_want_it(polls: Polls, counters: Counters) -> None:
    waiting = [polls.start() for _ in range(100)]
    await settle()
    assert polls.publish() == 100
    bodies = [(await poll).body for poll in waiting]
    assert (counters.reads, set(bodies)) == ([("n", "0", "1")], {b"n 0 1"})
    assert all(body is bodies[0] for body in bodies)
    assert (await polls.now(known='"9"')).body == b"n 9 1"


async def test_bodies_of_many_keys_are_not_kept_for_ever(polls: Polls) -> None:
    for i in range(1000):
        await polls.now(f"key-{i}", known=None)
    assert polls.polling._read.cache_info().currsize <= 128


# keys


async def test_poll_of_several_keys_ends_at_any_of_them(polls: Polls, counters: Counters, purgatory: Purgatory) -> None:
    poll = polls.start("sum", keys=["a", "b"])
    await settle()
    assert purgatory.watched == 2
    assert polls.polling.notify("a") == 0
    counters.values["sum"] = 1
    assert polls.polling.notify("b") == 1
    assert (await poll).body == b"sum 0 1"


# the end


async def test_closed_purgatory_answers_503(polls: Polls, purgatory: Purgatory) -> None:
    parked = [polls.start() for _ in range(10)]
    await settle()
    purgatory.close()
    parked.append(polls.start())
    for poll in parked:
        answer = await poll
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
    assert polls.publish() == 0


async def test_purgatory_not_started_is_an_error(counters: Counters) -> None:
    with pytest.raises(RuntimeError, match="not started"):
        await LongPolling(Purgatory(), counters).answer("n", {"if-none-match": '"0"'})


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("client", [None, "ann"])
async def test_poll_cancelled_at_any_turn_leaves_nothing(
    polls: Polls, purgatory: Purgatory, turns: int, client: str | None
) -> None:
    poll = polls.start(client=client)
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 2:
            polls.publish()
    poll.cancel()
    await settle()
    assert poll.cancelled() == (turns <= 3)
    assert (purgatory.num_delayed, purgatory.watched, polls.polling._clients) == (0, 0, {})
    check_invariants(purgatory)
