"""Only on PostgreSQL: poolers and triggers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

asyncpg = pytest.importorskip("asyncpg")

from private_servers import Postgres, Server  # noqa: E402

from aiopurgatory.bus import BusConnectError  # noqa: E402
from aiopurgatory.bus.postgres import PostgresBus, trigger_sql  # noqa: E402

from .conftest import fixture_of, made  # noqa: E402
from .servers import PgBouncer, StandbyPostgres, engine_on  # noqa: E402
from .waits import Recorder, until  # noqa: E402

server = fixture_of(Postgres)


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url())
    yield connection
    await connection.close()


@pytest.fixture
def pgbouncer(request: pytest.FixtureRequest, server: Server) -> Iterator[Server]:
    try:
        bouncer = PgBouncer(server, request.param)
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")
    with bouncer:
        yield bouncer


@pytest.mark.parametrize("pgbouncer", ["transaction"], indirect=True)
async def test_start_pgbouncer_in_transaction_mode_is_refused(pgbouncer: Server) -> None:
    with pytest.raises(BusConnectError, match="pgbouncer in transaction mode in between"):
        await PostgresBus(pgbouncer.url(), [], timeout=1.0).start()


@pytest.mark.parametrize("pgbouncer", ["session"], indirect=True)
async def test_start_pgbouncer_in_session_mode_works(pgbouncer: Server) -> None:
    here = Recorder()
    async with PostgresBus(pgbouncer.url(), [here]) as bus:
        bus.publish("key")
        await asyncio.wait_for(bus.flush(), 5.0)


async def test_start_hot_standby_says_what_to_do() -> None:
    says = "it is a standby: add target_session_attrs=read-write to the dsn"
    with made(StandbyPostgres) as standby, pytest.raises(BusConnectError, match=says):
        await PostgresBus(standby.url(), []).start()


def test_explain_full_queue_says_what_to_do(server: Server) -> None:
    error = asyncpg.ProgramLimitExceededError("too many notifications in the NOTIFY queue")
    assert "end sessions that listen and are idle in a transaction" in engine_on(server.url()).explain(error)


async def test_publish_leaves_no_setting_behind(server: Server, connection: Any) -> None:
    async with PostgresBus(server.url(), [], name='it\'s "quoted"') as bus:
        bus.publish("key")
        await bus.flush()
    assert await connection.fetchval("SHOW synchronous_commit") == "on"


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
            await asyncio.sleep(0.05)
            assert len(there.keys) == 4
        await until(lambda: len(there.keys) == 5)
        first, second = (("o'r\\d%er$", number, "\u00e4\n'", 7, token, "$id") for number in (1, 2))
        assert there.keys == [first, first, second, second, ("o'r\\d%er$", 9, None, 7, None, "$id")]
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
