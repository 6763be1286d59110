"""A LongPolling, shown in place of its purgatory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling
from aiopurgatory.web.inspector import Inspector

from ..polls import Counters, Polls
from .helpers import get, serve, state


async def test_answer_that_never_parked_is_news() -> None:
    async with Purgatory("polls") as purgatory:
        polls = Polls(purgatory, Counters())
        async with serve(Inspector([polls.polling])) as port:
            known = await state(port)
            waiting = asyncio.create_task(state(port, known["cursor"]))
            await polls.now(known=None)
            async with asyncio.timeout(5):
                assert (await waiting)["polling"]["answered"] == {"200": 1}


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


# buses


@asynccontextmanager
async def bus_shown(server: MemoryServer) -> AsyncIterator[tuple[MemoryBus, int]]:
    async with (
        Purgatory("a") as purgatory,
        MemoryBus(server, [purgatory]) as bus,
        serve(Inspector([purgatory], buses=[bus])) as port,
    ):
        yield bus, port


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
