"""Logs of each kind: in memory, on Redis, on PostgreSQL. The same tests run on all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
from bus.conftest import fixture_of, made  # type: ignore[import-not-found]
from bus.waits import until as until  # type: ignore[import-not-found]
from private_servers import Postgres, Redis, Server, program

from aiopurgatory.streams import EventLog, MemoryLog
from aiopurgatory.testing.manual_clock import settle

from .virtual import VirtualLoop


class LogPostgres(Postgres):
    """With the tables of a log."""

    def __init__(self) -> None:
        from aiopurgatory.streams.postgres import tables_sql

        super().__init__()
        self.run([str(program("psql")), self.url(), "-c", tables_sql()])


KINDS: dict[str, type[Server] | None] = {"memory": None, "redis": Redis, "postgres": LogPostgres}

#: For tests that open one topic in two processes. A log in memory is of one process.
ON_SERVERS = pytest.mark.parametrize(
    "kind", [kind for kind, server in KINDS.items() if server], indirect=True, scope="session"
)

#: Makes a log, and opens it. All of a test have the same topics: each is a process.
Open = Callable[..., Any]

_topics = count()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Run the tests of outages in virtual time, and the tests of chaos once: their workers are in other processes."""
    if "test_outages" in item.nodeid:
        return {"virtual": VirtualLoop}
    return {"asyncio": asyncio.new_event_loop} if "chaos/" in item.nodeid else None


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
    with made(server) as running:
        yield running.url()


own_postgres, own_redis = fixture_of(LogPostgres), fixture_of(Redis)
#: It is to be killed.
own_server = fixture_of(Redis, LogPostgres, scope="function")


def log_at(url: str, **options: Any) -> EventLog:
    """The log on the server at *url*; empty: in memory."""
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
            log = log_at(url, **options)
            made.append(log)
            return await stack.enter_async_context(log)

        yield new_log
    await assert_no_tasks(before)


async def assert_no_tasks(before: set[asyncio.Task[Any]]) -> None:
    """Assert that the log has left no task behind. Args: before: the tasks that there were without it."""
    await settle(lambda: True)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert [task for task in left if not task.done()] == []


async def data_of(log: EventLog, topic: str, after: str | None = None) -> list[str]:
    """Return the data of all events, with the reason of the end."""
    return [event.data async for event in log.follow(topic, after)]


async def ended(log: EventLog, topic: str, after: str | None = None) -> list[str]:
    """End the topic, and return the data of all events, with the reason of the end."""
    await log.end(topic)
    return await data_of(log, topic, after)


@pytest.fixture
async def log(new_log: Open) -> EventLog:
    """A log with the default options."""
    log: EventLog = await new_log()
    return log


@pytest.fixture
def topic() -> str:
    """A topic of its own for each test."""
    return f"topic {next(_topics)}"
