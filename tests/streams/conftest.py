"""Logs of each kind: in memory, on Redis, on PostgreSQL. The same tests run on all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeVar

import pytest
from private_servers import Postgres, Redis, Server

from aiopurgatory.streams import EventLog, MemoryLog
from aiopurgatory.testing.clock import settle

S = TypeVar("S", bound=Server)

KINDS: dict[str, type[Server] | None] = {"memory": None, "redis": Redis, "postgres": Postgres}

#: For tests that open one topic in two processes. A log in memory is of one process.
ON_SERVERS = pytest.mark.parametrize(
    "kind", [kind for kind, server in KINDS.items() if server], indirect=True, scope="session"
)

#: Makes a log, and opens it. All of a test have the same topics: each is a process.
Open = Callable[..., Any]

_topics = count()


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def url(kind: str) -> Iterator[str]:
    """The address of a server of this kind; empty: there is none in memory."""
    server = KINDS[kind]
    if server is None:
        yield ""
        return
    pytest.importorskip("asyncpg" if kind == "postgres" else "redis")
    for running in started(server):
        if kind == "postgres":
            asyncio.run(make_tables(running.url()))
        yield running.url()


def started(kind: type[S]) -> Iterator[S]:
    """A server of this kind, for a fixture."""
    try:
        server = kind()
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")
    yield server
    server.remove()


async def make_tables(url: str) -> None:
    import asyncpg

    from aiopurgatory.streams.postgres import tables_sql

    connection = await asyncpg.connect(url)
    await connection.execute(tables_sql())
    await connection.close()


def log_at(url: str, options: dict[str, Any]) -> EventLog:
    if not url:
        return MemoryLog(**options)
    if url.startswith("redis"):
        from aiopurgatory.streams.redis import RedisLog

        return RedisLog(url, **options)
    from aiopurgatory.streams.postgres import PostgresLog

    return PostgresLog(url, **options)


@pytest.fixture
async def new_log(url: str) -> AsyncIterator[Open]:
    """Makes logs, which are closed at the end, and must leave no task behind."""
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        made: list[EventLog] = []

        async def new_log(**options: Any) -> EventLog:
            assert url or not made, "two logs in memory share nothing: parametrize the test by ON_SERVERS"
            log = log_at(url, options)
            made.append(log)
            return await stack.enter_async_context(log)

        yield new_log
    await settle(lambda: True)
    left = [task for task in asyncio.all_tasks() - before if not task.done() and task is not asyncio.current_task()]
    assert not left


@pytest.fixture
async def log(new_log: Open) -> EventLog:
    """A log with the default options."""
    log: EventLog = await new_log()
    return log


@pytest.fixture
def topic() -> str:
    """A topic of its own for each test."""
    return f"topic {next(_topics)}"
