"""The servers of the tests, and the bus and engine on one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from private_proxy import Proxy
from private_servers import Postgres, Redis, Server, free_port, program

from aiopurgatory.bus import Bus, BusConnectError
from aiopurgatory.bus.engine import CHANNEL, Engine
from aiopurgatory.bus.targets import Target


class AclRedis(Redis):
    """Has three users: one may not subscribe, one has the channels of groups, one has the fewest rights a bus needs."""

    settings = (
        "user deaf on >secret ~* resetchannels +@all",
        "user groups on >secret ~* resetchannels &group-1 &group-2 +@all",
        "user least on >secret resetchannels &aiopurgatory -@all +subscribe +publish",
    )


class OldRedis(Redis):
    """Does not tell its role, as before Redis 6."""

    settings = ('rename-command HELLO ""',)


class ClusterRedis(Redis):
    """A node of a cluster, not yet in one."""

    def prepare(self) -> None:
        super().prepare()
        self.bus_port = free_port()
        with Path(self.folder, "redis.conf").open("a") as settings:
            settings.write(f"cluster-enabled yes\ncluster-port {self.bus_port}\nmasteruser bus\nmasterauth secret\n")


class Valkey(AclRedis):
    """Valkey itself, even where there is Redis."""

    programs = ("valkey-server",)  # type: ignore[assignment]


#: One of each kind.
KINDS: dict[str, type[Server]] = {"postgres": Postgres, "redis": AclRedis}


@asynccontextmanager
async def session(server: Server) -> AsyncIterator[Any]:
    """A connection to a PostgreSQL. It ends at once, whatever it does."""
    import asyncpg

    connection = await asyncpg.connect(server.url())
    try:
        yield connection
    finally:
        connection.terminate()


async def run_sql(url: str, sql: str, *arguments: Any) -> Any:
    """Run *sql* on the PostgreSQL at *url*. Returns: with *arguments*, the value that it finds."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await (connection.fetchval(sql, *arguments) if arguments else connection.execute(sql))
    finally:
        await connection.close()


async def connections(server: Server) -> int:
    """Return how many other connections the server has."""
    if isinstance(server, Redis):
        return len((await server.asked("CLIENT LIST")).splitlines()) - 1
    count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = $1"
    return int(await run_sql(server.url(), count, "client backend")) - 1


async def no_connections(server: Server) -> None:
    async with asyncio.timeout(10.0):
        while await connections(server):  # noqa: ASYNC110 it is the server's state
            await asyncio.sleep(0.02)


def bus_on(url: str, targets: Iterable[Target], **options: Any) -> Bus:
    """The bus for the server at *url*."""
    if url.startswith("redis"):
        from aiopurgatory.bus.redis import RedisBus

        return RedisBus(url, targets, **options)
    from aiopurgatory.bus.postgres import PostgresBus

    return PostgresBus(url, targets, **options)


async def started(bus: Bus) -> Bus:
    """Start *bus*, whose timeout may be too short for a busy machine."""
    async with asyncio.timeout(60.0):
        while not bus.statistics().connected:
            with suppress(BusConnectError):
                await bus.start()
    return bus


@asynccontextmanager
async def proxied(
    server: Server, targets: Iterable[Target] = (), query: str = "", **options: Any
) -> AsyncIterator[tuple[Proxy, Bus]]:
    """A proxy before *server*, and a bus through it."""
    async with (
        Proxy(server.port) as proxy,
        await started(bus_on(server.url(proxy.port) + query, targets, **options)) as bus,
    ):
        yield proxy, bus


def engine_on(url: str) -> Engine:
    """The engine of such a bus."""
    if url.startswith("redis"):
        from aiopurgatory.bus.redis import RedisEngine

        return RedisEngine(url, CHANNEL)
    from aiopurgatory.bus.postgres import PostgresEngine

    return PostgresEngine(url, CHANNEL)


class StandbyPostgres(Postgres):
    """A hot standby. It has lost its primary, which does not matter here."""

    def prepare(self) -> None:
        super().prepare()
        self.run(["touch", f"{self.folder}/data/standby.signal"])


class PgBouncer(Server):
    """A pgbouncer before a PostgreSQL. Args: mode: transaction or session."""

    kind = "pgbouncer"
    programs = ("pgbouncer",)

    def __init__(self, server: Server, mode: str) -> None:
        self.server, self.mode = server, mode
        super().__init__()

    def prepare(self) -> None:
        Path(self.folder, "users").write_text('"bus" "secret"\n')
        Path(self.folder, "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server.port}\n"
            f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={self.port}\nunix_socket_dir=\n"
            f"auth_type=plain\nauth_file={self.folder}/users\npool_mode={self.mode}\n"
        )

    def command(self) -> list[str]:
        return [str(program("pgbouncer")), f"{self.folder}/pgbouncer.ini"]

    def url(self, port: int | None = None) -> str:
        return self.server.url(port or self.port)

    def is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
