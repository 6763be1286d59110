"""A log on servers that others run: restored, restricted, behind a pooler, with a pool of one's own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
from pathlib import Path

import pytest
from private_servers import Postgres, Redis, Server, program

asyncpg = pytest.importorskip("asyncpg")
pytest.importorskip("redis")

from bus.conftest import made  # type: ignore[import-not-found] # noqa: E402
from bus.servers import ClusterRedis, PgBouncer, no_connections, run_sql  # type: ignore[import-not-found] # noqa: E402

from aiopurgatory import GoneError, PurgatoryError  # noqa: E402
from aiopurgatory.bus import BusConnectError  # noqa: E402
from aiopurgatory.bus.postgres import PostgresBus  # noqa: E402
from aiopurgatory.bus.redis import RedisBus  # noqa: E402
from aiopurgatory.streams import StoreDownError  # noqa: E402
from aiopurgatory.streams.postgres import PostgresLog, tables_sql  # noqa: E402
from aiopurgatory.streams.redis import RedisLog  # noqa: E402
from aiopurgatory.streams.writes import RECENT  # noqa: E402

from .conftest import LogPostgres, ended, log_at, until  # noqa: E402


class WithAof(Redis):
    settings = ("appendonly yes", "appendfsync no", "auto-aof-rewrite-percentage 0")


def piped(tool: str, server: Server, *options: str, text: bytes | None = None) -> bytes:
    """Run pg_dump or psql."""
    command = [str(program(tool)), "-h", "127.0.0.1", "-p", str(server.port), "-U", "bus", *options]
    environment = os.environ | {"PGPASSWORD": "secret"}
    return subprocess.run(command, env=environment, input=text, capture_output=True, check=True).stdout


@pytest.mark.parametrize("where", ["another server", "another database", "the same place", "emptied tables"])
async def test_postgres_restored_dump_is_another_life(own_postgres: Postgres, topic: str, where: str) -> None:
    """Its numbers are given again: a listener that has seen a lost event would miss the new one."""
    url, target = own_postgres.url(), own_postgres
    async with PostgresLog(url) as log:
        for number in range(3):
            await log.append(topic, f"old {number}")
        kept = await log.last_id(topic)
        options = ("--data-only", "postgres") if where == "emptied tables" else ("postgres",)
        dump = await asyncio.to_thread(piped, "pg_dump", own_postgres, *options)
        last = await log.append(topic, "old 3")
    if where == "another server":
        target = Postgres()
        url = target.url()
    elif where == "another database":
        await run_sql(url, "CREATE DATABASE restored")
        url = own_postgres.url(database="restored")
    else:
        what = "TRUNCATE" if where == "emptied tables" else "DROP TABLE"
        await run_sql(url, f"{what} events_topics, events_events")
    try:
        await asyncio.to_thread(piped, "psql", target, url.rpartition("/")[2].partition("?")[0], text=dump)
        async with PostgresLog(url) as log:
            await log.append(topic, "new 3")
            with pytest.raises(GoneError):
                await anext(log.follow(topic, last))
            assert (await anext(log.follow(topic, kept))).data == "new 3"
    finally:
        if where == "another database":
            await run_sql(own_postgres.url(), "DROP DATABASE restored WITH (FORCE)")
        if target is not own_postgres:
            target.remove()


async def test_postgres_crash_that_loses_commits_is_told() -> None:
    """With synchronous_commit=off, as some servers have it. Other processes would use the lost numbers."""

    class Careless(LogPostgres):
        settings = ("synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB")

    with Careless() as server:
        async with PostgresLog(server.url()) as writer:
            kept = await writer.append("room", "kept")
            await run_sql(server.url(), "CHECKPOINT")
            flushes = "SELECT pid FROM pg_stat_activity WHERE backend_type = $1"
            os.kill(await run_sql(server.url(), flushes, "walwriter"), signal.SIGSTOP)
            lost = await writer.append("room", "lost")
            server.kill()
        server.start()
        async with PostgresLog(server.url()) as other:
            assert await other.last_id("room") == kept, "the control: the crash has lost it"
            await other.append("room", "new")
            with pytest.raises(GoneError):
                await anext(other.follow("room", lost))
            assert (await anext(other.follow("room", kept))).data == "new"


async def test_postgres_restart_takes_no_listener_s_place() -> None:
    """Each start is another life of the data, but ids of earlier lives stay valid: nothing was lost."""
    with LogPostgres() as server:
        async with PostgresLog(server.url()) as log:
            ids, live = [await log.append("room", "0")], log.follow("room")
            for number in range(1, 4):
                for step in (server.kill, server.start):
                    await asyncio.to_thread(step)
                ids.append(await log.append("room", str(number), id=str(number)))
            assert [(await anext(live)).data for _ in ids] == ["0", "1", "2", "3"]
            assert len({id_.partition("-")[0] for id_ in ids}) == 4, "the control: each start was noticed"
        async with PostgresLog(server.url()) as other:
            for number, id_ in enumerate(ids[:-1]):
                assert (await anext(other.follow("room", id_))).data == str(number + 1)


@pytest.mark.parametrize("function", ["pg_current_wal_lsn() RETURNS pg_lsn", "pg_control_system() RETURNS record"])
async def test_postgres_that_hides_its_wal_and_identity_is_used(function: str) -> None:
    """As Aurora does without logical replication."""
    name = function.partition("(")[0]
    with LogPostgres() as server:
        await run_sql(
            server.url(),
            f"""SET allow_system_table_mods = on; ALTER FUNCTION pg_catalog.{name}() RENAME TO {name}_was;
            CREATE FUNCTION pg_catalog.{function} LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '55000'; END $$""",
        )
        async with PostgresLog(server.url()) as log:
            await log.append("room", "a")
            assert await ended(log, "room") == ["a", "done"]


async def test_postgres_standby_names_itself(own_postgres: Postgres) -> None:
    """As behind an address that leads to a standby while the bus has the primary."""
    says = "it is a standby: add target_session_attrs=read-write to the dsn"
    with LogPostgres() as server:
        server.kill()
        server.run(["touch", f"{server.folder}/data/standby.signal"])
        server.start()
        bus = PostgresBus(own_postgres.url(), [])
        log = PostgresLog(server.url(), bus=bus)
        with pytest.raises(StoreDownError, match=says):
            await log.start()
        store = log._tables
        store._pool = await asyncpg.create_pool(server.url(), min_size=0)  # as if it had been the primary
        with pytest.raises(StoreDownError, match=says):
            await store.read("room", 0, 1, 1)
        await log._store.aclose()
        await bus.aclose()


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_postgres_behind_pgbouncer(own_postgres: Postgres, topic: str, mode: str) -> None:
    with made(PgBouncer, own_postgres, mode) as bouncer:
        async with PostgresBus(own_postgres.url(), []) as bus:
            log = PostgresLog(bouncer.url(), bus=bus)
            if mode == "transaction":
                for _ in range(5):
                    with pytest.raises(PurgatoryError, match="is there a pgbouncer in transaction mode") as raised:
                        await log.start()
                    assert not isinstance(raised.value, StoreDownError)
                return
            async with log:
                await asyncio.gather(*[log.append(topic, str(number)) for number in range(20)])
                assert len(await ended(log, topic)) == 21


async def test_postgres_pool_of_ones_own_stays_open(own_postgres: Postgres, topic: str) -> None:
    async with asyncpg.create_pool(own_postgres.url(), min_size=1, max_size=2) as pool:
        async with PostgresLog(own_postgres.url(), pool=pool) as log:
            await asyncio.gather(*[log.append(topic, str(number)) for number in range(5)])
            assert pool.get_size() <= 2
            async with pool.acquire() as connection, connection.transaction():
                await log.append(topic, "paid", connection=connection)
            assert (await ended(log, topic))[-2:] == ["paid", "done"]
        assert await pool.fetchval("SELECT 1") == 1
    with pytest.raises(ValueError, match="pool must be a pool of asyncpg, or None, got 4"):
        PostgresLog(own_postgres.url(), pool=4)


async def test_postgres_append_is_one_statement(topic: str) -> None:
    class Told(LogPostgres):
        settings = ("log_statement=all",)

    with Told() as server:
        async with PostgresLog(server.url(), heartbeat=60.0) as log:
            with open(f"{server.folder}/log") as file:  # noqa: ASYNC230
                text = ""
                while text.count("SKIP LOCKED") < 2:  # the check at the start, and the first deletion
                    await log.append(topic, "a")
                    text += file.read()
                for _ in range(10):
                    await log.append(topic, "a")
                told = file.read()
        # None of the pool, which resets a connection, or of a transaction. (asyncpg may look up types meanwhile.)
        assert [told.count(words) for words in ("pg_notify($8, $9)", "UNLISTEN", "BEGIN")] == [10, 0, 0], told


@pytest.mark.parametrize(("recent", "least", "most"), [(RECENT, 500, 1_000), (0, 1_500, 3_000)], ids=["", "control"])
@pytest.mark.parametrize("kind", [LogPostgres, WithAof])
async def test_append_with_an_id_writes_few_bytes(
    monkeypatch: pytest.MonkeyPatch, kind: type[Server], recent: int, least: int, most: int
) -> None:
    """A topic remembers 64 writers, and each id is one."""
    monkeypatch.setattr("aiopurgatory.streams.writes.RECENT", recent)
    with kind() as server:

        async def written() -> int:
            if kind is LogPostgres:
                return int(await run_sql(server.url(), "SELECT pg_current_wal_lsn() - '0/0' + $1", 0))
            return sum(path.stat().st_size for path in Path(server.folder).rglob("*.aof"))  # noqa: ASYNC240

        async with log_at(server.url()) as log:
            for number in range(160):
                if number == 80:
                    before = await written()
                await log.append("room", "x" * 100, id=str(number))
            assert least < (await written() - before) / 80 < most


@pytest.mark.parametrize("driver", ["", "+asyncpg", "+psycopg"])
async def test_postgres_dsn_of_sqlalchemy_is_understood(own_postgres: Postgres, topic: str, driver: str) -> None:
    async with PostgresLog(own_postgres.url().replace("postgresql:", f"postgresql{driver}:")) as log:
        await log.append(topic, "a")


async def test_postgres_tables_are_made_by_one_statement(own_postgres: Postgres) -> None:
    """Libraries for migrations prepare it. It may run again."""
    connection = await asyncpg.connect(own_postgres.url())
    for _ in range(2):
        await (await connection.prepare(tables_sql("migrated"))).fetch()
    await connection.close()
    async with PostgresLog(own_postgres.url(), name="migrated") as log:
        await log.append("room", "a")


def test_loop_that_ends_without_aclose_leaves_no_session(own_server: Server) -> None:
    """As of a script, a notebook, or Django's tests: a test database could not be dropped."""
    log = log_at(own_server.url())

    async def use() -> None:
        await log.append("room", "x")

    gc.disable()  # it would hang up
    try:
        for _ in range(3):
            asyncio.run(use())
            asyncio.run(no_connections(own_server))
    finally:
        gc.enable()


async def test_redis_cluster_is_refused_at_the_start() -> None:
    with ClusterRedis() as node:
        says = f"Redis at 127.0.0.1:{node.port} is a Redis Cluster, where each node has some of the keys: use another"
        for _ in range(2):
            with pytest.raises(PurgatoryError, match=says):
                await RedisLog(node.url()).start()
        with pytest.raises(BusConnectError, match=f"replay= needs one server: {says}"):
            await RedisBus(node.url(), [], replay=100).start()
        async with RedisBus(node.url(), []) as bus:  # the control: messages reach all nodes
            await until(lambda: bus.statistics().connected)
