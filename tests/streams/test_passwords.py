"""The password of a server changes while buses and logs use it, on real servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from bus.servers import bus_on  # type: ignore[import-not-found]
from private_servers import Server
from redis.asyncio import Redis as Client

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.streams import StoreDownError
from aiopurgatory.streams.postgres import PostgresLog
from aiopurgatory.streams.redis import RedisLog

from .conftest import LogPostgres, log_at, until

TIMES: dict[str, Any] = {"heartbeat": 0.2, "timeout": 5.0}


class Secrets:
    """The password of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.current = "secret"
        #: Without a password.
        self.url = server.url().replace("bus:secret@", "bus@")
        self.asked = 0

    def plain(self) -> str:
        self.asked += 1
        return self.current

    async def awaited(self) -> str:
        await asyncio.sleep(0)
        return self.plain()

    async def change(self) -> None:
        """Change the password, and end all connections: new ones need the new one."""
        former, self.current = self.current, f"{self.current}-new"
        if self.server.kind == "postgres":
            connection = await asyncpg.connect(self.url, password=former)
            await connection.execute(f"ALTER ROLE bus PASSWORD '{self.current}'")
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            await connection.execute(f"{others} AND usename = 'bus'")
            await connection.close()
        else:
            client: Any = Client(port=self.server.port, password="default-secret")
            async with client:
                await client.execute_command("ACL", "SETUSER", "bus", "resetpass", f">{self.current}")
                await client.execute_command("CLIENT", "KILL", "USER", "bus")


@pytest.fixture
def secrets(own_server: Server) -> Secrets:
    return Secrets(own_server)


async def test_log_asks_for_the_password_of_each_connection(secrets: Secrets) -> None:
    async with log_at(secrets.url, password=secrets.awaited, **TIMES) as log:
        async with log.run("x") as run:
            listening = log.follow("x")
            await run.append("before")
            assert (await anext(listening)).data == "before"
            await secrets.change()
            await run.append("after")
        async with asyncio.timeout(20.0):
            assert [event.data async for event in listening] == ["after", "done"]
        await until(lambda: log.statistics().error is None)


async def test_password_that_is_not_to_be_had_is_an_outage(secrets: Secrets) -> None:
    def refuse() -> str:
        raise LookupError("the vault says: s3cr3t")

    found: list[Callable[[], str | Awaitable[str]]] = [secrets.plain]
    async with log_at(secrets.url, password=lambda: found[0](), **TIMES) as log:
        await log.append("x", "before")
        found[0] = refuse
        await secrets.change()
        appending = asyncio.create_task(log.append("x", "after"))
        await until(lambda: "the function password= has raised a LookupError" in str(log.statistics().error))
        assert "s3cr3t" not in str(log.statistics().error)
        found[0] = secrets.plain
        assert await appending


async def test_start_without_a_password_says_why(secrets: Secrets) -> None:
    def refuse() -> str:
        raise LookupError

    why = r"cannot use (Redis|PostgreSQL) at 127.0.0.1:\d+\S*: the function password= has raised a LookupError$"
    with pytest.raises(BusConnectError, match=why):
        await bus_on(secrets.url, [], password=refuse, **TIMES).start()
    with pytest.raises(StoreDownError, match=why):
        await log_at(secrets.url, password=refuse, **TIMES).start()


@pytest.mark.parametrize("own_server", [LogPostgres], indirect=True)
async def test_password_file_is_read_for_each_connection(secrets: Secrets, tmp_path: Path) -> None:
    file = tmp_path / "passfile"
    file.touch(0o600)
    file.write_text("*:*:*:*:secret\n")
    dsn = f"{secrets.url}&passfile={file}"
    async with log_at(dsn, **TIMES) as log, bus_on(dsn, [], **TIMES) as bus:
        await log.append("x", "before")
        file.write_text("*:*:*:*:secret-new\n")
        await secrets.change()
        assert await log.append("x", "after")
        await until(lambda: bus.statistics().gaps == 1 and bus.statistics().connected)
    assert os.stat(file).st_mode & 0o077 == 0  # otherwise asyncpg ignores it


@pytest.mark.parametrize("kind", [RedisBus, RedisLog, PostgresBus, PostgresLog])
def test_password_that_is_no_function_is_refused(kind: Any) -> None:
    scheme = "redis" if "Redis" in kind.__name__ else "postgresql"
    with pytest.raises(TypeError, match="password must be a function"):
        kind(f"{scheme}://localhost", password="secret")
