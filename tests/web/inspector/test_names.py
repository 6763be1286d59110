"""Keys are user data: how they are shown, hidden and found, hostile ones too; and how searches wait for each other."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import quote

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.inspector import Inspector, app, snapshot
from aiopurgatory.web.inspector.snapshot import Names, readings

from ..eventsource import Client
from ..polls import until
from .helpers import Wait, get, search, state

SECRET = ("customer", "jane@example.org")


@pytest.mark.parametrize("show_keys", [False])
async def test_keys_are_hidden_unless_allowed(purgatory: Purgatory, port: int) -> None:
    for _ in range(3):
        purgatory.watch(Wait(None), [SECRET])
    answer = await get(port, "/state")
    (most,) = answer.json["most_watched"]
    assert re.fullmatch(r"[0-9a-f]{12}", most["key"])
    assert answer.json["hashed"]
    assert {op["key"] for op in answer.json["oldest"]} == {most["key"]}
    for text in (repr(SECRET), most["key"]):
        found = await get(port, f"/search?key={quote(text)}")
        assert [(hit["key"], hit["watchers"]) for hit in found.json["hits"]] == [(most["key"], 3)]
        assert b"jane" not in answer.body + found.body
    for guess in ("jane", "customer", most["key"][:11], "('customer',"):
        assert await search(port, guess) == []


async def test_hidden_keys_have_other_numbers_elsewhere() -> None:
    assert Names(False).of(SECRET) != Names(False).of(SECRET)


async def test_search_finds_a_key_by_any_of_its_spellings(purgatory: Purgatory, port: int) -> None:
    for key in ("orders", ("orders", 7), 42, b"\xff", None, frozenset({1})):
        purgatory.watch(Wait(None), [key])
    for text, keys in {
        "orders": ["'orders'", "('orders', 7)"],
        " 'orders' ": ["'orders'", "('orders', 7)"],
        "('orders',7)": ["('orders', 7)"],
        "42": ["42"],
        "42.0": ["42.0"],
        "b'\\xff'": ["b'\\xff'"],
        "None": ["None"],
        "frozenset": ["frozenset({1})"],
        "payments": [],
    }.items():
        assert [hit["key"] for hit in await search(port, text)] == keys, text


LONG = ["-" * 200, "(" * 200, "9" * 200]


@pytest.mark.parametrize("text", ["((", "[1]", "{}", '"', "\\", "'\\d'", "1is", "\x00", "\ud800", "1j", "nan", *LONG])
async def test_search_for_nonsense_finds_nothing(purgatory: Purgatory, port: int, text: str) -> None:
    purgatory.watch(Wait(None), [SECRET])
    assert await search(port, text) == []


def test_search_reads_a_literal_without_a_warning() -> None:
    assert readings("'\\d'") == ["'\\d'", "\\d"]


async def test_search_shows_no_more_than_a_page_can(purgatory: Purgatory, port: int) -> None:
    for number in range(500):
        purgatory.watch(Wait(None), [("orders", number), "hot"])
    assert len(await search(port, "orders")) == 10
    (hit,) = await search(port, "hot")
    assert (hit["watchers"], len(hit["oldest"])) == (500, 10)


class Hostile:
    """A key that misbehaves once it has been let in."""

    armed = False

    def __hash__(self) -> int:
        if Hostile.armed:
            raise RuntimeError("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        if Hostile.armed:
            raise RuntimeError("eq")
        return self is other

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class Rude(str):
    def __repr__(self) -> str:
        return "\ud800<script>" * 1000


@pytest.mark.parametrize("show_keys", [True, False])
async def test_hostile_keys_harm_nobody(purgatory: Purgatory, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = tuple(tuple(tuple("x" * 1000 for _ in range(100)) for _ in range(100)) for _ in range(10))
    keys = [Hostile(), Rude("x"), "\ud800", "x" * 1_000_000, b"x" * 10_000_000, 1 << 100_000, wide]
    keys.append(frozenset(range(1000)))
    ops = [purgatory.watch(Wait(None), [key]) for key in keys]
    monkeypatch.setattr(Hostile, "armed", True)
    for path in ("/state", "/search?key=x", "/search?key=1"):
        answer = await get(port, path)
        assert answer.status == 200
        assert len(answer.body) < 20_000
    found = await state(port)
    assert (len(found["most_watched"]), found["statistics"]["pending"]) == (7, 8)
    monkeypatch.setattr(Hostile, "armed", False)
    for op in ops:
        op.cancel()


# one search at a time, few in line, and none for a client that has left


class Searches:
    """Searches that end when a test says so."""

    def __init__(self, inspector: Inspector) -> None:
        self._turns = inspector._turns
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

    def in_line(self) -> int:
        """How many searches wait for the running one."""
        return self._turns[asyncio.get_running_loop()].statistics().tasks_waiting


@pytest.fixture
async def searches(inspector: Inspector, monkeypatch: pytest.MonkeyPatch) -> Searches:
    searches = Searches(inspector)
    monkeypatch.setattr(app, "find", searches.find)
    return searches


def start(port: int, text: str) -> asyncio.Task[Any]:
    return asyncio.create_task(get(port, f"/search?key={text}"))


async def test_search_ends_with_its_client_running_or_in_line(port: int, searches: Searches) -> None:
    running = start(port, "a")
    await until(lambda: searches.running == ["a"])
    leaving = start(port, "b")
    await until(lambda: searches.in_line() == 1)
    leaving.cancel()
    await until(lambda: searches.in_line() == 0)  # its server has heard of it
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
    await until(lambda: searches.in_line() == app.MAX_SEARCHES - 1)
    refused = await get(port, "/search?key=x")
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    accepted.pop().cancel()
    await until(lambda: searches.in_line() < app.MAX_SEARCHES - 1)
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
