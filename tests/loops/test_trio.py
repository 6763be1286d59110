"""On trio, the first use of anything says what is needed instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from web.exchange import asked  # type: ignore[import-not-found]
from web.polls import AsyncGiven, Given  # type: ignore[import-not-found]

from aiopurgatory import Purgatory
from aiopurgatory.bus import LocalBus
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.journal import Journal
from aiopurgatory.streams import MemoryLog
from aiopurgatory.streams.postgres import PostgresLog
from aiopurgatory.streams.redis import RedisLog
from aiopurgatory.testing import ManualClock, until_pending
from aiopurgatory.web import EventRoute, LongPolling, LongPollRoute, close_on_stop

pytest.importorskip("trio", reason="trio is not installed")

#: Nothing connects: the loop is asked for first.
REDIS, POSTGRES = "redis://127.0.0.1:1", "postgresql://127.0.0.1:1/postgres"


async def get(route: Callable[..., Awaitable[None]]) -> None:
    await asked(route, path_params={"id": "7"})


async def run_of(log: MemoryLog) -> None:
    async with log.run("topic"):
        pass


FIRST_USES: dict[str, Callable[[Path], object]] = {
    "purgatory": lambda _: Purgatory().start(),
    "local bus": lambda _: LocalBus([]).start(),
    "redis bus": lambda _: RedisBus(REDIS).start(),
    "postgres bus": lambda _: PostgresBus(POSTGRES).start(),
    "journal": lambda folder: Journal(folder).start(),
    "memory log": lambda _: MemoryLog().start(),
    "redis log": lambda _: RedisLog(REDIS).start(),
    "postgres log": lambda _: PostgresLog(POSTGRES).start(),
    "append": lambda _: MemoryLog().append("topic", "data"),
    "end": lambda _: MemoryLog().end("topic"),
    "run": lambda _: run_of(MemoryLog()),
    "follow": lambda _: anext(MemoryLog().follow("topic")),
    "long polling": lambda _: LongPolling(Purgatory(), Given()).start(),
    "poll": lambda _: get(LongPollRoute(LongPolling(Purgatory(), Given()))),
    "awaited poll": lambda _: get(LongPollRoute(LongPolling(Purgatory(), AsyncGiven()))),
    "stream": lambda _: get(EventRoute(LongPolling(Purgatory(), Given()))),
    "poll of a log": lambda _: get(LongPollRoute(MemoryLog())),
    "stream of a log": lambda _: get(EventRoute(MemoryLog())),
    "stop signals": lambda _: close_on_stop(Purgatory()),
    "manual clock": lambda _: ManualClock().advance(1.0),
    "until pending": lambda _: until_pending(Purgatory()),
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_first_use_on_trio_names_the_remedy(use: Callable[[Path], object], tmp_path: Path) -> None:
    async def main() -> None:
        used = use(tmp_path / "journal")
        if isinstance(used, Awaitable):
            await used

    with pytest.raises(
        RuntimeError, match=r"^no running event loop of asyncio: .* needs asyncio .* AnyIO, use its asyncio backend: "
    ):
        anyio.run(main, backend="trio")
    assert not (tmp_path / "journal").exists()
