"""A bus that cannot publish or subscribe costs PostgreSQL at most two sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

import pytest

pytest.importorskip("asyncpg")

from private_servers import Postgres, Server

from aiopurgatory.bus import Bus, BusConnectError, postgres
from aiopurgatory.bus.postgres import PostgresBus, PostgresEngine

from .conftest import fixture_of, made
from .servers import session, started
from .waits import Recorder, until

BUSES = 3
TIMEOUT = 1.0


server = fixture_of(Postgres)


@asynccontextmanager
async def buses(server: Server, count: int = BUSES, timeout: float = TIMEOUT) -> AsyncIterator[list[Bus]]:
    async with AsyncExitStack() as stack:
        opened: list[Bus] = [
            PostgresBus(server.url(), [Recorder()], heartbeat=TIMEOUT, timeout=timeout) for _ in range(count)
        ]
        for bus in opened:
            stack.push_async_callback(bus.aclose)
            await started(bus)
        yield opened


async def sessions(admin: Any, condition: str = "true") -> int:
    count = await admin.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
        f"AND pid <> pg_backend_pid() AND {condition}"
    )
    return int(count)


async def most(admin: Any, condition: str, seconds: float) -> int:
    """The most sessions at a time, while *seconds* pass."""
    highest = 0
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        highest = max(highest, await sessions(admin, condition))
        await asyncio.sleep(0.05)
    return highest


@asynccontextmanager
async def standby_away(admin: Any) -> AsyncIterator[None]:
    await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await admin.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")


async def notify_until_it_waits(connection: Any) -> None:
    """The server's processes learn one after the other that the standby is away."""
    while True:
        await connection.execute("SELECT pg_notify('elsewhere', ''), pg_logical_emit_message(true, 'written', '')")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def lock_of_notify_held(server: Server) -> AsyncIterator[Any]:
    """A commit with a NOTIFY waits for a synchronous standby that is away. It holds the lock every NOTIFY needs."""
    async with session(server) as admin, session(server) as holder:
        async with standby_away(admin):
            holding = asyncio.create_task(notify_until_it_waits(holder))
            async with asyncio.timeout(10.0):
                while not await sessions(admin, "wait_event = 'SyncRep'"):  # noqa: ASYNC110 the server's state
                    await asyncio.sleep(0.01)
            yield admin
            holding.cancel()
        await asyncio.wait([holding])


def says(bus: Bus, words: str) -> bool:
    """Whether the error of *bus* has these *words*."""
    return words in (bus.statistics().error or "")


async def test_publish_lock_held_leaves_no_sessions_behind(server: Server) -> None:
    async with buses(server) as held, lock_of_notify_held(server) as admin:
        assert await most(admin, "wait_event_type = 'Lock'", 4.0) <= BUSES
        assert await sessions(admin) <= 4 * BUSES + 1
        for bus in held:  # on a busy machine, it may have run into its own timeout last
            await until(partial(says, bus, "holds the lock of NOTIFY"), 30.0)
            assert not says(bus, "pgbouncer")
    # Closed, and the lock is free.


async def test_publish_lock_free_again_goes_on(server: Server) -> None:
    there = Recorder()
    async with buses(server, 1, 1.0) as (one,), PostgresBus(server.url(), [there], heartbeat=60.0, timeout=60.0):
        async with lock_of_notify_held(server):
            one.publish("key")
            await until(lambda: one.statistics().gaps > 0)
        await asyncio.wait_for(one.flush(), 10.0)
        await until(lambda: "key" in there.keys)


async def test_idle_session_timeout_is_no_gap(server: Server) -> None:
    async with PostgresBus(server.url() + "&idle_session_timeout=4000", [], heartbeat=1.0) as bus:
        await asyncio.sleep(5.0)
        assert bus.statistics().gaps == 0


async def full_queue(idle: Any, admin: Any) -> None:
    """Keep 700 MB in the queue of NOTIFY, which take a second to read, or longer."""
    await idle.execute("LISTEN elsewhere")
    await idle.execute("BEGIN")
    await idle.execute("SELECT 1")
    for _ in range(22):
        await admin.execute("SELECT pg_notify('elsewhere', n || repeat('x', 300)) FROM generate_series(1, 100000) n")


RUNS_LISTEN = "state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock' AND query LIKE '%LISTEN %'"


@pytest.mark.chaos
@pytest.mark.timeout(120)
async def test_chaos_queue_is_long_two_sessions_each() -> None:
    """Eight buses are cut off, and their timeout is shorter than a LISTEN takes."""
    with made(Postgres) as server:
        async with session(server) as idle, session(server) as admin, buses(server, 8, 0.5) as listening:
            await full_queue(idle, admin)
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND query LIKE '%pg_notify($1%'"
            )
            # Younger ones may have been left, and end as soon as they get a core.
            assert await most(admin, "backend_start < clock_timestamp() - interval '1 second'", 5.0) <= 8 * 2 + 1
            idle.terminate()
            await until(lambda: all(bus.statistics().connected for bus in listening), 30.0)


@pytest.mark.chaos
@pytest.mark.timeout(120)
async def test_chaos_listen_begun_together_runs_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the median: sessions that have just begun, or wait for a core to end, look as if they ran it."""
    together, listen = asyncio.Barrier(4), PostgresEngine._listen

    async def listen_together(self: PostgresEngine, *connections: Any) -> None:
        await together.wait()
        await listen(self, *connections)

    monkeypatch.setattr(PostgresEngine, "_listen", listen_together)
    with made(Postgres) as server:
        async with session(server) as idle, session(server) as admin:
            await full_queue(idle, admin)
            opened = [PostgresBus(server.url(), [], timeout=60.0) for _ in range(4)]
            starting = asyncio.gather(*(bus.start() for bus in opened))
            found = []
            while not starting.done():
                found.append(await sessions(admin, RUNS_LISTEN))
                await asyncio.sleep(0.01)
            await starting
            for bus in opened:
                await bus.aclose()
            assert median(count for count in found if count) < 2


#: As the LISTEN of a long queue, it goes on when it is cancelled.
UNENDING = """CREATE OR REPLACE FUNCTION unending() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
PERFORM pg_sleep(2); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(2); END $$"""


async def test_listen_does_not_end_two_sessions_at_most(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first, the LISTEN of a bus takes longer than its timeout."""
    async with session(server) as admin:
        await admin.execute(UNENDING)
        async with buses(server, 1) as (bus,):
            with monkeypatch.context() as patched:
                patched.setattr(
                    postgres, "_LISTEN", postgres._LISTEN.replace("{listen}", "SELECT unending(); {listen}")
                )
                await admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_notify($1%' "
                    "AND pid <> pg_backend_pid()"
                )
                highest = await most(admin, "state = 'active' AND query LIKE '%unending(); LISTEN %'", 5.0)
            await until(lambda: bus.statistics().connected, 15.0)
        assert highest == 1


async def test_start_another_listen_runs_says_why(server: Server) -> None:
    async with session(server) as other:
        await other.execute(f"SELECT pg_advisory_lock({postgres._LISTEN_LOCK})")
        with pytest.raises(BusConnectError, match=r"the queue of NOTIFY is 0% full; end sessions"):
            await PostgresBus(server.url(), []).start()
