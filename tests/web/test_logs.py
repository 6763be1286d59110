"""Event streams and long polls of an event log, without a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from aiopurgatory.streams import EventLog, MemoryLog, Run, StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.web import EventRoute, LogPolling, LongPollRoute, Policy

from .eventsource import Client, Event
from .polls import until


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    async with MemoryLog(unknown_timeout=0.1, keep_events=32) as log:
        yield log
        assert (log.purgatory.num_delayed, log.statistics().topics) == (0, 0)


@pytest.fixture
async def run(log: EventLog) -> AsyncIterator[Run]:
    async with log.run("n") as run:
        yield run


either = pytest.mark.parametrize("route", [EventRoute, LongPollRoute])


async def ended(app: Any, *request: str, **headers: str) -> Client:
    """A client that has got its whole answer."""
    client = Client(app, *request, **headers)
    await client.ended()
    return client


def refusal(client: Client) -> tuple[int, str]:
    return client.status, client.headers["refused"]


# both


@either
async def test_topic_that_is_no_str_is_a_mistake_of_the_app(log: EventLog, route: Any) -> None:
    with pytest.raises(TypeError, match=r"resource must be a str, the topic of the log 'events', got 7; .* converter"):
        await ended(route(log, resource=lambda scope: 7))  # as of a path /runs/{run:int}


@either
@pytest.mark.parametrize("topic", ["nobody", "", "x" * 201, "a\0"])
@pytest.mark.parametrize("query", ["", "wait=0", "wait=0.02"])
async def test_unknown_topic_is_404_however_short_the_wait(log: EventLog, route: Any, topic: str, query: str) -> None:
    """The wait of a poll, and the stall of a stream."""
    policy = Policy(stall=0.095, heartbeat=0.01)
    assert (await ended(route(LogPolling(log, policy)), topic, query)).status == 404


@pytest.mark.parametrize(
    ("route", "policy", "bounds"),
    [(EventRoute, Policy(stall=0.02), 0.12), (LongPollRoute, Policy(), 0.0)],
)
async def test_silent_server_is_503_after_its_bounds(
    monkeypatch: pytest.MonkeyPatch, log: EventLog, run: Run, route: Any, policy: Policy, bounds: float
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(MemoryStore, "read", hang)
    began = asyncio.get_running_loop().time()
    assert refusal(await ended(route(LogPolling(log, policy)), "n", "wait=0")) == (503, "source")
    assert bounds <= asyncio.get_running_loop().time() - began < 9.0


@either
async def test_topic_that_cannot_be_read_is_503(
    monkeypatch: pytest.MonkeyPatch, log: EventLog, run: Run, route: Any
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("broken")

    await run.append("a")
    monkeypatch.setattr(MemoryStore, "read", fail)
    assert refusal(await ended(route(log))) == (503, "source")


@either
async def test_server_that_is_down_at_the_first_client_is_503_until_it_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, route: Callable[[EventLog], Any]
) -> None:
    async def down(*_: object) -> None:
        raise StoreDownError("cannot use Redis at 10.0.0.7")

    log = MemoryLog()
    app = route(log)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "open", down)
        for _ in range(2):
            client = await ended(app)
            assert refusal(client) == (503, "source")
            assert client.body == b"the source could not be read"  # not where the server is
    assert len([text for text in caplog.messages if "cannot use Redis at 10.0.0.7" in text]) == 1
    await log.append("n", "a")
    await log.end("n")
    assert (await ended(app)).status == 200
    await log.aclose()


# streams


async def test_stream_has_each_event_with_its_id_and_name(log: EventLog, run: Run) -> None:
    first = await run.append("a\nb", "token")
    client = Client(EventRoute(log))
    assert await client.got(1) == [Event("token", first, "a\nb")]
    second = await run.append("c")
    assert (await client.got(2))[1:] == [Event("message", second, "c")]
    await client.leave()


async def test_stream_ends_with_the_run_and_then_there_is_204(log: EventLog) -> None:
    async with log.run("n") as run:
        await run.append("a")
        client = Client(EventRoute(log))
        await client.got(1)
    await client.ended()
    assert (client.complete, client.events[-1].kind, client.data[-1]) == (True, "end", "done")
    again = await ended(EventRoute(log), last_event_id=client.ids[-1])
    assert (again.status, again.events, "content-type" in again.headers) == (204, [], False)


async def test_stream_that_begins_with_the_end_ends(log: EventLog) -> None:
    async with log.run("n") as run:
        last = await run.append("a")
    client = await ended(EventRoute(log), last_event_id=last)
    assert (client.status, [event.kind for event in client.events], client.complete) == (200, ["end"], True)


async def test_stream_says_gone_with_an_empty_id_then_what_is_kept(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number)) for number in range(50)]
    client = Client(EventRoute(log), last_event_id=ids[0])
    first, *rest = await client.got(31)
    assert (first.kind, first.id) == ("gone", "")
    assert [event.id for event in rest] == ids[-len(rest) :]
    assert 30 <= len(rest) <= 32
    await client.leave()


async def test_stream_of_a_late_topic_begins_however_short_the_stall() -> None:
    async with MemoryLog(unknown_timeout=9.0) as log:
        client = Client(EventRoute(LogPolling(log, Policy(stall=0.3))))
        await asyncio.sleep(1.2)  # FIRST_READ takes a second
        assert client.status == 0
        await log.append("n", "a")
        await client.got(1)
        assert client.data == ["a"]
        await client.leave()


async def test_stream_of_an_empty_topic_is_open_at_once() -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        client = Client(EventRoute(LogPolling(log, Policy(heartbeat=0.01))))
        await until(lambda: client.comments)
        assert (client.status, client.events) == (200, [])
        await log.append("n", "a")
        await client.got(1)
        assert client.data == ["a"]
        await client.leave()


# polls


async def test_poll_has_the_events_that_are_there(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number), "token") for number in range(2)]
    for query in ("", "wait=0"):
        poll = Client(LongPollRoute(log), query=query)
        assert await poll.polled() == [
            {"id": each, "name": "token", "data": str(number), "is_end": False} for number, each in enumerate(ids)
        ]
        assert poll.headers["etag"] == f'"{ids[-1]}"'


async def test_poll_whose_wait_is_over_has_nothing(log: EventLog, run: Run) -> None:
    first = await run.append("a")
    assert await Client(LongPollRoute(log), query=f"wait=0.01&after={first}").polled() == []
    by_header = await ended(LongPollRoute(log), "n", "wait=0.01", if_none_match=f'"{first}"')
    assert (by_header.status, by_header.headers["etag"]) == (304, f'"{first}"')


async def test_poll_after_the_end_is_204(log: EventLog) -> None:
    async with log.run("n") as run:
        await run.append("a")
    (_, end) = await Client(LongPollRoute(log)).polled()
    assert (end["name"], end["data"], end["is_end"]) == ("end", "done", True)
    last = await ended(LongPollRoute(log), "n", f"after={end['id']}")
    assert (last.status, last.body) == (204, b"")


async def test_poll_of_gone_events_is_410_and_says_where_to_go_on(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number)) for number in range(50)]
    poll = await ended(LongPollRoute(log), "n", f"after={ids[0]}")
    assert poll.status == 410
    after = poll.headers["etag"].strip('"')
    kept = await Client(LongPollRoute(log), query=f"after={after}").polled()
    assert [event["id"] for event in kept] == ids[18:]


def ends(log: EventLog) -> tuple[int, int, int, int]:
    found = log.purgatory.statistics()
    return found.completed, found.expired, found.cancelled, found.failed


@pytest.mark.parametrize("is_late", [True, False])
async def test_poll_that_waits_is_one_operation_even_if_its_topic_was_not_read_yet(is_late: bool) -> None:
    async with MemoryLog() as log:
        query = "" if is_late else f"after={await log.append('n', 'a')}"
        poll = Client(LongPollRoute(log), query=query)
        await until(lambda: log.purgatory.num_delayed == 1)
        await asyncio.sleep(0.05)  # by now, the topic was read, and had nothing new
        await log.append("n", "b")
        assert [event["data"] for event in await poll.polled()] == ["b"]
        assert ends(log) == (1, 0, 0, 0)


async def test_poll_whose_wait_is_over_is_one_operation_which_expires() -> None:
    async with MemoryLog() as log:
        first = await log.append("n", "a")
        route = LongPollRoute(LogPolling(log, Policy(jitter=0, margin=0)))
        async with asyncio.timeout(5.0):  # once its topic was read, it waits no longer than it was told
            assert await Client(route, query=f"wait=0.1&after={first}").polled() == []
        assert ends(log) == (0, 1, 0, 0)


async def test_poll_of_an_empty_topic_is_an_empty_list_at_its_deadline() -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        route = LongPollRoute(log)
        for query in ("wait=0", "wait=0.2"):
            assert await Client(route, query=query).polled() == []
        waiting = Client(route)
        await asyncio.sleep(0.05)
        first = await log.append("n", "a")
        assert [event["id"] for event in await waiting.polled()] == [first]


async def seconds_of_polls(topics: int) -> list[float]:
    """How long 100 polls of unknown topics wait."""

    async def poll(number: int) -> float:
        began = time.monotonic()
        assert (await ended(route, f"n{number % topics}")).status == 404
        return time.monotonic() - began

    async with MemoryLog(unknown_timeout=1.6) as log:
        route = LongPollRoute(log)
        return await asyncio.gather(*(poll(number) for number in range(100)))


@pytest.mark.parametrize("count", [1, 100])
async def test_polls_of_unknown_topics_do_not_end_together(count: int) -> None:
    for _ in range(3):  # a machine that stalls meanwhile lets them end together
        seconds = await seconds_of_polls(count)
        assert min(seconds) >= 1.6
        if max(seconds) - min(seconds) > 0.05 and len({int(each * 50) for each in seconds}) >= 3:
            return
    raise AssertionError(f"all end within {max(seconds) - min(seconds):.3f} s")


async def test_poll_of_events_that_are_at_hand_is_no_operation(log: EventLog, run: Run) -> None:
    await run.append("a")
    follower = log.follow("n")  # its topic stays in memory
    await anext(follower)
    before = ends(log)
    await Client(LongPollRoute(log)).polled()
    assert ends(log) == before
    await follower.aclose()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_poll_ends_by_expire_all_and_when_the_log_closes(log: EventLog, run: Run, is_closed: bool) -> None:
    first = await run.append("a")
    poll = Client(LongPollRoute(log), if_none_match=f'"{first}"')
    await until(lambda: log.purgatory.num_delayed == 1)
    await asyncio.sleep(0.05)
    if is_closed:
        log.purgatory.close()
        await poll.ended()
        assert refusal(poll) == (503, "closed")
    else:
        assert log.purgatory.expire_all() == 1
        await poll.ended()
        assert (poll.status, poll.headers["etag"]) == (304, f'"{first}"')


async def test_poll_behind_waits_while_the_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    is_down, read = False, MemoryStore.read

    async def read_if_up(store: MemoryStore, topic: str, after: int, rows: int, size: int) -> Any:
        if is_down:
            raise StoreDownError("down")
        return await read(store, topic, after, rows, size)

    monkeypatch.setattr(MemoryStore, "read", read_if_up)
    async with MemoryLog(window_bytes=0) as log:
        first = await log.append("n", "a")
        follower = log.follow("n")  # its topic stays in memory, but no event does
        await anext(follower)
        await log.append("n", "b")
        await anext(follower)
        is_down = True
        poll = Client(LongPollRoute(log), query=f"after={first}")
        await until(lambda: log.purgatory.num_delayed == 2)
        await asyncio.sleep(0.3)
        assert not poll.task.done()
        is_down = False
        assert [event["data"] for event in await poll.polled()] == ["b"]
        await follower.aclose()


# lifespans


@pytest.mark.parametrize(("use", "is_told"), [("mounted", True), ("routed", False), ("started", False)])
async def test_lifespan_that_no_server_runs_is_told_once(
    caplog: pytest.LogCaptureFixture, use: str, is_told: bool
) -> None:
    log = MemoryLog(name="runs")
    below = Starlette(lifespan=log.lifespan, routes=[Route("/{topic}", EventRoute(log))])
    app = Starlette(routes=[Mount("/", below)]) if use == "mounted" else below
    async with log if use == "started" else app.router.lifespan_context(app):
        for _ in range(2):
            await log.append("n", "one")
            await Client(app).leave()
    await log.aclose()
    told = ["log 'runs' was given to an app as its lifespan, and is used before that was run"] if is_told else []
    assert [text.partition(";")[0] for text in caplog.messages] == told
