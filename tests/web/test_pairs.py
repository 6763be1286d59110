"""Sources with a read() that returns the version of the body, too: no body is newer than its ETag."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling

from .eventsource import Client
from .polls import POLICY, AsyncGiven, Given, ask, settle


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
async def test_poll_gets_no_body_newer_than_its_etag(purgatory: Purgatory, kind: type[Hasty], pairs: bool) -> None:
    polling = LongPolling(purgatory, kind(pairs), policy=POLICY)
    newer = 0
    for _ in range(50):
        answer = await polling.answer("n", {"if-none-match": '"x"'})
        newer += int(answer.body) > int(answer.headers["etag"].strip('"'))
    assert newer == (0 if pairs else 50)


@pytest.mark.parametrize("kind", [Hasty, AsyncHasty])
@pytest.mark.parametrize("pairs", [True, False])
async def test_stream_gets_no_event_newer_than_its_id(purgatory: Purgatory, kind: type[Hasty], pairs: bool) -> None:
    polling = LongPolling(purgatory, kind(pairs))
    client = Client(EventRoute(polling))
    for _ in range(20):
        await settle()
        polling.notify("n")
    await client.leave()
    events = [event for event in client.events if event.id]
    assert len(events) > 5
    newer = sum(int(event.data) > int(str(event.id)) for event in events)
    assert newer == (0 if pairs else len(events))


@pytest.fixture(params=[Given, AsyncGiven])
def lags(request: pytest.FixtureRequest) -> Given:
    """version() lags behind read(), as that of a replica."""
    source: Given = request.param("1", ("2", b"two"))
    return source


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
