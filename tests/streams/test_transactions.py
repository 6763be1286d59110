"""An event of the caller's transaction is there if and only if it commits: an outbox. Only on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from private_servers import Postgres

pytest.importorskip("asyncpg")

from bus.servers import session  # type: ignore[import-not-found]

from aiopurgatory.streams import EndedError, TopicExistsError
from aiopurgatory.streams.postgres import PostgresLog

from .conftest import data_of, ended, until


@pytest.fixture
async def connection(own_postgres: Postgres) -> AsyncIterator[Any]:
    async with session(own_postgres) as connection:
        yield connection


@pytest.fixture
async def log(own_postgres: Postgres) -> AsyncIterator[PostgresLog]:
    async with PostgresLog(own_postgres.url(), timeout=3.0) as log:
        yield log


async def test_append_in_a_transaction_is_heard_at_its_commit(log: PostgresLog, connection: Any, topic: str) -> None:
    await log.append(topic, "before")
    listening = log.follow(topic)
    assert (await anext(listening)).data == "before"
    coming = asyncio.ensure_future(anext(listening))
    async with connection.transaction():
        for data in ("a", "b"):
            last = await log.append(topic, data, "kind", connection=connection)
        await asyncio.sleep(0.1)
        assert not coming.done()
        assert await log.last_id(topic) != last
        reads = log.statistics().reads
    event = await coming
    assert (event.data, event.name) == ("a", "kind")
    assert (await anext(listening)).id == last
    assert await log.append(topic, "after") == f"{last.partition('-')[0]}-4"
    assert (await anext(listening)).data == "after"
    assert log.statistics().reads == reads, "wake-ups also carry the events of a transaction"
    await listening.aclose()


async def test_append_concurrent_transactions_keep_order_and_numbers(
    own_postgres: Postgres, log: PostgresLog, topic: str
) -> None:
    """Some are rolled back, others append to the topic without a transaction. All begin it at the same time."""

    async def write(writer: int) -> list[str]:
        made = list[str]()
        async with session(own_postgres) as connection:
            for number in range(10):
                transaction = connection.transaction()
                await transaction.start()
                made += [await log.append(topic, f"{writer}.{number}", connection=connection)]
                if number % 3 == 2:
                    await transaction.rollback()
                    made.pop()
                else:
                    await transaction.commit()
        return made

    async def append() -> list[str]:
        return [await log.append(topic, f"log.{number}") for number in range(10)]

    events = asyncio.ensure_future(data_of(log, topic))
    made = [each for ids in await asyncio.gather(*map(write, range(3)), append()) for each in ids]
    await log.end(topic)
    ids = [event.id async for event in log.follow(topic)]
    assert sorted(ids[:-1]) == sorted(made)
    assert [int(id_.partition("-")[2]) for id_ in ids] == list(range(1, len(made) + 2)), "a rollback leaves no gap"
    for writer in ("0", "1", "2", "log"):
        own = [data for data in await events if data.startswith(f"{writer}.")]
        assert own == [f"{writer}.{number}" for number in range(10) if writer == "log" or number % 3 != 2]


async def test_append_of_a_log_never_started_opens_no_connection(
    own_postgres: Postgres, connection: Any, topic: str
) -> None:
    script = PostgresLog(own_postgres.url(), keep_seconds=7 * 86_400.0)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    before = await connection.fetchval(sessions)
    async with connection.transaction():
        first = await script.append(topic, "a", id="1", connection=connection)
        assert await script.append(topic, "a", id="1", connection=connection) == first
    assert await connection.fetchval(sessions) <= before  # one of an earlier test may have ended meanwhile
    kept = "SELECT expires - touched FROM events_topics WHERE topic = $1"
    assert (await connection.fetchval(kept, topic)).days == 7


async def test_append_outside_a_transaction_is_refused(log: PostgresLog, connection: Any, topic: str) -> None:
    with pytest.raises(RuntimeError, match=r"connection must be in a transaction; use 'async with connection\.trans"):
        await log.append(topic, "a", connection=connection)
    with pytest.raises(TypeError, match=r"connection must be of asyncpg, .*got 1; SQLAlchemy's has it"):
        await log.append(topic, "a", connection=1)
    assert await log.last_id(topic) is None


async def test_append_to_a_run_is_refused_and_the_transaction_goes_on(
    log: PostgresLog, connection: Any, topic: str
) -> None:
    async with log.run(topic), connection.transaction():
        with pytest.raises(TopicExistsError, match=f"topic '{topic}': it has a run"):
            await log.append(topic, "a", connection=connection)
        assert await connection.fetchval("SELECT 1") == 1
    async with connection.transaction():
        with pytest.raises(EndedError, match="it has ended"):
            await log.append(topic, "a", connection=connection)


async def test_append_of_others_waits_for_a_long_transaction(log: PostgresLog, connection: Any, topic: str) -> None:
    """As for an outage: even for longer than its timeout of 3 s."""
    async with connection.transaction():
        await log.append(topic, "first", connection=connection)
        waiting = asyncio.ensure_future(log.append(topic, "second"))
        await until(lambda: log.statistics().error is not None)
    await waiting
    assert await ended(log, topic) == ["first", "second", "done"]


@pytest.mark.parametrize("autocommit", [False, True])
async def test_append_in_a_transaction_of_psycopg(
    own_postgres: Postgres, log: PostgresLog, topic: str, autocommit: bool
) -> None:
    psycopg = pytest.importorskip("psycopg")
    options = {"autocommit": autocommit, "row_factory": psycopg.rows.dict_row}
    async with await psycopg.AsyncConnection.connect(own_postgres.url(), **options) as connection:
        if autocommit:
            with pytest.raises(RuntimeError, match="connection must be in a transaction"):
                await log.append(topic, "a", connection=connection)
        for data in ("a", "b", "never"):
            async with connection.transaction(force_rollback=data == "never"):
                await log.append(topic, data, id=data, connection=connection)
        await log.append(topic, "b", id="b")  # it was committed
        async with connection.transaction():
            await log.append(topic, "c", connection=connection)
    assert await ended(log, topic) == ["a", "b", "c", "done"]
