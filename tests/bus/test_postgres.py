"""Only on PostgreSQL: poolers, triggers, transactions of the caller's, and pg_notify() by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

asyncpg = pytest.importorskip("asyncpg")

from private_servers import Postgres, Server  # noqa: E402

from aiopurgatory import Purgatory  # noqa: E402
from aiopurgatory.bus import BusConnectError  # noqa: E402
from aiopurgatory.bus.postgres import PostgresBus, trigger_sql  # noqa: E402

from .conftest import fixture_of, made  # noqa: E402
from .servers import PgBouncer, StandbyPostgres, engine_on, run_sql, session  # noqa: E402
from .waits import Recorder, until  # noqa: E402

server = fixture_of(Postgres)


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Any]:
    async with session(server) as connection:
        await connection.execute(
            "DROP TABLE IF EXISTS jobs; DROP FUNCTION IF EXISTS aiopurgatory_jobs; CREATE TABLE jobs (id int)"
        )
        yield connection


async def test_start_pgbouncer_in_transaction_mode_is_refused(server: Server) -> None:
    says = "pgbouncer in transaction mode in between"
    with made(PgBouncer, server, "transaction") as pgbouncer, pytest.raises(BusConnectError, match=says):
        await PostgresBus(pgbouncer.url(), [], timeout=3.0).start()


async def test_start_pgbouncer_in_session_mode_works(server: Server) -> None:
    with made(PgBouncer, server, "session") as pgbouncer:
        async with PostgresBus(pgbouncer.url(), []) as bus:
            bus.publish("key")
            await asyncio.wait_for(bus.flush(), 5.0)


async def test_start_hot_standby_says_what_to_do() -> None:
    says = "it is a standby: add target_session_attrs=read-write to the dsn"
    with made(StandbyPostgres) as standby, pytest.raises(BusConnectError, match=says):
        await PostgresBus(standby.url(), []).start()


def test_explain_full_queue_says_what_to_do(server: Server) -> None:
    error = asyncpg.ProgramLimitExceededError("too many notifications in the NOTIFY queue")
    assert "end sessions that listen and are idle in a transaction" in engine_on(server.url()).explain(error)


async def test_publish_by_a_name_with_quotes_is_heard(server: Server) -> None:
    there, name = Recorder(), 'it\'s "quoted"'
    async with PostgresBus(server.url(), [], name=name) as bus, PostgresBus(server.url(), [there], name=name):
        bus.publish("key")
        await until(lambda: "key" in there.keys)


async def test_restart_gives_the_pid_of_a_session_to_another(
    server: Server, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container. The bus waits for its own abandoned sessions, not for that one, which may run for hours."""
    pid = connection.get_server_pid()
    monkeypatch.setattr(asyncpg.Connection, "get_server_pid", lambda _: pid)
    async with PostgresBus(server.url(), []) as bus:
        running = asyncio.create_task(connection.execute("SELECT pg_sleep(60)"))
        own = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_notif%'"
        await run_sql(server.url(), f"{own} AND pid NOT IN ($1, pg_backend_pid())", pid)
        await until(lambda: bus.statistics().gaps == 1 and bus.statistics().connected)
        running.cancel()


NASTY = """we"ird 'Table' %s \\ $$ {x}"""


async def test_trigger_sql_rows_publish_their_keys(server: Server, connection: Any) -> None:
    there = Recorder()
    table = '"' + NASTY.replace('"', '""') + '"'
    await connection.execute(f'DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (id int, "na""me" text, token uuid)')
    channel = "it's %s \\ a channel"
    sql = trigger_sql(NASTY, ["o'r\\d%er$", "$id", '$na"me', 7, "$token", "$$id"], bus=channel)
    await connection.execute(sql)
    await connection.execute(sql)  # again
    token = uuid.uuid4()
    async with PostgresBus(server.url(), [there], name=channel) as bus:
        await connection.execute(f"INSERT INTO {table} VALUES (1, $1, $2)", "\u00e4\n'", token)
        await connection.execute(f"UPDATE {table} SET id = 2")
        await connection.execute(f"DELETE FROM {table}")
        async with connection.transaction():
            await connection.execute(f"INSERT INTO {table} VALUES (9, NULL, NULL)")
            await run_sql(server.url(), "SELECT pg_notify($1, '8')", channel)
            await until(lambda: 8 in there.keys)
        await until(lambda: len(there.keys) == 6)
        first, second = (("o'r\\d%er$", number, "\u00e4\n'", 7, token, "$id") for number in (1, 2))
        assert there.keys == [first, first, second, second, 8, ("o'r\\d%er$", 9, None, 7, None, "$id")]
        assert bus.statistics().malformed == 0
        before = there.everything
        await connection.execute(f"INSERT INTO {table} VALUES (1, repeat('x', 10000), NULL)")
        await until(lambda: there.everything == before + 1)
        await connection.execute(f"TRUNCATE {table}")
        await until(lambda: there.everything == before + 2)


@pytest.mark.parametrize(
    ("table", "key", "options", "message"),
    [
        ("t", [], {}, "key must have at least one part"),
        ("t", [1.5], {}, "key must consist of str and int parts, got 1.5"),
        ("t", [True], {}, "key must consist of str and int parts, got True"),
        ("a.b.c", ["x"], {}, r"table must be a name, or schema.name, got 'a.b.c'"),
        ("", ["x"], {}, "table must have names of 1 to 63 bytes"),
        ("x" * 64, ["x"], {}, "table must have names of 1 to 63 bytes"),
        ("t", ["$"], {}, "key must have names of 1 to 63 bytes"),
        ("t", ["a\0"], {}, "NUL"),
        ("t", ["$$aiopurgatory$; DROP TABLE users; --"], {}, "must"),
        ("t", ["x"], {"operations": ["MERGE"]}, "operations must be some of INSERT, UPDATE, DELETE and TRUNCATE"),
        ("t", ["x"], {"limit": 0}, "limit must be"),
        ("t", ["x"], {"limit": 1.5}, "limit must be"),
    ],
)
def test_trigger_sql_bad_arguments_are_refused(table: str, key: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        trigger_sql(table, key, **options)


async def test_trigger_sql_only_of_truncate(server: Server, connection: Any) -> None:
    there = Recorder()
    await connection.execute("DROP TABLE IF EXISTS public.orders; CREATE TABLE public.orders (id int)")
    for operations in (["insert"], ["truncate"]):  # the second replaces the first
        await connection.execute(trigger_sql("public.orders", ["$id"], name="\u00e4" * 31, operations=operations))
    async with PostgresBus(server.url(), [there]):
        before = there.everything
        await connection.execute("INSERT INTO public.orders VALUES (1)")
        await connection.execute("TRUNCATE public.orders")
        await until(lambda: there.everything > before)
        assert there.keys == []


#: The first 50 characters of both are the same, as of the long names that Django makes.
STEM = "application_customer_subscription_billing_document_"


async def woken_by(server: Server, connection: Any, make: str) -> int:
    """Return how many of three waits are woken if *make* is run three times in one transaction."""
    made, there = list[int](), Recorder()
    async with Purgatory("jobs") as jobs, PostgresBus(server.url(), [jobs, there]) as bus:
        take = lambda: made.pop() if made else None  # noqa: E731
        waits = [asyncio.ensure_future(jobs.wait_for(take, ["jobs"], timeout=30.0)) for _ in range(3)]
        await until(lambda: jobs.num_delayed == 3)
        async with connection.transaction():
            for job in range(1, 4):
                made.append(job)
                await connection.execute(make)
        await connection.execute("SELECT pg_notify('aiopurgatory', '\"last\"')")
        await until(lambda: "last" in there.keys)
        await asyncio.sleep(0.05)
        woken = sum(wait.done() for wait in waits)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert bus.statistics().malformed == 0
    return woken


@pytest.mark.parametrize(
    ("message", "woken"),
    [("'@' || gen_random_uuid() || E'\\n\"jobs\"\\n+1'", 3), ("E'\"jobs\"\\n+1'", 1)],
    ids=["with a sender", "control"],
)
async def test_limits_of_one_transaction_by_hand(server: Server, connection: Any, message: str, woken: int) -> None:
    """PostgreSQL drops repeats of a notification within a transaction."""
    assert await woken_by(server, connection, f"SELECT pg_notify('aiopurgatory', {message})") == woken


async def test_trigger_sql_limit_wakes_one_for_each_row(server: Server, connection: Any) -> None:
    await connection.execute(trigger_sql("jobs", ["jobs"], operations=["INSERT"], limit=1))
    assert await woken_by(server, connection, "INSERT INTO jobs VALUES (1)") == 3


@pytest.mark.parametrize(("sql", "keys"), [("id = id", [1]), ("id = 2", [1, 2])], ids=["same key", "control"])
async def test_trigger_sql_update_publishes_each_key_once(
    server: Server, connection: Any, sql: str, keys: list[int]
) -> None:
    """With a limit, two messages of one key would wake two."""
    there = Recorder()
    await connection.execute("INSERT INTO jobs VALUES (1)")
    await connection.execute(trigger_sql("jobs", ["$id"], limit=1))
    async with PostgresBus(server.url(), [there]):
        await connection.execute(f"UPDATE jobs SET {sql}")
        await connection.execute("SELECT pg_notify('aiopurgatory', '\"last\"')")
        await until(lambda: "last" in there.keys)
        assert there.keys == [*keys, "last"]


async def test_trigger_sql_equal_keys_of_a_commit_are_published_once(server: Server, connection: Any) -> None:
    """Without a limit: a check of a key after the commit finds all of it."""
    there = Recorder()
    await connection.execute(trigger_sql("jobs", ["jobs"]))
    async with PostgresBus(server.url(), [there]):
        await connection.execute("INSERT INTO jobs SELECT generate_series(1, 100)")
        await connection.execute("DELETE FROM jobs WHERE id = 1")
        await until(lambda: len(there.keys) > 1)
        assert there.keys == ["jobs"] * 2


async def test_trigger_sql_is_one_statement(server: Server, connection: Any) -> None:
    """Libraries for migrations prepare it."""
    for _ in range(2):
        await (await connection.prepare(trigger_sql("jobs", ["jobs", "$id"]))).fetch()


@pytest.mark.parametrize(
    ("one", "two"), [(f"{STEM}lines", f"{STEM}pages"), ("my-orders", "my_orders"), ("Ä" * 31, "Ä" * 30 + "B")]
)
async def test_trigger_sql_tables_of_similar_names_share_nothing(
    server: Server, connection: Any, one: str, two: str
) -> None:
    there = Recorder()
    for table, column in ((one, "customer"), (two, "client")):
        await connection.execute(f'DROP TABLE IF EXISTS "{table}"; CREATE TABLE "{table}" ({column} int)')
        await connection.execute(trigger_sql(table, [column, f"${column}"]))
    async with PostgresBus(server.url(), [there]):
        for table in (one, two):
            await connection.execute(f'INSERT INTO "{table}" VALUES (1)')
        await until(lambda: len(there.keys) > 1)
        assert there.keys == [("customer", 1), ("client", 1)]


@pytest.mark.parametrize("replicated", [True, False])
async def test_trigger_sql_replicated_rows_publish(server: Server, connection: Any, replicated: bool) -> None:
    there = Recorder()
    await connection.execute(trigger_sql("jobs", ["jobs", "$id"], replicated=replicated))
    async with PostgresBus(server.url(), [there]):
        before = there.everything
        for role, job in (("replica", 1), ("origin", 2)):
            await connection.execute(f"SET session_replication_role = {role}; INSERT INTO jobs VALUES ({job})")
        await until(lambda: ("jobs", 2) in there.keys)
        assert (("jobs", 1) in there.keys) is replicated
        await connection.execute("SET session_replication_role = replica; TRUNCATE jobs")
        await connection.execute("SET session_replication_role = origin; INSERT INTO jobs VALUES (3)")
        await until(lambda: ("jobs", 3) in there.keys)
        assert (there.everything > before) is replicated


async def test_trigger_sql_without_ownership_needs_replicated_off(server: Server, connection: Any) -> None:
    await connection.execute(
        "CREATE ROLE tenant LOGIN PASSWORD 'secret'; GRANT TRIGGER ON jobs TO tenant; "
        "GRANT CREATE ON SCHEMA public TO tenant"
    )
    tenant = await asyncpg.connect(server.url(user="tenant:secret"))  # type: ignore[call-arg]
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="must be owner of table jobs"):
            await tenant.execute(trigger_sql("jobs", ["jobs"]))
        await tenant.execute(trigger_sql("jobs", ["jobs"], replicated=False))
    finally:
        await tenant.close()
        await connection.execute("DROP OWNED BY tenant CASCADE; DROP ROLE tenant")


async def test_publish_in_is_told_if_and_only_if_it_commits(server: Server, connection: Any) -> None:
    here, there = Recorder(), Recorder()
    async with PostgresBus(server.url(), [here]) as bus, PostgresBus(server.url(), [there]):
        for number in range(2):
            transaction = connection.transaction()
            await transaction.start()
            await bus.publish_in(connection, ("orders", number))
            await asyncio.sleep(0.05)
            assert here.keys == there.keys == []
            await (transaction.commit() if number else transaction.rollback())
        await until(lambda: here.keys and there.keys)
        assert here.keys == there.keys == [("orders", 1)]
        with pytest.raises(RuntimeError, match="connection must be in a transaction"):
            await bus.publish_in(connection, "key")
        with pytest.raises(TypeError, match="key must be"):
            await bus.publish_in(connection, [1])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="limit must be"):
            await bus.publish_in(connection, "key", limit=0)


@pytest.mark.parametrize("limit", [None, 1])
async def test_publish_in_a_transaction_repeated_adds_limits_up(
    server: Server, connection: Any, limit: int | None
) -> None:
    there = Recorder()
    script = PostgresBus(server.url())  # it is never started
    async with PostgresBus(server.url(), [there]):
        async with connection.transaction():
            for _ in range(3):
                await script.publish_in(connection, "jobs", limit=limit)
        await connection.execute("SELECT pg_notify('aiopurgatory', '\"last\"')")
        await until(lambda: "last" in there.keys)
        assert there.keys.count("jobs") == (3 if limit else 1)
