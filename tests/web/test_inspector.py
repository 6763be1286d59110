"""The live page's endpoints, over real sockets. What a browser makes of them is in test_inspector_page.py."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import quote

import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, check_invariants
from aiopurgatory.web import inspector as module
from aiopurgatory.web import looks
from aiopurgatory.web.inspector import Inspector

from .pages import Answer, Wait, get, serve, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.02)


@asynccontextmanager
async def shown(*, show_keys: bool = True, **options: Any) -> AsyncIterator[tuple[Purgatory, int]]:
    """A started purgatory and the port at which it is shown."""
    async with Purgatory("shown", **options) as purgatory:
        async with serve(Inspector([purgatory], show_keys=show_keys)) as port:
            yield purgatory, port
        check_invariants(purgatory)


async def state(port: int, after: str = "") -> Any:
    return (await get(port, f"/state?after={after}")).json


async def state_with(port: int, **figures: int) -> Any:
    """The first state whose statistics are *figures*."""
    found = await state(port)
    while found["statistics"] | figures != found["statistics"]:
        found = await state(port, found["cursor"])
    return found


async def search(port: int, text: str) -> list[Any]:
    return cast(list[Any], (await get(port, f"/search?key={quote(text, errors='surrogatepass')}")).json["hits"])


def polls_of(inspector: Inspector) -> Purgatory:
    return inspector._views[0].polls


# what is shown


async def test_state_tells_what_is_pending_and_how_full_the_wheels_are() -> None:
    async with shown() as (purgatory, port):
        for timeout in (30.0, 30.0, 3000.0, None, None, None):
            purgatory.watch(Wait(timeout), ["key"])
        found = await state_with(port, pending=6)
        assert (found["state"], found["untimed"], found["due"]) == ("open", 3, 0)
        assert [ring["tick"] for ring in found["rings"]] == pytest.approx([0.001, 0.02, 0.4, 8.0, 160.0])
        assert [sum(count for _, count in ring["filled"]) for ring in found["rings"]] == [0, 0, 0, 2, 1]
        assert [ring["buckets"] for ring in found["rings"]] == [0, 0, 0, 1, 1]
        assert all(0 <= hand < 1 for hand in found["hands"])
        # As a clock: the bucket that the hand reaches in 3000 s.
        ((part, _),) = found["rings"][4]["filled"]
        ahead = (part - found["hands"][4] * 20) % 20 * 160
        assert 3000 - 161 < ahead <= 3001


async def test_hands_move_with_the_time_and_not_with_the_work(clock: ManualClock, purgatory: Purgatory) -> None:
    purgatory.watch(Wait(5.0), ["key"])
    assert looks.hands(purgatory) == [0, 0, 0]
    await clock.advance(2.0)
    assert looks.hands(purgatory)[2] == 2 / 8


@pytest.mark.parametrize("size", [2, 120, 121, 1000])
async def test_state_draws_no_more_parts_than_a_page_can(size: int) -> None:
    async with shown(wheel_size=size) as (purgatory, port):
        for step in range(size):
            purgatory.watch(Wait(1.0 + step / 1000), ["key"])
        for ring in (await state_with(port, pending=size))["rings"]:
            assert ring["parts"] == min(size, 120)
            assert all(0 <= part < ring["parts"] and count > 0 for part, count in ring["filled"])
            assert ring["size"] == size


async def test_most_watched_keys_come_first() -> None:
    async with shown() as (purgatory, port):
        for number in range(30):
            for _ in range(number + 1):
                purgatory.watch(Wait(None), [("orders", number)])
        found = await state_with(port, pending=465)
        assert found["most_watched"] == [
            {"key": f"('orders', {number})", "watchers": number + 1} for number in range(29, 19, -1)
        ]


async def test_oldest_waiters_come_first_and_once() -> None:
    async with shown() as (purgatory, port):
        gone = purgatory.watch(Wait(None), ["hot"])
        for number in range(8):
            purgatory.watch(Wait(None), ["hot", number])
        for number in range(8):
            purgatory.watch(Wait(100.0), [f"late {number}"])
        gone.cancel()
        found = await state_with(port, pending=16)
        assert [op["key"] for op in found["oldest"]] == ["'hot'"] * 8 + ["'late 0'", "'late 1'"]
        assert [op["keys"] for op in found["oldest"]] == [2] * 8 + [1] * 2
        assert {op["kind"] for op in found["oldest"]} == {"Wait"}
        assert [op["since"] for op in found["oldest"]] == sorted(op["since"] for op in found["oldest"])
        assert found["oldest"][0]["deadline"] is None
        assert found["oldest"][9]["deadline"] - found["oldest"][9]["since"] == pytest.approx(100.0)


async def test_stale_entries_are_not_taken_for_waiters() -> None:
    async with shown(purge_interval=1000) as (purgatory, port):
        ended = purgatory.watch(Wait(None), ["a", "b"])
        ended.force_complete()
        purgatory.watch(Wait(None), ["b"])
        found = await state_with(port, pending=1, completed=1)
        assert [op["key"] for op in found["oldest"]] == ["'b'"]
        assert [len(hit["oldest"]) for hit in await search(port, "a")] == [0]


async def test_many_keys_are_looked_at_in_part_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "MAX_KEYS", 100)
    monkeypatch.setattr(looks, "NEWEST", 10)
    async with shown() as (purgatory, port):
        for number in range(1000):
            purgatory.watch(Wait(None), [number])
        for _ in range(3):
            purgatory.watch(Wait(None), ["first of the newest"])
        found = await state_with(port, pending=1003)
        assert found["scope"] == {"keys": 110, "of": 1001, "partial": True}
        assert found["most_watched"][0] == {"key": "'first of the newest'", "watchers": 3}
        assert [op["key"] for op in found["oldest"]] == [str(number) for number in range(10)]
        assert [hit["key"] for hit in await search(port, "500")] == ["500"]
        assert (await get(port, "/search?key=500")).json["scope"]["partial"]


@pytest.mark.parametrize("keys", [100, 101, 105])
async def test_newest_keys_are_shown_once(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    monkeypatch.setattr(looks, "MAX_KEYS", 100)
    monkeypatch.setattr(looks, "NEWEST", 10)
    async with shown() as (purgatory, port):
        for number in range(keys):
            purgatory.watch(Wait(None), [number])
        scope = (await state_with(port, pending=keys))["scope"]
        assert scope == {"keys": keys, "of": keys, "partial": keys > 100}


# long polls


async def test_poll_waits_for_news_and_gets_them() -> None:
    async with shown() as (purgatory, port):
        known = await state(port)
        poll = asyncio.create_task(state(port, known["cursor"]))
        await asyncio.sleep(0.2)
        assert not poll.done()
        op = purgatory.watch(Wait(None), ["key"])
        parked = await poll
        assert parked["statistics"]["pending"] == 1
        op.force_complete()
        ended = await state(port, parked["cursor"])
        assert (ended["statistics"]["pending"], ended["statistics"]["completed"]) == (0, 1)


async def test_poll_without_news_ends_with_204(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_POLL", 0.1)
    async with shown() as (_, port):
        known = await state(port)
        answer = await get(port, f"/state?after={known['cursor']}")
        assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize("after", ["", "-", "x", "x-1", "-1", f"x-{'9' * 400}", "%00", "²-²"])
async def test_poll_with_a_foreign_cursor_is_answered_at_once(after: str) -> None:
    async with shown() as (_, port):
        run = (await state(port))["cursor"].partition("-")[0]
        for cursor in (after, f"{run}-x", f"{run}-{'9' * 400}", f"{run}-²"):
            assert (await state(port, quote(cursor)))["cursor"]


async def test_poll_ends_when_the_purgatory_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 1000.0)
    async with shown() as (purgatory, port):
        purgatory.watch(Wait(None), ["key"])
        known = await state(port)
        poll = asyncio.create_task(state(port, known["cursor"]))
        await asyncio.sleep(0.1)
        assert not poll.done()
        purgatory.close()
        last = await asyncio.wait_for(poll, 5)
        assert (last["state"], last["statistics"]["pending"], last["statistics"]["failed"]) == ("closed", 0, 1)
        # And nobody waits there any more.
        again = await asyncio.wait_for(state(port, last["cursor"]), 5)
        assert (again["state"], again["statistics"]["failed"]) == ("closed", 1)


async def test_purgatory_may_be_started_later_than_the_page() -> None:
    purgatory = Purgatory("late")
    async with serve(Inspector([purgatory])) as port:
        new = await state(port)
        assert new["state"] == "not started"
        await purgatory.start()
        assert (await state(port, new["cursor"]))["state"] == "open"
        await purgatory.aclose()
        assert (await state_with(port))["state"] == "closed"


async def test_poll_ends_when_its_client_leaves() -> None:
    async with Purgatory() as purgatory:
        inspector = Inspector([purgatory])
        async with serve(inspector) as port:
            known = await state(port)
            polls = [asyncio.create_task(state(port, known["cursor"])) for _ in range(3)]
            await until(lambda: polls_of(inspector).num_delayed == 3)
            for poll in polls:
                poll.cancel()
            await until(lambda: polls_of(inspector).statistics().cancelled == 3)
            assert polls_of(inspector).num_delayed == 0


async def test_too_many_polls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POLLS", 3)
    async with shown() as (_, port):
        known = await state(port)
        polls = [asyncio.create_task(get(port, f"/state?after={known['cursor']}")) for _ in range(4)]
        done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        for poll in waiting:
            poll.cancel()


async def test_ten_pages_cost_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    async def counted(purgatory: Purgatory, names: looks.Names) -> looks.Row:
        nonlocal taken
        taken += 1
        return await looks.look_at_keys(purgatory, names)

    monkeypatch.setattr(module, "look_at_keys", counted)
    async with shown() as (purgatory, port):
        first = await state(port)
        purgatory.watch(Wait(None), ["key"])
        answers = await asyncio.gather(*(state(port, first["cursor"]) for _ in range(10)))
        assert {answer["statistics"]["pending"] for answer in answers} == {1}
        await asyncio.sleep(0.2)  # ten looks at the figures, which have not changed
        assert taken == 2


async def test_nobody_looks_on_when_no_page_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.1)
    async with Purgatory() as purgatory:
        inspector = Inspector([purgatory])
        async with serve(inspector) as port:
            known = await state(port)
            looking = inspector._views[0].looking
            assert looking is not None
            await asyncio.wait_for(looking, 5)
            assert polls_of(inspector)._closed
            purgatory.watch(Wait(None), ["key"])
            again = await state(port)
            assert again["statistics"]["pending"] == 1
            assert again["history"][0] == known["history"][0]


async def test_failed_look_is_answered_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = True

    async def fails_once(purgatory: Purgatory, names: looks.Names) -> looks.Row:
        if broken:
            raise LookupError("broken")
        return await looks.look_at_keys(purgatory, names)

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    monkeypatch.setattr(module, "look_at_keys", fails_once)
    async with shown() as (_, port):
        assert (await get(port, "/state")).status == 503
        broken = False
        assert (await state(port))["state"] == "open"
        gc.collect()
    assert [type(exc) for exc in reported] == [LookupError]


async def test_history_tells_what_is_new_and_when_nothing_was() -> None:
    async with shown() as (purgatory, port):
        first = await state(port)
        assert [row[1:] for row in first["history"]] == [[0, 0, 0, 0, 0]]
        await asyncio.sleep(0.3)
        purgatory.watch(Wait(None), ["key"])
        second = await state(port, first["cursor"])
        still, moved = second["history"]
        assert (still[1:], moved[1:]) == ([0, 0, 0, 0, 0], [1, 0, 0, 0, 0])
        assert moved[0] - still[0] < 0.2 < moved[0] - first["history"][0][0]
        assert second["now"] >= moved[0]
        assert (await state(port))["history"] == [*first["history"], still, moved]


async def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY", 5)
    async with shown() as (purgatory, port):
        found = await state(port)
        for _ in range(10):
            purgatory.watch(Wait(None), ["key"])
            found = await state(port, found["cursor"])
        assert len((await state(port))["history"]) == 5


async def test_purgatories_are_shown_by_number() -> None:
    async with Purgatory("a") as a, Purgatory("b") as b, serve(Inspector([a, b])) as port:
        b.watch(Wait(None), ["key"])
        for number, pending in enumerate([0, 1]):
            found = (await get(port, f"/state?purgatory={number}")).json
            assert (found["statistics"]["pending"], found["purgatories"]) == (pending, ["a", "b"])


# keys are user data


SECRET = ("customer", "jane@example.org")


async def test_keys_are_hidden_unless_allowed() -> None:
    async with shown(show_keys=False) as (purgatory, port):
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
    assert looks.Names(False).of(SECRET) != looks.Names(False).of(SECRET)


async def test_search_finds_a_key_by_any_of_its_spellings() -> None:
    async with shown() as (purgatory, port):
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


NONSENSE = [
    "((",
    "[1]",
    "{}",
    '"',
    "\\",
    "'\\d'",
    "1is",
    "\x00",
    "-" * 200,
    "(" * 200,
    "9" * 200,
    "\ud800",
    "1j",
    "nan",
]


@pytest.mark.parametrize("text", NONSENSE)
async def test_search_for_nonsense_finds_nothing(text: str) -> None:
    async with shown() as (purgatory, port):
        purgatory.watch(Wait(None), [SECRET])
        assert await search(port, text) == []


def test_search_reads_a_literal_without_a_warning() -> None:
    assert looks.readings("'\\d'") == ["'\\d'", "\\d"]


async def test_search_shows_no_more_than_a_page_can() -> None:
    async with shown() as (purgatory, port):
        for number in range(500):
            purgatory.watch(Wait(None), [("orders", number), "hot"])
        assert len(await search(port, "orders")) == 10
        (hit,) = await search(port, "hot")
        assert (hit["watchers"], len(hit["oldest"])) == (500, 10)


class Hostile:
    """A key that does what no key should, once it has been let in."""

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
async def test_hostile_keys_harm_nobody(show_keys: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown(show_keys=show_keys) as (purgatory, port):
        deep: object = ()
        for _ in range(500):
            deep = (deep, deep)
        keys = [Hostile(), Rude("x"), "\ud800", "x" * 1_000_000, b"x" * 1_000_000, 1 << 100_000, deep]
        ops = [purgatory.watch(Wait(None), [key]) for key in keys[:-1]]
        monkeypatch.setattr(Hostile, "armed", True)
        for path in ("/state", "/search?key=x", "/search?key=1"):
            answer = await get(port, path)
            assert answer.status == 200
            assert len(answer.body) < 20_000
        found = await state(port)
        assert (len(found["most_watched"]), found["statistics"]["pending"]) == (5, 6)
        monkeypatch.setattr(Hostile, "armed", False)
        for op in ops:
            op.cancel()


async def test_keys_of_any_size_have_short_names() -> None:
    names = looks.Names(True)
    wide = tuple(tuple(tuple("x" * 1000 for _ in range(100)) for _ in range(100)) for _ in range(10))
    for key in (wide, "x" * 10_000_000, b"x" * 10_000_000, frozenset(range(1000))):
        assert len(names.of(key)) <= looks.MAX_NAME


async def test_nothing_that_ended_is_kept() -> None:
    async with shown() as (purgatory, port):
        op = purgatory.watch(Wait(None), [SECRET])
        gone = weakref.ref(op)
        known = await state_with(port, pending=1)
        await search(port, "jane")
        op.cancel()
        del op
        await state(port, known["cursor"])
        await asyncio.sleep(0)
        assert gone() is None


# the loop is not held


async def test_loop_has_its_turns_while_many_keys_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Purgatory() as purgatory:
        for number in range(20_000):
            purgatory.watch(Wait(None), [("orders", number)])
        for looking in (
            looks.look_at_keys(purgatory, looks.Names(True)),
            looks.find(purgatory, looks.Names(True), "nowhere"),
            looks.find(purgatory, looks.Names(False), "nowhere"),
        ):
            before = time.thread_time()
            task = asyncio.create_task(looking)
            turns = 0
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            # Each turn took a millisecond or so of the whole.
            assert turns >= (time.thread_time() - before) / (5 * looks.TURN)
            assert turns > 3


async def test_keys_may_come_and_go_while_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "TURN", 0.0)  # a turn for each key
    async with Purgatory() as purgatory:
        ops = [purgatory.watch(Wait(None), [number]) for number in range(100)]
        for looking in (
            looks.look_at_keys(purgatory, looks.Names(True)),
            looks.find(purgatory, looks.Names(True), "nowhere"),
        ):
            task = asyncio.create_task(looking)
            while not task.done():
                await asyncio.sleep(0)
                if ops:
                    ops.pop().cancel()
                    purgatory.watch(Wait(None), [f"new {len(ops)}"])
            assert task.result()["scope"]["keys"] == 100
        check_invariants(purgatory)


async def test_purgatory_may_close_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "TURN", 0.0)
    async with shown() as (purgatory, port):
        for number in range(1000):
            purgatory.watch(Wait(None), [number])
        poll = asyncio.create_task(state(port))
        await asyncio.sleep(0.02)
        purgatory.close()
        last = await state_with(port, failed=1000)
        assert (last["state"], last["oldest"], (await poll)["state"] in ("open", "closed")) == ("closed", [], True)


async def test_looking_on_leaves_the_purgatory_as_it_is() -> None:
    async with shown() as (purgatory, port):
        for number in range(10):
            purgatory.watch(Wait(100.0), [number])
        before = purgatory.statistics()
        await state_with(port, pending=10)
        await search(port, "1")
        assert purgatory.statistics() == before


# who may ask what


async def test_every_answer_forbids_what_it_does_not_need() -> None:
    async with shown() as (_, port):
        paths = ["/", "/state", "/search?key=x", "/search", "/state?purgatory=7"]
        for answer in [await get(port, path) for path in paths]:
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"


async def test_page_is_one_file_that_names_no_other() -> None:
    async with shown() as (_, port):
        page = await get(port, "/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        text = page.body.decode()
        assert set(re.findall(r"\w+://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
        assert re.findall(r"(?:src|href)=\"?([^\"\s>]+)", text) == ["data:,"]
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval|\son\w+=\"|style=\"", text)
        assert "unsafe" not in page.headers["content-security-policy"]


async def test_mount_without_a_slash_leads_to_the_page() -> None:
    async with shown() as (_, port):
        answer = await get(port, "")
        assert answer.status == 307
        assert answer.headers["location"].endswith("/purgatory/")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/state?purgatory=1", 404),
        ("/state?purgatory=-1", 404),
        ("/state?purgatory=²", 404),
        (f"/state?purgatory={'0' * 5000}1", 404),
        ("/search?purgatory=x&key=x", 404),
        ("/search", 400),
        ("/search?key=%20", 400),
        (f"/search?key={'x' * 201}", 400),
        ("/inspector.html", 404),
        ("/../state", 404),
    ],
)
async def test_bad_request_is_refused(path: str, status: int) -> None:
    async with shown() as (_, port):
        assert (await get(port, quote(path, safe="/?=&%."))).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(method: str) -> None:
    async with shown() as (purgatory, port):
        purgatory.watch(Wait(None), ["key"])
        for path in ("/", "/state", "/search?key=key"):
            assert (await get(port, path, method)).status == 405
        assert purgatory.num_delayed == 1


async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    if request.query_params.get("token") != "good":
        return Response(status_code=401)
    return await call_next(request)


async def test_page_goes_behind_the_authentication_of_the_app() -> None:
    async with Purgatory() as purgatory:
        inspector = Inspector([purgatory])
        async with serve(BaseHTTPMiddleware(inspector, guard)) as port:
            for path in ("/", "/state", "/search?key=key"):
                assert (await get(port, path)).status == 401
            known = (await get(port, "/state?token=good")).json
            poll = asyncio.create_task(get(port, f"/state?token=good&after={known['cursor']}"))
            await until(lambda: polls_of(inspector).num_delayed == 1)
            purgatory.watch(Wait(None), ["key"])
            assert (await poll).json["statistics"]["pending"] == 1


async def test_purgatory_of_another_loop_is_not_touched() -> None:
    other, stop = asyncio.new_event_loop(), threading.Event()
    purgatory = Purgatory("elsewhere")

    async def run() -> None:
        async with purgatory:
            started.set()
            await asyncio.to_thread(stop.wait)

    started = threading.Event()
    thread = threading.Thread(target=lambda: other.run_until_complete(run()))
    thread.start()
    await asyncio.to_thread(started.wait)
    async with serve(Inspector([purgatory])) as port:
        answers: list[Answer] = [await get(port, "/state"), await get(port, "/search?key=x")]
    stop.set()
    await asyncio.to_thread(thread.join)
    other.close()
    assert [answer.status for answer in answers] == [409, 409]
    assert b"another event loop" in answers[0].body


def test_inspector_needs_purgatories() -> None:
    with pytest.raises(ValueError, match="purgatories must name at least one purgatory, got none"):
        Inspector([])
    with pytest.raises(TypeError, match="purgatories must be instances of Purgatory, got 'fetch'"):
        Inspector(["fetch"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        Inspector(Purgatory())  # type: ignore[arg-type]


def test_inspector_without_starlette_names_the_extra() -> None:
    script = "import sys; sys.modules['starlette'] = None; import aiopurgatory.web.inspector"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert 'pip install "aiopurgatory[web]"' in run.stderr


def test_inspector_may_be_made_before_any_loop_runs() -> None:
    async def use() -> Any:
        async with purgatory, serve(inspector) as port:
            return await state(port)

    async def use_closed() -> Answer:
        async with serve(inspector) as port:
            return await get(port, "/state")

    purgatory = Purgatory()
    inspector = Inspector([purgatory])
    assert asyncio.run(use())["state"] == "open"
    assert asyncio.run(use_closed()).status == 409  # its loop is gone
