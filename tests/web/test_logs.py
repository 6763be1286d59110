"""Event streams and long polls of an event log, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.streams import EventLog, MemoryLog, Run, StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, Policy

from .eventsource import Client, Event
from .polls import Counters


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    async with MemoryLog(unknown_timeout=0.1, keep_events=32) as log:
        yield log
        assert (log.purgatory.num_delayed, log.statistics().topics) == (0, 0)


@pytest.fixture
async def run(log: EventLog) -> AsyncIterator[Run]:
    async with log.run("n") as run:
        yield run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 no event announces it
            await asyncio.sleep(0.001)


async def got(client: Client, count: int) -> list[Event]:
    await until(lambda: len(client.events) >= count)
    return client.events


async def left(client: Client) -> None:
    client.leave()
    await client.ended()


class Poll:
    """A long poll of *app*, and its answer."""

    def __init__(self, app: Any, query: str = "", topic: str = "n", **headers: str) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/{topic}",
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        self.status, self.body, self.headers = 0, b"", dict[bytes, bytes]()
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def events(self) -> list[dict[str, Any]]:
        await self.task
        assert self.status == 200, (self.status, self.body)
        found: list[dict[str, Any]] = json.loads(self.body)
        return found

    @property
    def etag(self) -> str:
        return self.headers[b"etag"].decode()

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message["body"]


# streams


async def test_stream_has_each_event_with_its_id_and_name(log: EventLog, run: Run) -> None:
    first = await run.append("a\nb", "token")
    client = Client(EventRoute(log))
    assert await got(client, 1) == [Event("token", first, "a\nb")]
    second = await run.append("c")
    assert (await got(client, 2))[1:] == [Event("message", second, "c")]
    await left(client)


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
async def test_topic_that_is_no_str_is_a_mistake_of_the_app(log: EventLog, route: Any) -> None:
    client = Client(route(log, resource=lambda scope: 7))  # as of a path /runs/{run:int}
    with pytest.raises(TypeError, match=r"resource must be a str, the topic of the log 'events', got 7; .* converter"):
        await client.ended()


async def test_stream_ends_with_the_run_and_then_there_is_204(log: EventLog) -> None:
    async with log.run("n") as run:
        await run.append("a")
        client = Client(EventRoute(log))
        await got(client, 1)
    await client.ended()
    assert client.complete
    assert client.events[-1].kind == "end"
    assert client.events[-1].data == "done"
    again = Client(EventRoute(log), last_event_id=client.events[-1].id)
    await again.ended()
    assert (again.status, again.events) == (204, [])
    assert "content-type" not in again.headers


async def test_stream_that_begins_with_the_end_ends(log: EventLog) -> None:
    async with log.run("n") as run:
        last = await run.append("a")
    client = Client(EventRoute(log), last_event_id=last)
    await client.ended()
    assert (client.status, [event.kind for event in client.events], client.complete) == (200, ["end"], True)


async def test_stream_resumes_after_the_last_id(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number)) for number in range(3)]
    client = Client(EventRoute(log), last_event_id=ids[1])
    assert await got(client, 1) == [Event("message", ids[2], "2")]
    await left(client)


async def test_stream_says_gone_with_an_empty_id_then_what_is_kept(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number)) for number in range(50)]
    client = Client(EventRoute(log), last_event_id=ids[0])
    first, *rest = await got(client, 31)
    assert (first.kind, first.id) == ("gone", "")
    assert [event.id for event in rest] == ids[-len(rest) :]
    assert 30 <= len(rest) <= 32
    await left(client)


async def test_stream_of_an_unknown_topic_waits_then_404(log: EventLog) -> None:
    client = Client(EventRoute(log), "nobody")
    await client.ended()
    assert client.status == 404


async def test_stream_of_an_unknown_topic_is_404_however_short_the_stall() -> None:
    async with MemoryLog(unknown_timeout=1.0) as log:
        client = Client(EventRoute(log, policy=Policy(stall=0.95, heartbeat=0.01)), "nobody")
        await client.ended()
    assert client.status == 404


async def test_stream_of_a_late_topic_begins_however_short_the_stall() -> None:
    async with MemoryLog(unknown_timeout=4.0) as log:
        client = Client(EventRoute(log, policy=Policy(stall=0.3)))
        await asyncio.sleep(0.4)
        await log.append("n", "a")
        assert [event.data for event in await got(client, 1)] == ["a"]
        await left(client)


async def test_stream_of_an_empty_topic_is_open_at_once() -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        client = Client(EventRoute(log, policy=Policy(heartbeat=0.01)))
        await until(lambda: client.comments)
        assert client.status == 200
        assert client.events == []
        await log.append("n", "a")
        assert [event.data for event in await got(client, 1)] == ["a"]
        await left(client)


async def test_stream_of_a_silent_server_is_503_after_its_bounds(
    monkeypatch: pytest.MonkeyPatch, log: EventLog, run: Run
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(MemoryStore, "read", hang)
    began = asyncio.get_running_loop().time()
    client = Client(EventRoute(log, policy=Policy(stall=0.02)))
    await client.ended()
    assert (client.status, client.headers["refused"]) == (503, "source")
    assert 0.12 <= asyncio.get_running_loop().time() - began < 3.0


async def test_stream_may_come_before_its_topic(log: EventLog) -> None:
    client = Client(EventRoute(log))
    await asyncio.sleep(0.01)
    assert client.status == 0
    await log.append("n", "a")
    assert [event.data for event in await got(client, 1)] == ["a"]
    await left(client)


@pytest.mark.parametrize("topic", ["", "x" * 201, "a\0"])
async def test_stream_of_what_can_be_no_topic_is_404(log: EventLog, topic: str) -> None:
    client = Client(EventRoute(log), topic)
    await client.ended()
    assert client.status == 404


async def test_stream_sends_heartbeats_between_events(log: EventLog, run: Run) -> None:
    await run.append("a")
    client = Client(EventRoute(log, policy=Policy(heartbeat=0.02)))
    await until(lambda: client.comments >= 2)
    await run.append("b")
    assert [event.data for event in await got(client, 2)] == ["a", "b"]
    await left(client)


async def test_check_that_wakes_a_stream_has_an_effect(log: EventLog, run: Run) -> None:
    await run.append("a")
    client = Client(EventRoute(log))
    await got(client, 1)
    before = log.purgatory.statistics()
    await run.append("b")
    await got(client, 2)
    after = log.purgatory.statistics()
    assert after.checks == before.checks + 1
    assert after.checks_without_effect == before.checks_without_effect
    await left(client)


async def test_stream_that_is_not_read_loses_its_place(log: EventLog, run: Run) -> None:
    client = Client(EventRoute(log, policy=Policy(stall=0.05)))
    client.reads.clear()
    await run.append("a")
    await client.ended()
    assert log.purgatory.statistics().expired == 1


async def test_stream_ends_when_the_log_closes(log: EventLog, run: Run) -> None:
    await run.append("a")
    client = Client(EventRoute(log))
    await got(client, 1)
    log.purgatory.close()
    await client.ended()
    assert client.complete
    assert len(client.retries) == 2
    refused = Client(EventRoute(log))
    await refused.ended()
    assert refused.status == 503


async def test_stream_is_refused_above_the_groups_limit(log: EventLog, run: Run) -> None:
    route = EventRoute(log, policy=Policy(max_per_group=1), group=lambda scope: "all")
    await run.append("a")
    client, refused = Client(route), Client(route)
    await refused.ended()
    assert (refused.status, refused.headers["refused"]) == (503, "group")
    await got(client, 1)
    await left(client)


async def test_stream_whose_topic_cannot_be_read_ends(monkeypatch: pytest.MonkeyPatch, log: EventLog, run: Run) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("broken")

    await run.append("a")
    monkeypatch.setattr(MemoryStore, "read", fail)
    client = Client(EventRoute(log))
    await client.ended()
    assert (client.status, client.headers["refused"]) == (503, "source")


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
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
            poll = Poll(app)
            await poll.task
            assert (poll.status, poll.headers[b"refused"]) == (503, b"source")
            assert poll.body == b"the events cannot be read now"  # not where the server is
    reasons = [record.message for record in caplog.records if "cannot use Redis at 10.0.0.7" in record.message]
    assert len(reasons) == 1, reasons
    await log.append("n", "a")
    await log.end("n")
    poll = Poll(app)
    await poll.task
    assert poll.status == 200
    await log.aclose()


async def test_route_of_a_polling_takes_no_policy(purgatory: Purgatory, counters: Counters) -> None:
    polling = LongPolling(purgatory, counters)
    with pytest.raises(ValueError, match="policy must be left out"):
        EventRoute(polling, policy=Policy())
    with pytest.raises(ValueError, match="policy must be left out"):
        LongPollRoute(polling, policy=Policy())


@pytest.mark.parametrize("route", [EventRoute, LongPollRoute])
def test_route_of_something_else_is_refused(route: Any) -> None:
    with pytest.raises(TypeError, match=r"^served must be a LongPolling, a LogPolling or an EventLog, got 7$"):
        route(7)


# polls


async def test_poll_has_the_events_that_are_there(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number), "token") for number in range(2)]
    poll = Poll(LongPollRoute(log))
    assert await poll.events() == [
        {"id": each, "name": "token", "data": str(number), "is_end": False} for number, each in enumerate(ids)
    ]
    assert poll.etag == f'"{ids[-1]}"'


async def test_poll_waits_for_the_next_event(log: EventLog, run: Run) -> None:
    first = await run.append("a")
    poll = Poll(LongPollRoute(log), f"after={first}")
    await until(lambda: log.purgatory.num_delayed == 1)
    await run.append("b")
    assert [event["data"] for event in await poll.events()] == ["b"]


async def test_poll_whose_wait_is_over_has_nothing(log: EventLog, run: Run) -> None:
    first = await run.append("a")
    by_query = Poll(LongPollRoute(log), f"wait=0.01&after={first}")
    assert await by_query.events() == []
    by_header = Poll(LongPollRoute(log), "wait=0.01", if_none_match=f'"{first}"')
    await by_header.task
    assert (by_header.status, by_header.etag) == (304, f'"{first}"')


async def test_poll_after_the_end_is_204(log: EventLog) -> None:
    async with log.run("n") as run:
        await run.append("a")
    (_, end) = await Poll(LongPollRoute(log)).events()
    assert (end["name"], end["data"], end["is_end"]) == ("end", "done", True)
    last = Poll(LongPollRoute(log), f"after={end['id']}")
    await last.task
    assert (last.status, last.body) == (204, b"")


async def test_poll_of_gone_events_is_410_and_says_where_to_go_on(log: EventLog, run: Run) -> None:
    ids = [await run.append(str(number)) for number in range(50)]
    poll = Poll(LongPollRoute(log), f"after={ids[0]}")
    await poll.task
    assert poll.status == 410
    after = poll.etag.strip('"')
    assert [event["id"] for event in await Poll(LongPollRoute(log), f"after={after}").events()] == ids[18:]


async def test_poll_of_an_unknown_topic_is_404(log: EventLog) -> None:
    poll = Poll(LongPollRoute(log), topic="nobody")
    await poll.task
    assert poll.status == 404


@pytest.mark.parametrize("wait", ["0", "0.02"])
async def test_poll_of_an_unknown_topic_is_404_however_short_its_wait(log: EventLog, wait: str) -> None:
    poll = Poll(LongPollRoute(log), f"wait={wait}", topic="nobody")
    await poll.task
    assert poll.status == 404


async def test_poll_that_does_not_wait_has_the_events_that_are_there(log: EventLog, run: Run) -> None:
    await run.append("a")
    assert [event["data"] for event in await Poll(LongPollRoute(log), "wait=0").events()] == ["a"]


async def test_poll_of_a_silent_server_is_503(monkeypatch: pytest.MonkeyPatch, log: EventLog, run: Run) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(MemoryStore, "read", hang)
    poll = Poll(LongPollRoute(log), "wait=0")
    await poll.task
    assert (poll.status, poll.headers[b"refused"]) == (503, b"source")


class Ends(Observer):
    """The outcomes of ended operations, and the seconds that they waited."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.waits: list[float] = []

    def ended(self, purgatory: Purgatory, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.outcomes.append(outcome)
        self.waits.append(waited)


async def test_poll_that_waits_is_one_operation_even_if_its_topic_was_not_read_yet() -> None:
    ends = Ends()
    async with MemoryLog(observers=[ends]) as log:
        first = await log.append("n", "a")
        poll = Poll(LongPollRoute(log), f"after={first}")
        await asyncio.sleep(0.05)  # by now, the topic was read, and had nothing new
        await log.append("n", "b")
        assert [event["data"] for event in await poll.events()] == ["b"]
    assert ends.outcomes == [Outcome.COMPLETED]
    assert ends.waits[0] >= 0.03


async def test_poll_whose_wait_is_over_is_one_operation_which_expires() -> None:
    ends = Ends()
    async with MemoryLog(observers=[ends]) as log:
        first = await log.append("n", "a")
        assert (
            await Poll(LongPollRoute(log, policy=Policy(jitter=0, margin=0)), f"wait=0.1&after={first}").events() == []
        )
    assert ends.outcomes == [Outcome.EXPIRED]
    assert 0.1 <= ends.waits[0] < 0.5


async def test_poll_of_an_empty_topic_is_an_empty_list_at_its_deadline() -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        route = LongPollRoute(log)
        assert await Poll(route, "wait=0").events() == []
        assert await Poll(route, "wait=0.2").events() == []
        waiting = Poll(route)
        await asyncio.sleep(0.05)
        first = await log.append("n", "a")
        assert [event["id"] for event in await waiting.events()] == [first]


@pytest.mark.parametrize("count", [1, 100])
async def test_polls_of_unknown_topics_do_not_end_together(count: int) -> None:
    loop = asyncio.get_running_loop()
    seconds = []

    async def poll(route: LongPollRoute, number: int) -> int:
        began = loop.time()
        poll = Poll(route, topic=f"n{number % count}")
        await poll.task
        seconds.append(loop.time() - began)
        return poll.status

    async with MemoryLog(unknown_timeout=1.6) as log:
        route = LongPollRoute(log)
        assert set(await asyncio.gather(*(poll(route, number) for number in range(100)))) == {404}
    assert min(seconds) >= 1.6
    assert max(seconds) - min(seconds) > 0.05
    assert len({int(each * 50) for each in seconds}) >= 3


async def test_poll_of_a_late_topic_is_one_operation() -> None:
    ends = Ends()
    async with MemoryLog(observers=[ends]) as log:
        poll = Poll(LongPollRoute(log))
        await asyncio.sleep(0.05)
        await log.append("n", "a")
        assert [event["data"] for event in await poll.events()] == ["a"]
    assert ends.outcomes == [Outcome.COMPLETED]


async def test_poll_of_events_that_are_at_hand_is_no_operation(log: EventLog, run: Run) -> None:
    await run.append("a")
    follower = log.follow("n")  # its topic stays in memory
    await anext(follower)
    before = log.purgatory.statistics()
    await Poll(LongPollRoute(log)).events()
    after = log.purgatory.statistics()
    assert (after.completed, after.expired) == (before.completed, before.expired)
    await follower.aclose()


async def test_poll_ends_by_expire_all_as_if_its_wait_was_over(log: EventLog, run: Run) -> None:
    first = await run.append("a")
    poll = Poll(LongPollRoute(log), if_none_match=f'"{first}"')
    await until(lambda: log.purgatory.num_delayed == 1)
    await asyncio.sleep(0.05)
    assert log.purgatory.expire_all() == 1
    await poll.task
    assert (poll.status, poll.etag) == (304, f'"{first}"')


async def test_poll_of_a_log_that_closes_is_503(log: EventLog, run: Run) -> None:
    first = await run.append("a")
    poll = Poll(LongPollRoute(log), f"after={first}")
    await until(lambda: log.purgatory.num_delayed == 1)
    log.purgatory.close()
    await poll.task
    assert (poll.status, poll.headers[b"refused"]) == (503, b"closed")


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
        poll = Poll(LongPollRoute(log), f"after={first}")
        await until(lambda: log.purgatory.num_delayed == 2)
        await asyncio.sleep(0.3)
        assert not poll.task.done()
        is_down = False
        assert [event["data"] for event in await poll.events()] == ["b"]
        await follower.aclose()


# lifespans


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_lifespan_that_no_server_runs_is_told_once(caplog: pytest.LogCaptureFixture, is_mounted: bool) -> None:
    log = MemoryLog(name="runs")
    below = Starlette(lifespan=log.lifespan, routes=[Route("/{topic}", EventRoute(log))])
    app = Starlette(routes=[Mount("/", below)]) if is_mounted else below
    async with app.router.lifespan_context(app):
        for _ in range(2):
            await log.append("n", "one")
            await left(Client(app))
    await log.aclose()
    told = ["log 'runs' was given to an app as its lifespan, and is used before that was run"] if is_mounted else []
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == told


async def test_log_that_is_started_otherwise_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    Starlette(lifespan=log.lifespan)
    async with log:
        await log.append("n", "one")
    assert caplog.records == []
