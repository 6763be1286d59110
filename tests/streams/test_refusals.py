"""What a real server refuses is an outage that heals, but for mistakes. They are said at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from bus.servers import bus_on, session  # type: ignore[import-not-found]
from private_proxy import Proxy
from private_servers import Postgres, Redis, Server

pytest.importorskip("redis")
pytest.importorskip("prometheus_client")
pytest.importorskip("asyncpg")

import asyncpg
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis as Client

from aiopurgatory import PurgatoryError
from aiopurgatory.metrics import Metrics
from aiopurgatory.streams import StoreDownError, StoreError, postgres
from aiopurgatory.streams.postgres import PostgresLog
from aiopurgatory.streams.redis import RedisLog

from .conftest import data_of, ended, log_at, until

#: Refuses each commit with an SQLSTATE.
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'refused' USING ERRCODE = '{code}';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON "events_events" FOR EACH ROW EXECUTE FUNCTION refuse();
"""
ALLOW = 'DROP TRIGGER IF EXISTS refuse ON "events_events"; DROP FUNCTION IF EXISTS refuse()'

#: A script that runs for a second and a half. After .2 s, the server answers BUSY to others.
BUSY = """
local begun = redis.call('TIME')
repeat
    local now = redis.call('TIME')
until (now[1] - begun[1]) + (now[2] - begun[2]) / 1000000 > 1.5
"""


#: Expects an error that is no outage.
mistake = partial(pytest.raises, StoreError, check=lambda exc: not isinstance(exc, StoreDownError))


@pytest.fixture
async def admin(own_postgres: Postgres) -> AsyncIterator[asyncpg.Connection]:
    async with session(own_postgres) as connection:
        yield connection
        await connection.execute(ALLOW)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("55000", "recovery"),
        ("28P01", "password"),
        ("55P03", "lock timeout"),
        ("58030", "disk"),
        ("XX000", "pooler"),
        ("0A000", "cached plan"),
        ("54000", "full queue of NOTIFY"),
    ],
)
async def test_postgres_refusal_that_passes_is_waited_for(
    own_postgres: Postgres, admin: asyncpg.Connection, topic: str, code: str, what: str
) -> None:
    async with log_at(own_postgres.url()) as log:
        await admin.execute(REFUSE.format(code=code))
        async with log.run(topic) as run:
            appending = asyncio.create_task(run.append("a"))
            await until(lambda: "refused" in str(log.statistics().error))
            await admin.execute(ALLOW)
            await appending
        assert await data_of(log, topic) == ["a", "done"]


@pytest.mark.parametrize("code", ["42501", "42P01", "42601", "22021"])
async def test_postgres_mistake_is_said_at_once(
    own_postgres: Postgres, admin: asyncpg.Connection, topic: str, code: str
) -> None:
    async with log_at(own_postgres.url()) as log:
        await admin.execute(REFUSE.format(code=code))
        with mistake(match="refused"):
            await log.append(topic, "a")


async def test_postgres_start_without_privileges_says_what_to_grant(
    own_postgres: Postgres, admin: asyncpg.Connection
) -> None:
    await admin.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'secret'")
    log = PostgresLog(own_postgres.url(user="reader:secret"))
    with pytest.raises(PurgatoryError, match=r"permission denied.*grant SELECT, INSERT, UPDATE and DELETE"):
        await log.start()


async def test_postgres_sweep_survives_a_mistake_and_says_so_once(
    own_postgres: Postgres,
    admin: asyncpg.Connection,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(postgres, "_SWEEP", 0.05)
    caplog.set_level(logging.WARNING, "aiopurgatory")
    async with PostgresLog(own_postgres.url(), keep_seconds=1.0) as log:
        await log.append(topic, "a")
        await admin.execute('ALTER TABLE "events_topics" RENAME TO elsewhere')
        await until(lambda: "old topics could not be deleted" in caplog.text)
        await asyncio.sleep(0.3)  # further tries
        await admin.execute('ALTER TABLE elsewhere RENAME TO "events_topics"')
        while await admin.fetchval('SELECT count(*) FROM "events_topics" WHERE topic = $1', topic):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert caplog.text.count("old topics could not be deleted") == 1


async def _busy(client: Client) -> asyncio.Future[object]:
    """Make the server busy. Returns: the script that does."""
    await client.config_set("busy-reply-threshold", 200)
    script: asyncio.Future[object] = asyncio.ensure_future(client.eval(BUSY, 0))
    await asyncio.sleep(0.5)
    return script


async def test_redis_that_is_busy_while_a_log_connects_keeps_its_ids(own_redis: Redis, topic: str) -> None:
    """A refused INFO once told that the data has another life; logs of different processes then began generations."""
    url = own_redis.url()
    async with RedisLog(url, name="lives") as one, RedisLog(url, name="lives") as other, Client.from_url(url) as client:
        mark = await one.append(topic, "mark")
        script = await _busy(client)
        await other.append(topic, "0")  # it connects now
        await script
        for number in range(1, 40):
            await (one, other)[number % 2].append(topic, str(number))
        assert await ended(one, topic, mark) == [*map(str, range(40)), "done"]


async def test_error_of_commits_stays_while_reads_succeed(
    own_postgres: Postgres, admin: asyncpg.Connection, topic: str
) -> None:
    async with log_at(own_postgres.url()) as log:
        await log.append(topic, "a")
        await admin.execute(REFUSE.format(code="53100"))  # the disk is full
        appending = asyncio.create_task(log.append(topic, "b"))
        await until(lambda: log.statistics().error is not None)
        for _ in range(20):
            assert await log.last_id(topic) is not None
            assert "refused" in str(log.statistics().error)
        await admin.execute(ALLOW)
        await appending
        assert log.statistics().error is None


async def test_redis_out_of_memory_in_a_script_is_an_outage(own_redis: Redis, topic: str) -> None:
    async with RedisLog(own_redis.url()) as log:
        await log.append(topic, "a")  # a script's first call is not refused
        await own_redis.asked("CONFIG SET maxmemory 1")
        appending = asyncio.create_task(log.append(topic, "b"))
        await until(lambda: "OOM" in str(log.statistics().error))
        await own_redis.asked("CONFIG SET maxmemory 0")
        assert await appending


#: Makes a user who may use some commands.
LIMIT = "ACL SETUSER limited reset on >secret ~* &*"


async def test_redis_start_without_rights_names_the_command(own_redis: Redis) -> None:
    await own_redis.asked(f"{LIMIT} +@all -eval -evalsha")
    with pytest.raises(PurgatoryError, match=r"permissions to run the 'evalsha' command; its user needs \+eval"):
        await RedisLog(own_redis.url(user="limited:secret")).start()


async def test_redis_forbidden_command_is_said_at_once_and_nothing_is_appended(own_redis: Redis, topic: str) -> None:
    """A script that fails is not rolled back: a new version without its event would be an event that is lost."""
    async with RedisLog(own_redis.url()) as permitted:
        await permitted.append(topic, "a")
        await own_redis.asked(f"{LIMIT} +@all -xadd")
        async with RedisLog(own_redis.url(user="limited:secret")) as log:
            for _ in range(2):
                with mistake(match=r"ACL failure.*'xadd'|can't run this command"):
                    await log.append(topic, "b")
        await permitted.append(topic, "c")
        assert await ended(permitted, topic) == ["a", "c", "done"]


async def test_redis_key_of_another_type_is_a_mistake(own_redis: Redis, topic: str) -> None:
    await own_redis.asked(f"SET 'events:{{{topic}}}:state' other")
    async with RedisLog(own_redis.url()) as log:
        with mistake(match="WRONGTYPE"):
            await log.append(topic, "a")


@pytest.mark.parametrize("is_late", [False, True])
async def test_log_is_one_whether_its_processes_share_a_bus_or_not(own_server: Server, is_late: bool) -> None:
    """As while a deploy adds ``bus=`` to one process after the other.

    Args: is_late: the bus is open before the log is made.
    """
    url = own_server.url()
    bus = bus_on(url, [])
    if is_late:
        await bus.start()
    sharing = log_at(url, bus=bus)
    async with bus, sharing as one, log_at(url) as other:
        for writer, reader in ((one, other), (other, one)):
            listening = reader.follow("x")
            for number in range(5):
                text = str(number) * (2_000 if number % 2 else 1)  # with its event in the wake-up, and without
                await writer.append("x", text)
                async with asyncio.timeout(8.0):
                    while (await anext(listening)).data != text:
                        pass
            await listening.aclose()
        found = bus.statistics()
        assert (found.malformed, found.gaps) == (0, int(is_late))


async def test_redis_master_that_is_demoted_is_read_no_more(own_redis: Redis, topic: str) -> None:
    """Its address leads to the new master. The old one keeps its connections, and has none of the new events."""
    topic = topic.replace(" ", "-")
    other = Redis()
    try:
        await other.replicate(own_redis)
        async with (
            Proxy(own_redis.port) as address,
            RedisLog(own_redis.url()) as before,
            RedisLog(own_redis.url(address.port), heartbeat=0.3, timeout=3.0) as log,
        ):
            await before.append(topic, "a")
            listening = log.follow(topic)
            assert (await anext(listening)).data == "a"
            while ":1" not in await other.asked(f"EXISTS events:{{{topic}}}:state"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await other.asked("REPLICAOF NO ONE")
            await own_redis.asked("REPLICAOF 127.0.0.1 1")
            address.target = other.port
            async with RedisLog(other.url()) as after:
                await after.append(topic, "b" * 2_000)  # too long for its wake-up
                async with asyncio.timeout(30.0):
                    assert (await anext(listening)).data == "b" * 2_000
            await listening.aclose()
    finally:
        await own_redis.asked("REPLICAOF NO ONE")
        other.remove()


@pytest.mark.parametrize("is_shared", [False, True])
async def test_dead_server_is_an_outage_for_a_log_that_only_listens(own_server: Server, is_shared: bool) -> None:
    """Nothing is read or written: only the bus of the log notices."""
    registry = CollectorRegistry()
    times: dict[str, Any] = {"heartbeat": 0.3, "timeout": 5.0}
    bus = bus_on(own_server.url(), [], **times) if is_shared else None
    log = log_at(own_server.url(), bus=bus, observers=[Metrics(registry)], **times)

    def scraped(name: str) -> float | None:
        labels = {"log": "events"} if name.startswith("log") else {"bus": "aiopurgatory.events"}
        return registry.get_sample_value(f"aiopurgatory_{name}", labels)

    async with log, bus or nullcontext():
        listening = asyncio.ensure_future(anext(log.follow("x")))
        await until(lambda: log.statistics().reads and scraped("log_store_down") == 0)
        own_server.kill()
        await until(lambda: log.statistics().error is not None)
        assert scraped("log_store_down") == 1
        await until(lambda: scraped("bus_connected") == (None if is_shared else 0))  # a read may fail before
        own_server.start()
        await until(lambda: log.statistics().error is None)
        await log.append("x", "back")
        assert (await listening).data == "back"
        if bus is not None:
            await bus.aclose()
            assert log.statistics().error == "its bus is closed"
