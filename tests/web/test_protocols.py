"""The functions by which a route speaks a protocol: where a poll comes from, and how it is answered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from aiopurgatory import GoneError, NotFoundError, Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import ManualClock
from aiopurgatory.web import Answer, EventRoute, LongPolling, LongPollRoute, RequestScope

from .exchange import DISCONNECT, NOTHING, Exchange, asked, parked
from .polls import POLICY, settle

Polling = LongPolling[Any]
Replied = tuple[bytes, int, Mapping[str, str]]


class Numbers:
    """Numbers by name. A resource is a tuple of names."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.reads: list[str | None] = []

    def version(self, names: tuple[str, ...]) -> str:
        return ".".join(str(self.numbers.get(name, 0)) for name in names)

    def read(self, names: tuple[str, ...], since: str | None, version: str) -> bytes:
        self.reads.append(since)
        old, new = (since or version).split("."), version.split(".")
        if len(old) != len(new):
            return b"all"
        return json.dumps([name for name, a, b in zip(names, old, new, strict=True) if a != b]).encode()


class AwaitedNumbers(Numbers):
    async def version(self, names: tuple[str, ...]) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().version(names)

    async def read(self, names: tuple[str, ...], since: str | None, version: str) -> bytes:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().read(names, since, version)


@pytest.fixture(params=[Numbers, AwaitedNumbers])
def numbers(request: pytest.FixtureRequest) -> Numbers:
    found: Numbers = request.param()
    return found


@pytest.fixture
def polling(purgatory: Purgatory, numbers: Numbers) -> Polling:
    return LongPolling(purgatory, numbers, policy=POLICY)


def names(scope: RequestScope) -> tuple[str, ...]:
    return tuple(scope.query["names"].split(","))


def as_consul(polled: Answer) -> Replied:
    return polled.body, 200, {"X-Index": str(polled.version), "Cache-Control": "private"}


def consul(polling: Polling, **more: Any) -> LongPollRoute:
    return LongPollRoute(
        polling, resource=names, keys=names, since=lambda scope: scope.query.get("index"), respond=as_consul, **more
    )


def get(route: LongPollRoute, **query: str) -> Exchange:
    return Exchange(route, NOTHING, query_string=urlencode(query).encode())


async def got(route: LongPollRoute, **query: str) -> Exchange:
    """An exchange that has ended at once."""
    exchange = get(route, **query)
    await asyncio.wait_for(exchange.run(), 5)
    return exchange


async def waiting(route: LongPollRoute, **query: str) -> tuple[Exchange, asyncio.Task[None]]:
    return await parked(route, NOTHING, query_string=urlencode(query).encode())


async def posted(polling: Polling, *parts: bytes, more: bool = False, **functions: Any) -> Exchange:
    """The exchange of a route that takes a POST, with a body in *parts*. *more*: it goes on."""
    route = LongPollRoute(polling, methods=["POST"], **{"resource": lambda scope: ("a",), **functions})
    given = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if given and not more:
        del given[-1]["more_body"]
    return await asked(route, NOTHING, method="POST", given=given)


async def ended(clock: ManualClock, exchange: Exchange, seconds: float) -> Exchange:
    """Let *exchange* wait; it must end after *seconds*, and not before."""
    poll = exchange.start()
    await settle()
    await clock.advance(seconds - 0.01)
    assert not poll.done()
    await clock.advance(0.02)
    await poll
    return exchange


# the request


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("2s", 2.0), ("1500ms", 1.5), ("0.1m2s", 8.0)])
async def test_wait_in_the_query_has_a_unit(clock: ManualClock, polling: Polling, text: str, seconds: float) -> None:
    await ended(clock, get(consul(polling), names="a", index="0", wait=text), seconds)


async def test_wait_comes_from_a_header_in_milliseconds(clock: ManualClock, polling: Polling) -> None:
    route = consul(polling, wait=lambda scope: int(scope.headers["long-pulling-timeout"]) / 1000)
    exchange = get(route, names="a", index="0")
    exchange.scope["headers"] = [(b"long-pulling-timeout", b"1500")]
    await ended(clock, exchange, 1.5)


@pytest.mark.parametrize(("seconds", "waits"), [(None, 30.0), (1e9, 30.0), (0, 0.0), (-1.0, 0.0), (float("nan"), 0.0)])
async def test_wait_function_is_bounded(
    clock: ManualClock, polling: Polling, seconds: float | None, waits: float
) -> None:
    exchange = get(consul(polling, wait=lambda scope: seconds), names="a", index="0")
    if waits:
        await ended(clock, exchange, waits)
    else:
        await asyncio.wait_for(exchange.run(), 5)


async def test_form_of_a_post_has_the_poll(polling: Polling, numbers: Numbers) -> None:
    body = urlencode({"names": "a,b", "versions": "0.1", "names ": "c"}).encode()
    exchange = await posted(
        polling,
        body[:5],
        body[5:],
        resource=lambda scope: tuple(scope.form["names"].split(",")),
        since=lambda scope: scope.form["versions"],
    )
    assert (exchange.status, exchange.sent[1]["body"]) == (200, b'["b"]')


@pytest.mark.parametrize("body", [b"[", b"\xff", b"7" * 5_000, b"a&" * 2_000])
async def test_request_that_cannot_be_read_is_answered_400(polling: Polling, body: bytes) -> None:
    exchange = await posted(polling, body, resource=lambda scope: (scope.form["a"], str(json.loads(scope.body))))
    assert exchange.status == 400
    assert len(exchange.sent[1]["body"]) < 300
    assert polling.statistics().answered == {400: 1}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"index": "0"}, b"the request must have 'names'"),
        ({"names": "a" * 70_000}, b"the query must have at most 65,536 bytes, got 70,006"),
    ],
)
async def test_query_that_cannot_be_used_is_answered_400(polling: Polling, query: dict[str, str], told: bytes) -> None:
    exchange = await got(consul(polling), **query)
    assert (exchange.status, exchange.sent[1]["body"]) == (400, told)


@pytest.mark.parametrize(("error", "status"), [(NotFoundError("no"), 404), (GoneError("gone"), 410)])
async def test_function_that_raises_an_answer_is_answered_so(polling: Polling, error: Exception, status: int) -> None:
    def refuse(scope: RequestScope) -> tuple[str, ...]:
        raise error

    assert (await asked(LongPollRoute(polling, resource=refuse))).status == status


async def test_bug_in_a_function_is_raised(polling: Polling) -> None:
    with pytest.raises(ZeroDivisionError):
        await Exchange(LongPollRoute(polling, resource=lambda scope: (str(1 / 0),))).run()


async def test_body_that_is_too_long_is_answered_413(polling: Polling) -> None:
    assert (await posted(polling, *[bytes(1 << 16)] * 17, more=True)).status == 413


async def test_body_that_does_not_come_is_answered_400(polling: Polling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.web.request.BODY_TIMEOUT", 0.05)
    exchange = await posted(polling)
    assert (exchange.status, exchange.sent[1]["body"]) == (400, b"the body did not arrive in 0.05 s")


async def test_client_that_leaves_during_its_body_is_counted(polling: Polling) -> None:
    route = LongPollRoute(polling, methods=["POST"], resource=lambda scope: ("a",))
    await asked(route, method="POST", given=[DISCONNECT])
    assert polling.statistics().answered == {499: 1}


async def test_client_that_leaves_behind_its_body_ends_its_poll(polling: Polling) -> None:
    route = LongPollRoute(
        polling, methods=["POST"], resource=lambda scope: ("a",), since=lambda scope: scope.body.decode()
    )
    exchange, poll = await parked(route, method="POST", given=[{"type": "http.request", "body": b"0"}])
    assert polling.purgatory.num_delayed == 1
    exchange.leave()
    await poll
    assert polling.statistics().answered == {499: 1}


async def test_first_of_repeated_parameters_counts(polling: Polling) -> None:
    scope = RequestScope({"query_string": b"a=1&a=2&b=&c=%C3%A4+b", "headers": [(b"x", b"1"), (b"x", b"2")]})
    assert scope.query == {"a": "1", "b": "", "c": "ä b"}
    assert scope.headers == {"x": "1"}


# the answer


async def test_news_are_answered_by_respond(polling: Polling, numbers: Numbers) -> None:
    exchange, poll = await waiting(consul(polling), names="a,b", index="0.0")
    numbers.numbers["b"] = 7
    polling.notify("b")
    await poll
    assert (exchange.status, exchange.sent[1]["body"]) == (200, b'["b"]')
    assert exchange.headers[b"x-index"] == b"0.7"
    assert (exchange.headers[b"cache-control"], exchange.headers[b"content-type"]) == (b"private", b"application/json")


@pytest.mark.parametrize("wait", ["3", "0"])
async def test_respond_gets_the_body_at_the_deadline(
    clock: ManualClock, polling: Polling, numbers: Numbers, wait: str
) -> None:
    exchange = get(consul(polling), names="a,b", index="0.0", wait=wait)
    if wait == "0":
        await exchange.run()
    else:
        await ended(clock, exchange, 3.0)
    assert (exchange.status, exchange.sent[1]["body"], exchange.headers[b"x-index"]) == (200, b"[]", b"0.0")
    assert numbers.reads == ["0.0"]
    assert polling.statistics().answered == {200: 1}
    assert polling.purgatory.statistics().missed_triggers == 0


async def test_without_respond_a_deadline_reads_no_body(clock: ManualClock, polling: Polling, numbers: Numbers) -> None:
    route = LongPollRoute(polling, resource=names, since=lambda scope: scope.query.get("index"))
    exchange = await ended(clock, get(route, names="a", index="0", wait="1"), 1.0)
    assert (exchange.status, numbers.reads) == (204, [])


@pytest.mark.parametrize("since", ["-1", "0"])
async def test_respond_with_a_body_alone_answers_200(polling: Polling, since: str) -> None:
    route = LongPollRoute(
        polling, resource=names, since=lambda _: since, wait=lambda _: 0, respond=lambda polled: b"<" + polled.body
    )
    exchange = await got(route, names="a")
    assert (exchange.status, exchange.sent[1]["body"][:1]) == (200, b"<")


async def test_status_without_a_body_drops_it(polling: Polling) -> None:
    def as_apollo(polled: Answer) -> Replied:
        return polled.body, 304 if polled.status == 204 else 200, {}

    route = LongPollRoute(
        polling, resource=names, since=lambda scope: scope.query["since"], respond=as_apollo, wait=lambda scope: 0
    )
    exchange = await got(route, names="a", since="0")
    assert (exchange.status, exchange.sent[1]["body"]) == (304, b"")
    assert b"content-length" not in exchange.headers
    exchange = await got(route, names="a", since="1")
    assert (exchange.status, exchange.sent[1]["body"]) == (200, b'["a"]')


async def test_refusals_are_not_answered_by_respond(polling: Polling) -> None:
    exchange, poll = await waiting(consul(polling), names="a", index="0")
    polling.close()
    await poll
    assert (exchange.status, exchange.headers.get(b"x-index")) == (503, None)


@pytest.mark.parametrize(
    "made",
    [
        "text",
        None,
        (b"body", 200),
        (200, b"body", {}),
        (b"body", "200", {}),
        (b"body", 200, None),
        (b"body", 200, [("x", "7")]),
        (b"body", 200, {"x": 7}),
    ],
    ids=repr,
)
async def test_respond_that_returns_something_else_names_the_rule(polling: Polling, made: Any) -> None:
    rule = r"^respond must return a body of bytes, or \(body, status, headers\) .*, got "
    with pytest.raises(TypeError, match=rule + re.escape(repr(made)) + "$"):
        await got(LongPollRoute(polling, resource=names, respond=lambda polled: made), names="a")


async def test_poll_of_a_log_is_answered_by_respond() -> None:
    async with MemoryLog() as log:
        last = await log.append("n", "a")
        route = LongPollRoute(log, respond=lambda polled: (polled.body, 200, {"next": str(polled.version)}))
        assert (await asked(route, NOTHING)).headers[b"next"].decode() == last


async def test_stream_takes_a_post(polling: Polling) -> None:
    route = EventRoute(polling, methods=["POST"], resource=lambda scope: tuple(json.loads(scope.body)))
    exchange, stream = await parked(route, method="POST", given=[{"type": "http.request", "body": b'["a", "b"]'}])
    assert b"id: 0.0\ndata: []\n" in exchange.sent[1]["body"]
    exchange.leave()
    await stream


# in a handler of one's own


async def test_answer_takes_a_wait_and_tells_the_version(
    clock: ManualClock, polling: Polling, numbers: Numbers
) -> None:
    poll = asyncio.create_task(polling.answer(("a", "b"), since="0.0", wait="2s", keys=["a", "b"]))
    await settle()
    await clock.advance(2.01)
    answer = await poll
    assert (answer.status, answer.version, answer.body) == (204, "0.0", b"")
    answer = await polling.answer(("a", "b"), since="0.0", wait=0, respond=as_consul)
    assert (answer.status, answer.version, answer.headers["x-index"]) == (200, "0.0", "0.0")


async def test_poll_of_many_resources_has_a_version_of_any_length(polling: Polling, numbers: Numbers) -> None:
    many = [f"resource-{number}" for number in range(600)]
    numbers.numbers = dict.fromkeys(many, 10_000)
    known = ".".join(["10000"] * 600)
    exchange, poll = await waiting(consul(polling), names=",".join(many), index=known)
    for name in many[7:10]:
        numbers.numbers[name] += 1
        polling.notify(name)
    await poll
    assert json.loads(exchange.sent[1]["body"]) == many[7:10]
    assert numbers.reads == [known]  # the version that the client sent, not its digest
