"""A LongPolling, shown in place of its purgatory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling
from aiopurgatory.web.inspector import Inspector

from ..polls import Counters, Polls, settle
from .helpers import get, serve, state


async def polling_with(port: int, **figures: Any) -> Any:
    """The polling of the first state in which it is *figures*."""
    found = await state(port)
    while found["polling"] | figures != found["polling"]:
        found = await state(port, found["cursor"])
    return found["polling"]


async def test_state_tells_how_polls_were_answered() -> None:
    purgatory = Purgatory("polls", max_pending=3)
    polls = Polls(purgatory, Counters(), max_per_group=1)
    async with serve(Inspector([polls.polling])) as port:
        assert (await state(port))["state"] == "not started"
        parked = [polls.start(client="ann", group="tenant"), polls.start(client="bob"), polls.start()]
        await settle()
        refused = [await polls.now(group="tenant"), await polls.now()]
        assert [answer.status for answer in refused] == [503, 503]
        found = await polling_with(port, answered={"503": 2})
        assert (found["clients"], found["groups"], found["bodies"]) == (2, 1, 0)
        assert found["refused"] == {"group": 1, "full": 1}
        polls.publish()
        assert [(await poll).status for poll in parked] == [200] * 3
        found = await polling_with(port, answered={"503": 2, "200": 3})
        assert (found["clients"], found["groups"], found["bodies"]) == (0, 0, 1)
        assert found["body_bytes"] > 0
        await purgatory.aclose()


async def test_answer_that_never_parked_is_news() -> None:
    async with Purgatory("polls") as purgatory:
        polls = Polls(purgatory, Counters())
        async with serve(Inspector([polls.polling])) as port:
            known = await state(port)
            waiting = asyncio.create_task(state(port, known["cursor"]))
            await polls.now(known=None)
            async with asyncio.timeout(5):
                assert (await waiting)["polling"]["answered"] == {"200": 1}


async def test_polls_are_shown_under_their_public_name() -> None:
    async with Purgatory("polls") as purgatory:
        polls = Polls(purgatory, Counters())
        async with serve(Inspector([polls.polling])) as port:
            poll = await polls.park()
            assert [op["kind"] for op in (await state(port))["oldest"]] == ["LongPoll"]
        purgatory.close()
        assert (await poll).status == 503


async def test_purgatories_and_pollings_are_shown_side_by_side() -> None:
    async with Purgatory("a") as a, Purgatory("b") as b, serve(Inspector([a, LongPolling(b, Counters())])) as port:
        first, second = [(await get(port, f"/state?purgatory={number}")).json for number in (0, 1)]
        assert first["purgatories"] == ["a", "b"]
        assert (first["polling"], first["log"], second["polling"]["answered"]) == (None, None, {})


@pytest.mark.parametrize("wrong", ["fetch", LongPolling, Counters(), None])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="purgatories must be instances of Purgatory, LongPolling or EventLog, got"):
        Inspector([Purgatory(), wrong])


# event logs


async def test_log_is_shown_with_its_listeners() -> None:
    async with MemoryLog(name="runs") as log, serve(Inspector([log])) as port:
        found = await state(port)
        assert (found["purgatories"], found["log"]["topics"], found["log"]["error"]) == (["runs"], 0, None)
        await log.append("chat", "hello")
        listener = log.follow("chat")
        await anext(listener)
        found = await state(port, found["cursor"])
        while found["log"]["listeners"] == 0:
            found = await state(port, found["cursor"])
        assert (found["log"]["topics"], found["log"]["appended"], found["statistics"]["pending"]) == (1, 1, 1)
        assert found["log"]["window_bytes"] > 0
        assert [row["kind"] for row in found["oldest"]] == ["Listener"]
        await listener.aclose()


# buses


@asynccontextmanager
async def bus_shown(server: MemoryServer) -> AsyncIterator[tuple[MemoryBus, int]]:
    async with (
        Purgatory("a") as purgatory,
        MemoryBus(server, [purgatory]) as bus,
        serve(Inspector([purgatory], buses=[bus])) as port,
    ):
        yield bus, port


async def test_buses_are_shown_with_what_is_wrong() -> None:
    server = MemoryServer()
    async with bus_shown(server) as (bus, port):
        (connected,) = (await state(port))["buses"]
        assert (connected["name"], connected["connected"], connected["error"]) == ("aiopurgatory", True, None)
        assert connected["since_echo"] >= 0
        server.is_down = True
        bus.publish("key")
        found = await state(port)
        while "is down" not in (found["buses"][0]["error"] or ""):
            found = await state(port, found["cursor"])
        (down,) = found["buses"]
        assert (down["connected"], down["since_echo"], down["outbox"], down["published"]) == (False, None, 1, 1)
        server.is_down = False


async def test_bus_that_changes_is_news() -> None:
    server = MemoryServer()
    async with bus_shown(server) as (_, port), MemoryBus(server, []) as other:
        found = await state(port)
        other.publish("nobody waits for it")
        async with asyncio.timeout(5):
            while found["buses"][0]["received"] == 0:
                found = await state(port, found["cursor"])


def test_what_is_no_bus_is_refused() -> None:
    with pytest.raises(TypeError, match="buses must be instances of Bus, got 7"):
        Inspector([Purgatory()], buses=[7])  # type: ignore[list-item]
