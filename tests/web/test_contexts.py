"""What polls and pages share outlives the first of them, and has none of its context variables."""

from __future__ import annotations

import asyncio
import signal
from typing import Any
from weakref import ref

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.web import LongPolling, close_on_stop
from aiopurgatory.web.inspector.snapshot import Names, View, Views
from aiopurgatory.web.signals import on_stop_signal

from . import polls
from .polls import KNOWN, AsyncGiven, Counters, Database, Given, settle
from .test_connected import Never


async def test_listening_keeps_no_session_of_the_first_poll(
    purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch, requests: Any
) -> None:
    monkeypatch.setattr("aiopurgatory.web.desk.LISTEN_AFTER", 0.02)
    polling = LongPolling(purgatory, Counters(), stop_signals=False)
    never = asyncio.Event().wait
    sessions: list[ref[Any]] = []

    async def poll() -> None:
        sessions.append(ref(requests.session.get()))
        await polling.answer("n", KNOWN, receive=never)

    polls = []
    for _ in range(20):
        polls.append(asyncio.create_task(requests.handle(poll)))
        await asyncio.sleep(0.005)
        if len(polls) > 3:
            polls.pop(0).cancel()
    assert requests.are_over(*sessions[:5])
    assert not requests.are_over(*sessions)
    polling.close()
    await asyncio.wait(polls)


@pytest.mark.parametrize("resource", ["first", "other"])
async def test_read_that_hangs_keeps_no_session_of_an_earlier_poll(
    purgatory: Purgatory, requests: Any, resource: str
) -> None:
    """Of one that shared it, or that made it wait."""
    database = Database()
    polling: LongPolling[str] = LongPolling(purgatory, database, max_reads=1, stop_signals=False)
    database.gate.clear()
    sessions: list[ref[Any]] = []

    async def poll() -> None:
        sessions.append(ref(requests.session.get()))
        await polling.answer("first", {}, {"wait": "0"})

    first = asyncio.create_task(requests.handle(poll))
    await asyncio.sleep(0)
    other = asyncio.create_task(polling.answer(resource, {}))
    await settle()
    first.cancel()  # then the other call begins, and hangs
    await asyncio.wait([first])
    del first
    await settle()
    assert ("version", resource) in database.calls
    assert requests.are_over(*sessions)
    database.gate.set()
    await other


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("what", ["poll", "parked poll", "stream"])
async def test_source_sees_no_variable_of_any_request(
    purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch, requests: Any, is_awaited: bool, what: str
) -> None:
    seen: list[object] = []

    def seeing(given: object) -> object:
        seen.append(requests.session.get())
        return given

    monkeypatch.setattr(polls, "returned", seeing)
    topics = AsyncGiven("0") if is_awaited else Given("0")
    polling: LongPolling[str] = LongPolling(purgatory, topics, stop_signals=False)

    async def ask() -> None:
        if what == "stream":
            events = await polling.events("n", {})
            await anext(events)
            await events.aclose()
        else:
            await polling.answer("n", KNOWN if what == "parked poll" else {})

    async def publish() -> None:
        topics.given = "1"
        purgatory.check_and_complete("n")

    asking = asyncio.create_task(requests.handle(ask))
    await settle()
    await requests.handle(publish)
    await asking
    assert set(seen) == {None}


async def test_live_page_goes_on_without_the_session_of_the_first(purgatory: Purgatory, requests: Any) -> None:
    views = Views([View(purgatory, [], Names(True))], {}, purgatory)
    purgatory.watch(Never(None), ["a page"])
    session = await requests.handle(lambda: views.version(0))
    assert requests.are_over(session)


async def test_stop_signal_ends_a_wait_outside_the_interrupted_request(purgatory: Purgatory, requests: Any) -> None:
    seen: list[object] = []

    class Seeing(Never):
        def on_failure(self, exc: BaseException) -> None:
            seen.append(requests.session.get())

    async def interrupted() -> None:
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, lambda *_: None)
    close_on_stop(purgatory)
    op = purgatory.watch(Seeing(None), ["key"])
    await requests.handle(interrupted)
    with pytest.raises(PurgatoryClosedError):
        await op
    assert seen == [None]


def test_handler_installed_in_a_request_does_not_keep_its_session(requests: Any) -> None:
    async def main() -> None:
        async def install() -> None:
            on_stop_signal(list)

        session = await requests.handle(install)
        assert requests.are_over(session)

    asyncio.run(main())
