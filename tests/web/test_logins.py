"""Polls and streams that belong to a login: it is awaited, it expires, it is revoked. Of states and of logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.streams import EventLog, MemoryLog
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import EventAnswer, EventRoute, LogPolling, LongPolling, LongPollRoute, Policy

from .eventsource import Client, Streams, parsed
from .polls import Counters, Database, check_empty, settle, until

ANN = ("user", "ann")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    async with MemoryLog(unknown_timeout=None) as log:
        yield log
        await settle()
        assert (log.purgatory.num_delayed, log.statistics().topics) == (0, 0)
        check_invariants(log.purgatory)


def user_of(scope: Any) -> list[Any]:
    return [("user", scope.headers["user"])]


async def parked(purgatory: Purgatory, count: int) -> None:
    await until(lambda: purgatory.num_delayed == count)


# revoked


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
async def test_cancel_for_key_ends_what_one_user_has_of_a_log(log: EventLog, route: Any) -> None:
    ann, bob = [Client(route(log, keys=user_of), user=user) for user in ("ann", "bob")]
    await parked(log.purgatory, 2)
    await until(lambda: route is LongPollRoute or (ann.retries and bob.retries))
    assert len(log.purgatory.cancel_for_key(ANN)) == 1
    await ann.ended()
    if route is EventRoute:
        assert (ann.status, ann.complete, len(ann.retries)) == (200, True, 2)
    else:
        assert (ann.status, ann.headers["refused"]) == (503, "closed")
    await log.append("n", "hello")
    await until(lambda: b"hello" in bob.body)
    assert b"hello" not in ann.body
    bob.hang_up()
    await bob.ended()


@pytest.fixture
async def polling(purgatory: Purgatory, source: Counters) -> LongPolling[str]:
    return LongPolling(purgatory, source)


@pytest.mark.parametrize("together", [False, True])
async def test_cancel_for_key_ends_polls_and_no_handlers(polling: LongPolling[str], together: bool) -> None:
    poll = asyncio.create_task(polling.answer("n", since="0", keys=[ANN]))
    await parked(polling.purgatory, 1)
    polling.purgatory.cancel_for_key(ANN)
    if together:
        poll.cancel()
    await asyncio.wait([poll])
    assert poll.cancelled() if together else poll.result().status == 503


# expired


@pytest.fixture(params=["log", "states", "database"])
async def subject(request: pytest.FixtureRequest, log: EventLog) -> AsyncIterator[tuple[Any, Callable[[], Any]]]:
    """What answers, by the real clock, and a function that changes the topic "n"."""
    if request.param == "log":
        yield LogPolling(log), lambda: log.append("n", "1")
        return
    async with Purgatory("real") as purgatory:
        streams = Streams(purgatory, Counters() if request.param == "states" else Database())
        yield streams.polling, streams.publish
        check_empty(streams.polling)


async def collected(events: EventAnswer) -> tuple[list[str], float]:
    """The data of *events*, and when they ended."""
    chunks = [chunk async for chunk in events]
    return [event.data for event in parsed(*chunks)], time.time()


async def test_stream_ends_when_its_login_does(subject: Any) -> None:
    polls, change = subject
    end = time.time() + 2.5
    reading = asyncio.create_task(collected(await polls.events("n", {}, since="0", until=end)))
    await asyncio.sleep(0.05)
    await change()
    data, ended = await reading
    assert len(data) >= 1
    assert end <= ended < end + 5.0
    await change()


@pytest.mark.parametrize("seconds", [0.0, 1.0, 1e6])
async def test_stream_of_an_expired_login_is_refused_as_the_login_would(subject: Any, seconds: float) -> None:
    polls, change = subject
    await change()
    events = await polls.events("n", {}, until=time.time() - seconds)
    assert (events.status, events.headers["cache-control"]) == (401, "no-store")
    assert [chunk async for chunk in events] == [b"the login has ended: until= is in the past"]


async def test_stream_of_an_expired_login_is_not_told_to_stop(log: EventLog) -> None:
    async with log.run("n") as run:
        last = await run.append("a")
    end = await log.last_id("n")
    polls = LogPolling(log)
    assert (await polls.events("n", {"last-event-id": end or ""})).status == 204  # the control
    for after in (last, end):
        assert (await polls.events("n", {}, since=after, until=time.time() - 1.0)).status == 401


async def test_state_whose_read_outlasts_the_login_is_not_delivered(purgatory: Purgatory, clock: ManualClock) -> None:
    database = Database()
    polling = LongPolling[str](purgatory, database)
    events = await polling.events("n", {}, until=time.time() + 10.0)
    assert len(parsed(await anext(events))) == 1
    database.gate.clear()
    database.values["n"] = 1
    polling.notify("n")
    reading = asyncio.create_task(collected(events))
    await clock.advance(11.0)
    assert database.under_way == 1
    database.gate.set()
    assert (await reading)[0] == []


async def test_event_that_comes_when_the_loop_stood_still_is_not_delivered(log: EventLog) -> None:
    await log.append("n", "in time")
    events = await LogPolling(log).events("n", {}, until=(end := time.time() + 2.5))
    reading = asyncio.create_task(collected(events))
    await asyncio.sleep(0.02)
    await log.append("n", "too late")
    time.sleep(max(0.0, end - time.time()))  # noqa: ASYNC251 as a blocked loop
    assert (await reading)[0] == ["in time"]


async def test_age_ends_a_stream_before_its_login(log: EventLog) -> None:
    polls = LogPolling(log, Policy(max_age=0.05))
    began = time.time()
    _, ended = await collected(await polls.events("n", {}, until=began + 60.0))
    assert ended < began + 30.0


# awaited


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
@pytest.mark.parametrize("is_log", [True, False])
async def test_functions_of_a_route_may_be_awaited(
    polling: LongPolling[str], purgatory: Purgatory, log: EventLog, route: Any, is_log: bool
) -> None:
    called: list[str] = []

    def function(name: str, found: Any) -> Any:
        async def ask(scope: Any) -> Any:
            await asyncio.sleep(0)
            called.append(name)
            return found

        return ask

    if is_log:
        await log.append("n", "1")
    functions: dict[str, Any] = {"resource": "n", "keys": ["n", ANN], "client": "c", "group": "ann"}
    functions |= {"since": await log.last_id("n") if is_log else "0"}
    functions |= {"until": time.time() + 60.0} if route is EventRoute else {"wait": "20"}
    endpoint = route(log if is_log else polling, **{name: function(name, found) for name, found in functions.items()})
    client = Client(endpoint, "somewhere-else")
    waiting = log.purgatory if is_log else purgatory
    await parked(waiting, 1)
    assert (called[0], set(called)) == ("resource", set(functions))
    (op,) = waiting.waiting(ANN)
    assert set(op.keys) == {"n", ANN}
    op.cancel()
    await client.ended()


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
async def test_login_that_is_refused_is_raised_and_nothing_else_called(log: EventLog, route: Any) -> None:
    async def resource(scope: Any) -> str:
        raise PermissionError("who are you?")

    async def group(scope: Any) -> str:
        raise AssertionError("it is called for a client that was refused")

    with pytest.raises(PermissionError):
        await Client(route(log, resource=resource, group=group)).ended()


# handlers of one's own


@pytest.mark.parametrize("by", ["query", "since", "header"])
async def test_handler_of_a_log_resumes_as_the_route_does(log: EventLog, by: str) -> None:
    """``after`` comes in the query of a page that is loaded again; a header is newer."""
    first, second, _ = [await log.append("n", data) for data in "abc"]
    await log.end("n")
    polls, since = LogPolling(log), second if by == "since" else None
    query = {"after": first if by == "header" else second} if by != "since" else {}
    headers = {"last-event-id": second, "if-none-match": f'"{second}"'} if by == "header" else {}
    events, _ = await collected(await polls.events("n", headers, query, since=since))
    assert events == ["c", "done"]
    assert b'"data":"c"' in (answer := await polls.answer("n", headers, query, since=since)).body
    assert b'"data":"b"' not in answer.body


async def test_handler_of_a_source_ignores_after(polling: LongPolling[str]) -> None:
    assert (await polling.answer("n", {}, {"after": "0"})).status == 200


async def test_handler_and_route_of_a_log_share_the_limits(log: EventLog) -> None:
    polls = LogPolling(log, Policy(max_per_group=1))
    events = await polls.events("n", {}, group="ann")
    refused = Client(EventRoute(polls, group=lambda scope: "ann"))
    await refused.ended()
    assert (events.status, refused.status, refused.headers["refused"]) == (200, 503, "group")
    await events.aclose()
