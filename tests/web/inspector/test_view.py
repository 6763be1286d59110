"""The long polls of the page, over real sockets, and the history that its charts draw."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import quote

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.inspector import Inspector, app, snapshot
from aiopurgatory.web.inspector.snapshot import Names

from ..polls import until
from .helpers import Wait, get, polls_of, serve, state, state_with


@pytest.mark.parametrize("after", ["", "-", "x", "x-1", "-1", f"x-{'9' * 400}", "%00", "²-²"])
async def test_poll_with_a_foreign_cursor_is_answered_at_once(port: int, after: str) -> None:
    run = (await state(port))["cursor"].partition("-")[0]
    for cursor in (after, f"{run}-x", f"{run}-{'9' * 400}", f"{run}-²"):
        assert (await state(port, quote(cursor)))["cursor"]


async def test_poll_ends_when_the_purgatory_closes(
    purgatory: Purgatory, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "REFRESH", 1000.0)
    purgatory.watch(Wait(None), ["key"])
    known = await state(port)
    poll = asyncio.create_task(state(port, known["cursor"]))
    await asyncio.sleep(0.1)
    assert not poll.done()
    purgatory.close()
    last = await asyncio.wait_for(poll, 5)
    assert (last["state"], last["statistics"]["pending"], last["statistics"]["failed"]) == ("closed", 0, 1)
    # And the page does not wait there any more.
    assert (await get(port, f"/state?wait=0&after={last['cursor']}")).status == 204


async def test_purgatory_may_be_started_later_than_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start is noticed at once."""
    monkeypatch.setattr(snapshot, "REFRESH", 1000.0)
    purgatory = Purgatory("late")
    async with serve(Inspector([purgatory])) as port:
        new = await state(port)
        assert new["state"] == "not started"
        await purgatory.start()
        assert (await state(port, new["cursor"]))["state"] == "open"
        await purgatory.aclose()
        assert (await state_with(port))["state"] == "closed"


def test_purgatory_that_is_started_in_the_next_loop_is_followed() -> None:
    async def ask(after: str = "") -> Any:
        async with serve(inspector) as port:
            return await state(port, after)

    async def live(after: str) -> Any:
        async with purgatory:
            purgatory.watch(Wait(None), ["key"])
            return await ask(after)

    purgatory = Purgatory()
    inspector = Inspector([purgatory])
    answers = [asyncio.run(live(""))]
    for use in (ask, live, ask):
        answers.append(asyncio.run(use(answers[-1]["cursor"])))
    assert [answer["state"] for answer in answers] == ["open", "closed", "open", "closed"]
    assert [answer["statistics"]["pending"] for answer in answers] == [1, 0, 1, 0]


async def test_purgatory_of_another_loop_is_let_go(purgatory: Purgatory, inspector: Inspector, port: int) -> None:
    async def live() -> None:
        async with purgatory:
            started.set()
            await asyncio.to_thread(stop.wait)

    started, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(live()))
    known = await state(port)
    poll = asyncio.create_task(get(port, f"/state?after={known['cursor']}"))
    await until(lambda: polls_of(inspector).num_delayed == 1)
    purgatory.close()
    thread.start()
    started.wait()  # this loop has not had a turn since
    refused = [await get(port, path) for path in ("/state", "/search?key=x")]
    assert [answer.status for answer in refused] == [409, 409]
    assert b"another event loop" in refused[0].body
    stop.set()
    await asyncio.to_thread(thread.join)
    assert (await poll).json["state"] == "closed"


async def test_too_many_polls_are_refused(purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_POLLS", 3)
    async with serve(Inspector([purgatory])) as port:
        known = await state(port)
        polls = [asyncio.create_task(get(port, f"/state?after={known['cursor']}")) for _ in range(4)]
        done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        for poll in waiting:
            poll.cancel()


def calls_of(function: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The purgatories of which *function* takes a snapshot from now on."""
    calls: list[object] = []
    real = getattr(snapshot, function)

    def counted(purgatory: Purgatory, names: Names) -> Any:
        calls.append(purgatory)
        return real(purgatory, names)

    monkeypatch.setattr(snapshot, function, counted)
    return calls


async def test_ten_pages_cost_as_one(purgatory: Purgatory, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = calls_of("take_keys", monkeypatch)
    first = await state(port)
    purgatory.watch(Wait(None), ["key"])
    answers = await asyncio.gather(*(state(port, first["cursor"]) for _ in range(10)))
    assert {answer["statistics"]["pending"] for answer in answers} == {1}
    await asyncio.sleep(0.2)  # time for ten snapshots of the figures, which have not changed
    assert len(taken) == 2


async def test_no_snapshot_is_taken_when_no_page_is_open(
    purgatory: Purgatory, inspector: Inspector, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = calls_of("take_figures", monkeypatch)
    known = await state(port)
    poll = asyncio.create_task(state(port, known["cursor"]))
    await until(lambda: len(taken) > 3)
    poll.cancel()
    await until(lambda: polls_of(inspector).num_delayed == 0)
    await asyncio.sleep(0.1)
    before = len(taken)
    purgatory.watch(Wait(None), ["key"])
    await asyncio.sleep(0.2)
    assert len(taken) == before
    again = await state(port)
    assert again["statistics"]["pending"] == 1
    assert again["history"][0] == known["history"][0]


async def test_history_tells_news_and_silence(purgatory: Purgatory, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await state(port)
    assert [row[1:] for row in first["history"]] == [[0, 0, 0, 0, 0]]
    poll = asyncio.create_task(state(port, first["cursor"]))
    taken = calls_of("take_figures", monkeypatch)
    await until(lambda: len(taken) > 10)
    purgatory.watch(Wait(None), ["key"])
    second = await poll
    *still, moved = second["history"]
    assert [row[1:] for row in still] == [[0, 0, 0, 0, 0]] * len(still)
    assert moved[1:] == [1, 0, 0, 0, 0]
    assert still[-1][0] - still[0][0] > 8 * snapshot.REFRESH
    assert second["now"] >= moved[0]
    assert (await state(port))["history"][: len(still) + 2] == [*first["history"], *still, moved]


async def test_history_is_bounded(purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "HISTORY", 5)
    async with serve(Inspector([purgatory])) as port:
        found = await state(port)
        for _ in range(10):
            purgatory.watch(Wait(None), ["key"])
            found = await state(port, found["cursor"])
        assert len((await state(port))["history"]) == 5
