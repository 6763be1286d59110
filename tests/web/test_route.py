"""The route against servers made by hand: each order in which things can happen."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import EventRoute, LongPollRoute
from aiopurgatory.web.connected import Message
from aiopurgatory.web.poll import LongPoll

from .conftest import Kept
from .exchange import DISCONNECT, EMPTY, NOTHING, Exchange, asked, parked, part
from .polls import Counters, Polls, check_empty, settle, until

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory, Counters(), max_wait=25.0)


@pytest.fixture
def route(polls: Polls) -> LongPollRoute:
    return LongPollRoute(polls.polling)


# topics and queries


@pytest.mark.parametrize(
    ("scope", "resource"),
    [
        ({"path": "/n", "root_path": ""}, "n"),
        ({"path": "/polls/n", "root_path": "/polls"}, "n"),
        ({"path": "/n", "root_path": "/"}, "n"),
        ({"path": "/polls/n", "root_path": "/polls/"}, "n"),
        ({"path": "/n", "root_path": "/polls"}, "n"),
        ({"path": "/products", "root_path": "/product"}, "products"),
        ({"path": "/product/a", "root_path": "/product"}, "a"),
        ({"path": "/product", "root_path": "/product"}, ""),
        ({"path": "/polls/n", "path_params": {"topic": "n"}}, "n"),  # with a framework
    ],
)
async def test_route_polls_the_parameter_or_the_rest_of_the_path(
    route: LongPollRoute, scope: dict[str, Any], resource: str
) -> None:
    exchange = await asked(route, NOTHING, **scope)
    body = f"{resource} None 0".encode()
    assert (exchange.sent[1]["body"], exchange.headers[b"content-length"]) == (body, b"%d" % len(body))


@pytest.mark.parametrize("parameters", [{}, {"a": "1", "b": "2"}])
async def test_route_without_one_parameter_asks_for_the_resource(polls: Polls, parameters: dict[str, str]) -> None:
    with pytest.raises(TypeError, match=r"the path must have one parameter, got .*; pass resource="):
        await Exchange(LongPollRoute(polls.polling), path_params=parameters).run()
    named = LongPollRoute(polls.polling, resource=lambda scope: "-".join(scope["path_params"]) or "none")
    exchange = await asked(named, NOTHING, path_params=parameters)
    assert exchange.status == 200


@pytest.mark.parametrize("below", ["", "/api"])
async def test_route_that_is_mounted_polls_the_rest_of_the_path(route: LongPollRoute, below: str) -> None:
    app = Starlette(routes=[Mount("/polls", route)])
    exchange = await asked(app, NOTHING, path=f"{below}/polls/n", root_path=below)
    assert exchange.sent[1]["body"] == b"n None 0"


@pytest.mark.parametrize("kind_of_route", [LongPollRoute, EventRoute])
@pytest.mark.parametrize("kind_of_scope", ["websocket", "lifespan"])
async def test_route_of_another_scope_is_refused(polls: Polls, kind_of_route: Any, kind_of_scope: str) -> None:
    with pytest.raises(TypeError, match=f"answers HTTP, got a scope of type '{kind_of_scope}'"):
        await asked(kind_of_route(polls.polling), type=kind_of_scope)


@pytest.mark.parametrize("kind_of_route", [LongPollRoute, EventRoute])
async def test_other_methods_are_refused_and_logged_once(
    polls: Polls, kind_of_route: Any, caplog: pytest.LogCaptureFixture
) -> None:
    route = kind_of_route(polls.polling)
    for method in ("POST", "PUT", "DELETE"):
        exchange = await asked(route, method=method)
        assert (exchange.status, exchange.headers[b"allow"]) == (405, b"GET, HEAD")
    assert caplog.messages == [
        f"{kind_of_route.__name__} refused POST '/n', as it answers GET, HEAD only; if another route of this path "
        "answers POST, pass methods=['GET', 'HEAD'] to the Route before it"
    ]


async def test_route_takes_since_keys_client_and_group_from_the_scope(polls: Polls) -> None:
    route = LongPollRoute(
        polls.polling,
        since=lambda scope: "0",
        keys=lambda scope: ["a", "b"],
        client=lambda scope: scope["client"],
        group=lambda scope: scope["client"][0],
    )
    exchange, poll = await parked(route, client=("127.0.0.1", 7))
    found = polls.polling.statistics()
    assert (polls.purgatory.watched_entries, found.clients, found.groups) == (3, 1, 1)
    polls.source.values["n"] = 1
    polls.polling.notify("b")
    await poll
    assert exchange.sent[1]["body"] == b"n 0 1"


# how it is answered


async def test_answer_without_news_has_no_length(route: LongPollRoute, clock: ManualClock) -> None:
    exchange, poll = await parked(route)
    await clock.advance(25.0)
    await poll
    assert (exchange.status, b"content-length" in exchange.headers) == (304, False)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        (b"wait=0", 304, False),
        (b"a=b&wait=0", 304, False),
        (b"wait=0&wait=9", 304, False),
        (b"wait=%30.%30", 304, False),
        (b"await=0&wait=0", 304, False),
        (b"wait=x", 400, False),
        (b"wait=", 400, False),
        (b"wait=" + b"0" * 10_000, 400, False),
    ],
)
async def test_wait_in_the_query_goes_before_prefer(
    route: LongPollRoute, query: bytes, status: int, told: bool
) -> None:
    exchange = await asked(route, (b"if-none-match", b'"0"'), (b"prefer", b"wait=9"), query_string=query)
    assert (exchange.status, b"preference-applied" in exchange.headers) == (status, told)


@pytest.mark.parametrize(("lines", "status", "told"), [(2, 304, True), (1_000, 304, True), (3_000, 200, False)])
async def test_lines_of_a_header_are_one_list_unless_too_long(
    route: LongPollRoute, lines: int, status: int, told: bool
) -> None:
    tags = [(b"if-none-match", b'"7"'), *[(b"if-none-match", b'"0"')] * lines]
    exchange = await asked(route, *tags, *[(b"prefer", b"wait=0")] * (lines if told else 1_100))
    assert (exchange.status, b"preference-applied" in exchange.headers) == (status, told)


# the client leaves


@pytest.mark.parametrize("body", [[], [EMPTY], [part(b""), EMPTY]])
async def test_client_leaves_and_its_task_goes_on(route: LongPollRoute, polls: Polls, body: list[Message]) -> None:
    exchange, task = await parked(route, given=body)
    assert polls.purgatory.num_delayed == 1
    exchange.leave()
    await task
    assert (task.cancelling(), exchange.receiving, exchange.status) == (0, 0, 499)
    assert (polls.purgatory.num_delayed, polls.purgatory.statistics().cancelled) == (0, 1)
    assert polls.polling.statistics().answered == {499: 1}


@pytest.mark.parametrize("turns", range(7))
async def test_client_leaves_at_any_turn_and_nothing_stays(route: LongPollRoute, polls: Polls, turns: int) -> None:
    exchange = Exchange(route, given=[EMPTY])
    before = asyncio.all_tasks()
    task = exchange.start()
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 3:
            polls.publish()
    exchange.leave()
    await task
    await settle()
    assert asyncio.all_tasks() == before
    assert exchange.status in (200, 499)
    assert exchange.receiving == 0
    check_empty(polls.polling)


async def test_receive_that_always_returns_does_not_block_the_loop(route: LongPollRoute, polls: Polls) -> None:
    exchange, poll = await parked(route, given=[EMPTY] * 1_000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert exchange.messages.qsize() > 900
    polls.publish()
    await poll
    assert exchange.status == 200


@pytest.mark.parametrize("parts", [1, 100])
async def test_body_in_many_parts_does_not_hide_that_its_client_leaves(route: LongPollRoute, parts: int) -> None:
    exchange, poll = await parked(route, given=[*[part(b"x")] * parts, EMPTY, DISCONNECT])
    await poll
    assert exchange.status == 499


@pytest.mark.parametrize("failure", [OSError, RuntimeError, asyncio.CancelledError])
async def test_receive_that_raises_is_a_disconnect(
    route: LongPollRoute, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    class Broken(Exchange):
        async def receive(self) -> Message:
            raise failure("no messages")

    exchange = Broken(route)
    await exchange.run()
    assert exchange.status == 499
    expected = [] if failure is not RuntimeError else ["receive() raised RuntimeError('no messages')"]
    assert [message.partition(";")[0] for message in caplog.messages] == expected


CLOSED = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"


@pytest.mark.parametrize("kind_of_route", [LongPollRoute, EventRoute])
@pytest.mark.parametrize("place", ["http.response.start", "http.response.body"])
@pytest.mark.parametrize(
    ("failure", "is_raised"), [(OSError("broken"), False), (RuntimeError(CLOSED), False), (RuntimeError("sent"), True)]
)
async def test_send_that_raises_is_a_disconnect_or_is_heard(
    polls: Polls, kind_of_route: Any, place: str, failure: Exception, is_raised: bool
) -> None:
    class Broken(Exchange):
        async def send(self, message: Message) -> None:
            if message["type"] == place:
                raise failure

    with pytest.raises(RuntimeError, match="sent") if is_raised else nullcontext():
        await Broken(kind_of_route(polls.polling), NOTHING).run()
    assert polls.polling.statistics().answered == {200: 1}
    check_empty(polls.polling)


@pytest.mark.parametrize("ending", ["news", "leave", "at once", "close"])
async def test_ended_poll_needs_no_garbage_collector(
    route: LongPollRoute, polls: Polls, ending: str, kept: Kept
) -> None:
    exchange, poll = await parked(route, *([NOTHING] if ending == "at once" else []), given=[EMPTY])
    if ending == "leave":
        exchange.leave()
    elif ending == "close":
        polls.purgatory.close()
    else:
        polls.publish()
    await poll
    await settle()
    assert kept(LongPoll) == 0


async def test_poll_answered_soon_is_not_listened_to(
    route: LongPollRoute, polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (soon, first), (later, second) = await parked(route), await parked(route, path="/other")
    polls.publish()
    await first
    await until(lambda: later.receiving)
    assert soon.receiving == 0
    later.leave()
    await second
    assert (soon.status, later.status) == (200, 499)


def test_poll_in_the_next_loop_is_listened_to() -> None:
    route = LongPollRoute(Polls(Purgatory(), Counters()).polling)

    async def leave() -> int:
        exchange, poll = await parked(route)
        exchange.leave()
        await poll
        return exchange.status

    async def part() -> None:
        Exchange(route).start()
        await asyncio.sleep(0)  # and the loop ends before it is listened to

    asyncio.run(part())
    assert asyncio.run(leave()) == 499


# the server stops


async def test_poll_cancelled_by_the_server_is_answered(route: LongPollRoute, polls: Polls) -> None:
    exchange, task = await parked(route)
    task.cancel()
    await task
    assert (exchange.status, exchange.headers[b"refused"]) == (503, b"closed")
    assert exchange.headers[b"retry-after"] in (b"1", b"2", b"3")
    found = polls.polling.statistics()
    assert (found.answered, found.refused) == ({503: 1}, {"closed": 1})
    check_empty(polls.polling)


async def test_poll_cancelled_while_it_is_answered_adds_nothing(route: LongPollRoute) -> None:
    class Slow(Exchange):
        async def send(self, message: Message) -> None:
            await super().send(message)
            await asyncio.Event().wait()

    exchange = Slow(route, NOTHING)
    task = exchange.start()
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message["status"] for message in exchange.sent] == [200]
