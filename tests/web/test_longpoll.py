"""How long polls wait and how they are answered, without a server: on a clock that stands still."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import Answer, LongPolling, Policy

from .polls import Counters, Database, Given, Polls, check_empty, settle

# the policy


@pytest.mark.parametrize(
    ("asked", "applied"),
    [(None, 20.0), (5.0, 5.0), (0.1, 0.1), (99.0, 20.0), (math.inf, 20.0), (0.0, 0.0)],
)
def test_wait_asked_for_is_an_upper_bound(asked: float | None, applied: float) -> None:
    assert Policy(max_wait=20.0).applied(asked) == applied


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [
        ({}, 14.8, 15.8),
        ({"jitter": 0.0, "margin": 0.0}, 16.0, 16.0),
        ({"jitter": 0.5, "margin": 0.5}, 7.5, 15.5),
        ({"jitter": 0.0, "margin": 100.0}, 8.0, 8.0),
        ({"jitter": 1.0, "margin": 100.0}, 0.0, 8.0),
    ],
)
def test_timeout_is_spread_as_promised(policy: dict[str, float], low: float, high: float) -> None:
    timeouts = sorted(Policy(**policy).timeout(16.0) for _ in range(2000))  # type: ignore[arg-type]
    assert low <= timeouts[0] <= timeouts[-1] <= high
    assert timeouts[-1] - timeouts[0] >= 0.95 * (high - low)
    if low > 0:  # not cut off: evenly
        for share in (0.25, 0.5, 0.75):
            assert timeouts[int(share * 2000)] == pytest.approx(low + share * (high - low), abs=0.1 * (high - low))


#: Values out of range, and of another type.
BAD: dict[str, tuple[list[Any], list[Any]]] = {
    "max_wait": ([0, -1, math.inf, math.nan], ["5"]),
    "jitter": ([-0.1, 1.1, math.nan], ["0.1", True]),
    "margin": ([-1, math.inf, math.nan], [None]),
    "max_per_group": ([0, -1], [1.5, True]),
    "retry_after": ([(-1, 1), (2, 1), 3, (1, 2, 3)], [(0.5, 2.5)]),
    "heartbeat": ([0, -1, math.nan], ["5"]),
    "stall": ([0, -1, math.nan], ["5"]),
    "max_age": ([0, -1, math.nan], ["5"]),
}


@pytest.mark.parametrize("name", BAD)
def test_policy_of_a_bad_value_names_the_argument(name: str) -> None:
    for error, values in zip((ValueError, TypeError), BAD[name], strict=True):
        for value in values:
            with pytest.raises(error, match=f"^{name} must be .*, got "):
                Policy(**{name: value})


# answers

HEADERS = {"cache-control": "no-store", "vary": "Prefer"}


@pytest.mark.parametrize(
    ("known", "since", "body"),
    [
        (None, None, b"n None 2"),
        ('W/"*"', None, b"n * 2"),
        (None, "*", b"n * 2"),
        ('"1-gzip"', None, b"n 1 2"),
        ('"7", "8"', None, b"n None 2"),
    ],
)
async def test_poll_that_has_another_version_is_answered_now(
    polls: Polls, known: str | None, since: str | None, body: bytes
) -> None:
    polls.source.values["n"] = 2
    answer = await polls.now(known=known, since=since)
    assert (answer.status, answer.body) == (200, body)
    assert answer.headers == HEADERS | {"etag": '"2"', "content-type": "application/json"}


@pytest.mark.parametrize("known", ['W/"0"', '"7", "0"', "0", "*", '"0-gzip"', '"0;gzip"', '"0--gzip"', 'W/"0-br"'])
async def test_poll_with_any_form_of_the_version_waits(polls: Polls, known: str) -> None:
    poll = await polls.park(known=known)
    assert not poll.done()
    polls.publish()
    assert (await poll).status == 200


async def test_poll_without_news_ends_at_its_deadline(polls: Polls, clock: ManualClock) -> None:
    poll = polls.start(wait=8, client="ann")
    await clock.advance(7.999)
    assert not poll.done()
    await clock.advance(0.001)
    answer = await poll
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers == HEADERS | {"etag": '"0"', "preference-applied": "wait=8"}
    check_empty(polls.polling)


async def test_poll_by_since_ends_with_204(polls: Polls, clock: ManualClock) -> None:
    poll = polls.start(known='"99"', since="0")
    await clock.advance(30.0)
    answer = await poll
    assert (answer.status, answer.headers["etag"]) == (204, '"0"')
    polls.publish()
    assert (await polls.now(since="0")).body == b"n 0 1"


async def test_wait_of_zero_is_answered_now_without_parking(polls: Polls, purgatory: Purgatory) -> None:
    answer = await polls.now(wait=0)
    assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=0")
    assert purgatory.statistics().expired == 0


@pytest.mark.parametrize(
    ("prefer", "query", "told"),
    [
        ("wait=5", {}, "wait=5"),
        ("wait=500", {}, "wait=30"),
        ("wait=5", {"wait": "10"}, None),
        ("", {"wait": "10"}, None),
        ("wait=soon", {}, None),
        ("", {}, None),
    ],
)
async def test_applied_wait_is_told_if_it_was_asked_for(
    polls: Polls, prefer: str, query: dict[str, str], told: str | None
) -> None:
    answer = await polls.polling.answer("n", {"prefer": prefer}, query)
    assert answer.headers.get("preference-applied") == told


@pytest.mark.parametrize("wait", ["", "nan", "-1", "1_0", "\u0661", "1x", "1s2", " 1s", "\ud800", "9" * 70_000 + "x"])
async def test_query_wait_that_is_no_number_is_refused(polls: Polls, wait: str) -> None:
    answer = await polls.polling.answer("n", {}, {"wait": wait})
    assert answer.status == 400
    assert answer.body.startswith(b"wait must be a number of seconds >= 0, or a duration such as 10s, got ")
    assert len(answer.body) < 300


async def test_version_too_old_is_gone(polls: Polls) -> None:
    for _ in range(2):  # an error is not kept
        answer = await polls.now(known='"old"')
        assert (answer.status, answer.body) == (410, b"old is gone")
        assert "etag" not in answer.headers
    assert len(polls.source.reads) == 2


# shared bodies


async def test_body_is_read_once_for_all_who_want_it(polls: Polls) -> None:
    waiting = [polls.start() for _ in range(100)]
    await settle()
    polls.publish()
    bodies = [(await poll).body for poll in waiting]
    assert (polls.source.reads, set(bodies)) == ([("n", "0", "1")], {b"n 0 1"})
    assert all(body is bodies[0] for body in bodies)
    assert (await polls.now(known='"9"')).body == b"n 9 1"


async def test_bodies_kept_are_bounded_by_their_bytes(purgatory: Purgatory) -> None:
    polling = LongPolling[int](purgatory, Given(body=bytes(100_000)), max_body_bytes=1_000_000)
    for i in range(100):
        await polling.answer(i, {})
    kept = polling.statistics()
    assert 5 <= kept.bodies <= 10
    assert 500_000 <= kept.body_bytes <= 1_000_000
    await LongPolling[int](purgatory, Given(), max_body_bytes=0).answer(1, {})


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("resource", "since", "bodies"),
    [("n", LONG, 0), (LONG, None, 0), (("tenant", LONG), None, 0), (("tenant", "n"), None, 1)],
    ids=["since", "resource", "part of a resource", "control"],
)
async def test_body_under_a_long_name_is_not_kept(
    purgatory: Purgatory, resource: Any, since: str | None, bodies: int
) -> None:
    polling = LongPolling[Any](purgatory, Given())
    assert (await polling.answer(resource, {}, since=since)).status == 200
    assert polling.statistics().bodies == bodies


# keys


@pytest.mark.parametrize("client", [None, "ann"])
async def test_keys_that_are_one_text_are_refused(purgatory: Purgatory, source: Any, client: str | None) -> None:
    polls = Polls(purgatory, source)
    with pytest.raises(TypeError, match="keys must be"):
        await polls.now(keys="abc", client=client)
    check_empty(polls.polling)


# the end


def test_poll_in_the_next_loop_finds_no_places_taken(source: Any) -> None:
    polls = Polls(Purgatory(), source, max_per_group=1)
    loop = asyncio.new_event_loop()

    async def park() -> asyncio.Task[Answer]:
        poll = polls.start(client="ann", group="tenant")
        await settle()
        return poll

    parked = loop.run_until_complete(park())
    loop.close()  # and its tasks are never cancelled
    again = polls.now(client="bob", group="tenant", query={"wait": "0.05"})
    assert asyncio.run(again).status == 304
    assert not parked.done()


@pytest.mark.parametrize("turns", range(14))
@pytest.mark.parametrize(("kind", "news"), [(Counters, 2), (Database, 5)])
async def test_poll_cancelled_at_any_turn_leaves_nothing(
    purgatory: Purgatory, kind: Any, turns: int, news: int
) -> None:
    polls = Polls(purgatory, kind())
    poll = polls.start(client="ann", group="all")
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == news:
            polls.publish()
    poll.cancel()
    await settle()
    assert kind is Database or poll.cancelled() == (turns <= 4)
    assert getattr(polls.source, "under_way", 0) == 0
    check_empty(polls.polling)


# limits on the polls of one client, and of all


async def test_newest_poll_of_a_client_ends_its_older_one(polls: Polls, purgatory: Purgatory) -> None:
    oldest = await polls.park(client="ann")
    elsewhere, somebody = await polls.park("other", client="ann"), await polls.park(client="bob")
    older = await polls.park(client="ann")
    newer = polls.start(client="ann")
    assert [(await poll).status for poll in (oldest, older)] == [409, 409]
    assert purgatory.num_delayed == 3
    polls.publish()
    assert [(await poll).status for poll in (newer, somebody)] == [200, 200]
    polls.publish("other")
    assert (await elsewhere).status == 200
    assert polls.polling.statistics().clients == 0


async def test_group_with_too_many_polls_is_refused(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=2, retry_after=(4, 6))
    parked = [await polls.park("a", group="tenant") for _ in range(2)]
    refused = await polls.now("c", group="tenant")
    assert (refused.status, refused.body) == (503, b"this group already has 2 polls waiting (max_per_group=2)")
    assert 4 <= int(refused.headers["retry-after"]) <= 6
    assert (await polls.now("c", group="tenant", known=None)).status == 200  # which need not wait
    parked += [await polls.park("a", group="other"), await polls.park("a")]
    polls.publish("a")
    assert [(await poll).status for poll in parked] == [200] * 4
    assert polls.polling.statistics().groups == 0


async def test_poll_that_replaces_one_of_its_group_needs_no_place_more(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=1)
    older = await polls.park(client="ann", group="tenant")
    newer = polls.start(client="ann", group="tenant")
    assert (await older).status == 409
    assert (await polls.now("other", client="ann", group="tenant")).status == 503
    assert (await polls.now(client="bob", group="tenant")).status == 503
    polls.publish()
    assert (await newer).status == 200


async def test_poll_that_replaces_one_of_another_group_needs_a_place(purgatory: Purgatory, source: Any) -> None:
    polls = Polls(purgatory, source, max_per_group=1)
    parked = [await polls.park(client="ann", group="a"), await polls.park(client="bob", group="b")]
    assert (await polls.now(client="ann", group="b")).status == 503
    assert not any(poll.done() for poll in parked)
    polls.publish()
    assert [(await poll).status for poll in parked] == [200, 200]
