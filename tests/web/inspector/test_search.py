"""Searches: one at a time, few in line, and none for a client that has left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.inspector import Inspector, app, snapshot
from aiopurgatory.web.inspector.snapshot import Names

from ..eventsource import Client, through
from ..polls import until
from .helpers import Wait, get, shown


class Searches:
    """Searches that end when a test says so."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.begun: list[str] = []
        self.gate = asyncio.Event()

    async def find(self, purgatory: Purgatory, names: Names, text: str) -> snapshot.Row:
        self.begun.append(text)
        self.running.append(text)
        try:
            await self.gate.wait()
        finally:
            self.running.remove(text)
        return {"hits": [text]}


@pytest.fixture
async def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    searches = Searches()
    monkeypatch.setattr(app, "find", searches.find)
    return searches


def start(port: int, text: str) -> asyncio.Task[Any]:
    return asyncio.create_task(get(port, f"/search?key={text}"))


async def test_search_in_line_leaves_with_its_client(searches: Searches) -> None:
    async with shown() as (_, port):
        running, leaving = start(port, "a"), start(port, "b")
        await until(lambda: searches.running != [])
        leaving.cancel()
        await asyncio.sleep(0.1)  # its server hears of it
        staying = start(port, "c")
        searches.gate.set()
        assert [(await search).json["hits"] for search in (running, staying)] == [["a"], ["c"]]
        assert searches.begun == ["a", "c"]


async def test_crowd_that_has_left_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = 0

    def visit(*args: Any) -> None:
        nonlocal visits
        visits += 1

    monkeypatch.setattr(snapshot, "visit_key", visit)
    monkeypatch.setattr(snapshot, "TURN", 0.0)  # one key per loop iteration
    async with shown() as (purgatory, port):
        op = purgatory.watch(Wait(None), range(20_000))
        crowd = [start(port, "nowhere") for _ in range(5)]
        await until(lambda: visits > 100)
        for search in crowd:
            search.cancel()
        assert (await get(port, "/search?key=nowhere")).status == 200
        assert visits < 2 * 20_000
        op.cancel()


async def test_too_many_searches_are_refused(searches: Searches) -> None:
    async with shown() as (_, port):
        accepted = [start(port, "first")]
        await until(lambda: searches.running == ["first"])
        accepted += [start(port, str(number)) for number in range(app.MAX_SEARCHES - 1)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            refused = await get(port, "/search?key=x")
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "default-src 'none'" in refused.headers["content-security-policy"]
        accepted.pop().cancel()
        await asyncio.sleep(0.1)
        accepted.append(start(port, "its-place"))
        searches.gate.set()
        assert [(await search).status for search in accepted] == [200] * app.MAX_SEARCHES
        assert searches.begun[-1] == "its-place"
        assert (await get(port, "/search?key=y")).status == 200


async def test_search_that_fails_gives_its_place_back(searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(purgatory: Purgatory, names: Names, text: str) -> snapshot.Row:
        raise LookupError("broken")

    async with shown() as (_, port):
        monkeypatch.setattr(app, "find", broken)
        for _ in range(app.MAX_SEARCHES + 1):
            assert (await get(port, "/search?key=x")).status == 500
        monkeypatch.setattr(app, "find", searches.find)
        searches.gate.set()
        assert (await get(port, "/search?key=x")).status == 200


def ask(inspector: Inspector, path: str = "search", receive: Any = None) -> Client:
    """Without a server."""
    return Client(through(inspector, receive), path, "key=x", host="localhost")


async def test_search_whose_handler_is_cancelled_ends(searches: Searches) -> None:
    async with Purgatory() as purgatory:
        searching = ask(Inspector([purgatory]))
        await until(lambda: searches.running == ["x"])
        searching.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching.ended()
        assert searches.running == []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches and snapshots take their time."""

    async def find(purgatory: Purgatory, names: Names, text: str) -> snapshot.Row:
        return await take_keys(purgatory, names)

    async def take_keys(purgatory: Purgatory, names: Names) -> snapshot.Row:
        await asyncio.sleep(0.05)
        return await snapshot.take_keys(purgatory, names)

    monkeypatch.setattr(app, "find", find)
    monkeypatch.setattr(snapshot, "take_keys", take_keys)
    monkeypatch.setattr("aiopurgatory.web.desk.LISTEN_AFTER", 0.0)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("path", ["search", "state"])
async def test_client_that_cannot_be_listened_to_counts_as_gone(path: str) -> None:
    async def receive() -> Any:
        raise LookupError("no messages here")

    async with Purgatory() as purgatory:
        client = ask(Inspector([purgatory]), path, receive)
        await client.ended()
        assert client.status == 499


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("path", ["search", "state"])
async def test_messages_without_end_are_not_all_read(path: str) -> None:
    calls = 0

    async def receive() -> Any:  # a stand-in for a server, which has a message at every call
        nonlocal calls
        calls += 1
        return {"type": "http.request" if calls < 10_000 else "http.disconnect", "body": b"", "more_body": True}

    async with Purgatory() as purgatory:
        client = ask(Inspector([purgatory]), path, receive)
        await client.ended()
        assert client.status == 413
    assert calls < 100


def test_searches_stand_in_line_in_one_loop_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(purgatory: Purgatory, names: Names, text: str) -> snapshot.Row:
        await asyncio.sleep(0.01)
        return {}

    async def search_thrice() -> list[int]:
        clients = [ask(inspector) for _ in range(3)]
        await asyncio.gather(*(client.ended() for client in clients))
        return [client.status for client in clients]

    monkeypatch.setattr(app, "find", find)
    inspector = Inspector([Purgatory()])
    for _ in range(2):
        assert asyncio.run(search_thrice()) == [200] * 3
