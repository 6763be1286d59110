"""Results, pairs and exceptions of a source, awaited or not."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, ClassVar

import aiohttp.web
import django.core.exceptions
import django.db
import django.http
import fastapi
import litestar.exceptions
import pytest
import werkzeug.exceptions

from aiopurgatory import GoneError, NotFoundError, Purgatory
from aiopurgatory.web import EventRoute, LongPolling

from .eventsource import Client
from .polls import POLICY, AsyncGiven, Given, ask, settle


class DatabaseError(Exception):
    """As of some clients of databases that speak HTTP."""

    status_code = 502
    headers: ClassVar[dict[str, str]] = {}


class NotYours(fastapi.HTTPException):
    """An app's own."""


ANSWERS = [
    fastapi.HTTPException(404, "no n"),
    NotYours(403),
    litestar.exceptions.NotFoundException("no n"),
    aiohttp.web.HTTPNotFound(),
    werkzeug.exceptions.NotFound(),
    django.http.Http404(),
    django.core.exceptions.PermissionDenied(),
]
#: The last as of a pool that was closed.
FAILURES = [DatabaseError(), aiohttp.ClientError(), django.db.OperationalError(), asyncio.CancelledError()]


@pytest.fixture(params=[Given, AsyncGiven])
def given(request: pytest.FixtureRequest) -> type[Given]:
    kind: type[Given] = request.param
    return kind


TEXT, BYTES = "must return a str, got", r"must return bytes or \(version, bytes\), got"
TAG, PAIR = "must return 1 or more characters of printable ASCII .*; got", "must return as the version"
#: What a source returns as a version and as a body, and the rule that it breaks.
WRONG: list[tuple[Any, Any, str]] = [
    *((version, b"", rf"version\(\) {TEXT} {type(version).__name__}$") for version in (7, None, b"7", 1.5)),
    *((version, b"", rf"version\(\) {TAG} ") for version in ("", "a b", 'a"b', "ä", "a\n", "7-gzip")),
    *(("1", body, rf"read\(\) {BYTES} {type(body).__name__}$") for body in ("text", None, 7, bytearray(b"body"))),
    *(("1", body, rf"read\(\) {BYTES} {type(body).__name__}$") for body in ((), ("2",), ("2", b"", 3), ["2", b""])),
    ("1", ("2", "text"), rf"read\(\) {BYTES} a pair with str$"),
    ("1", (2, b""), rf"read\(\) {PAIR} a str, got int$"),
    *(("1", (version, b""), rf"read\(\) {PAIR} 1 or more .*; got '{version}'$") for version in ("a b", "")),
]


@pytest.mark.parametrize(("version", "body", "rule"), WRONG)
async def test_result_that_is_none_names_the_method(
    purgatory: Purgatory, given: type[Given], version: Any, body: Any, rule: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{given.__name__}\.{rule}"):
        await ask(purgatory, given(version, body))
    assert purgatory.num_delayed == 0


@pytest.mark.parametrize("length", [1_000, 1_001, 100_000])
async def test_version_of_any_length_comes_back(purgatory: Purgatory, given: type[Given], length: int) -> None:
    answer = await ask(purgatory, given("v" * length))
    assert answer.version == "v" * length
    assert len(answer.headers["etag"]) <= 1_002
    for version, status in (("v" * length, 304), ("v" * (length - 1) + "w", 200)):
        again = await ask(purgatory, given(version), **{"if-none-match": answer.headers["etag"], "prefer": "wait=0"})
        assert again.status == status


async def test_coroutine_for_a_version_says_async_def(purgatory: Purgatory) -> None:
    """A decorated ``async def`` looks like a plain function."""

    class Decorated(Given):
        def version(self, resource: str) -> Any:
            return AsyncGiven("1").version(resource)

    with pytest.raises(TypeError, match=r"^Decorated\.version\(\) must return a str, got a coroutine; .*async def"):
        await ask(purgatory, Decorated("1"))


@pytest.mark.parametrize(("error", "status"), [(NotFoundError("no n"), 404), (GoneError("gone"), 410)])
@pytest.mark.parametrize("at_once", [True, False])
async def test_answers_that_a_source_raises(
    purgatory: Purgatory, given: type[Given], error: Exception, status: int, at_once: bool
) -> None:
    answer = await ask(purgatory, given(error) if at_once else given("1", error))
    assert (answer.status, answer.body) == (status, str(error).encode())


async def test_resource_that_vanishes_answers_its_polls(purgatory: Purgatory, given: type[Given]) -> None:
    polling = LongPolling(purgatory, source := given("1"), policy=POLICY)
    poll = asyncio.create_task(polling.answer("n", {"if-none-match": '"1"'}))
    await settle()
    assert not poll.done()
    source.given = NotFoundError("n was deleted")
    polling.notify("n")
    assert (await poll).status == 404


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__module__)
async def test_exception_of_the_framework_is_raised(
    purgatory: Purgatory, given: type[Given], answer: Exception
) -> None:
    for source in (given(answer), given("1", answer)):
        with pytest.raises(type(answer)):
            await ask(purgatory, source)
    assert (purgatory.num_delayed, purgatory.statistics().failed) == (0, 2 if given is AsyncGiven else 0)


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
async def test_exception_of_a_client_is_a_failure(purgatory: Purgatory, failure: BaseException) -> None:
    assert (await ask(purgatory, AsyncGiven(failure))).headers["refused"] == "source"


@pytest.mark.parametrize("error", [NotFoundError("n was deleted"), GoneError("n was deleted")])
async def test_stream_of_a_resource_that_vanishes_ends(
    purgatory: Purgatory, given: type[Given], error: Exception
) -> None:
    polling = LongPolling(purgatory, source := given("1"))
    client = Client(EventRoute(polling))
    await settle()
    source.given = error
    polling.notify("n")
    await client.ended()
    assert (client.events[-1].kind, client.events[-1].data, client.complete) == ("gone", "n was deleted", True)
    assert purgatory.num_delayed == 0


def test_gone_error_says_from_where_to_go_on() -> None:
    assert (GoneError("old").after, GoneError("old", after="e-7").after) == (None, "e-7")
    again = pickle.loads(pickle.dumps(GoneError("old", after="e-7")))
    assert (str(again), again.after) == ("old", "e-7")


# pairs of a version and a body: no body is newer than its ETag


class Hasty:
    """Changes after each version(), as by another thread or a database. *pairs*: read() returns pairs."""

    def __init__(self, pairs: bool) -> None:
        self.pairs = pairs
        self.number = 0

    def version(self, resource: str) -> str:
        self.number += 1
        return str(self.number - 1)

    def read(self, resource: str, since: str | None, version: str) -> Any:
        body = str(self.number).encode()
        return (str(self.number), body) if self.pairs else body


class AsyncHasty(Hasty):
    async def version(self, resource: str) -> str:  # type: ignore[override]
        found = super().version(resource)
        await asyncio.sleep(0)
        return found

    async def read(self, resource: str, since: str | None, version: str) -> Any:
        await asyncio.sleep(0)
        return super().read(resource, since, version)


@pytest.mark.parametrize("kind", [Hasty, AsyncHasty])
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("streams", [True, False])
async def test_client_gets_no_body_newer_than_its_tag(
    purgatory: Purgatory, kind: type[Hasty], pairs: bool, streams: bool
) -> None:
    polling = LongPolling(purgatory, kind(pairs), policy=POLICY)
    client = Client(EventRoute(polling)) if streams else None
    got: list[tuple[str, str]] = []
    for _ in range(20):
        if client is not None:
            await settle()
            polling.notify("n")
        else:
            answer = await polling.answer("n", {"if-none-match": '"x"'})
            got.append((answer.version, answer.body.decode()))
    if client is not None:
        await client.leave()
        got = [(event.id, event.data) for event in client.events if event.id]
    assert len(got) > 5
    assert sum(int(body) > int(tag) for tag, body in got) == (0 if pairs else len(got))


@pytest.fixture
def lags(given: type[Given]) -> Given:
    """version() lags behind read(), as on a replica."""
    return given("1", ("2", b"two"))


async def test_poll_that_has_the_version_of_the_pair_gets_no_body(purgatory: Purgatory, lags: Given) -> None:
    first = await ask(purgatory, lags)
    assert (first.body, first.headers["etag"]) == (b"two", '"2"')
    again = await ask(purgatory, lags, **{"if-none-match": '"2"', "prefer": "wait=0"})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", '"2"')


async def test_stream_of_a_version_that_lags_sends_no_event_twice(purgatory: Purgatory, lags: Given) -> None:
    polling = LongPolling(purgatory, lags)
    client = Client(EventRoute(polling))
    await settle()
    lags.given = "2"  # it catches up
    polling.notify("n")
    await settle()
    lags.given, lags.body = "3", ("3", b"three")
    polling.notify("n")
    await settle()
    await client.leave()
    assert [(event.id, event.data) for event in client.events] == [("2", "two"), ("3", "three")]
