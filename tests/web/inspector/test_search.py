"""Searches: one at a time, few in line, and none for a client that has left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.inspector import Inspector, app, snapshot
from aiopurgatory.web.inspector.snapshot import Names

from ..eventsource import Client
from ..polls import until
from .helpers import get


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


async def test_search_ends_with_its_client_running_or_in_line(port: int, searches: Searches) -> None:
    running, leaving = start(port, "a"), start(port, "b")
    await until(lambda: searches.running == ["a"])
    leaving.cancel()
    await asyncio.sleep(0.1)  # its server hears of it
    staying = start(port, "c")
    running.cancel()
    await until(lambda: searches.running == ["c"])
    searches.gate.set()
    assert (await staying).json["hits"] == ["c"]
    assert searches.begun == ["a", "c"]


async def test_too_many_searches_are_refused(port: int, searches: Searches) -> None:
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


async def test_search_that_fails_gives_its_place_back(
    port: int, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(purgatory: Purgatory, names: Names, text: str) -> snapshot.Row:
        raise LookupError("broken")

    monkeypatch.setattr(app, "find", broken)
    for _ in range(app.MAX_SEARCHES + 1):
        assert (await get(port, "/search?key=x")).status == 500
    monkeypatch.setattr(app, "find", searches.find)
    searches.gate.set()
    assert (await get(port, "/search?key=x")).status == 200


def ask(inspector: Inspector) -> Client:
    """Without a server."""
    return Client(inspector, "search", "key=x", host="localhost")


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
