"""The log on PostgreSQL: a table of topics and one of events, with asyncpg."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, Unpack

try:
    import asyncpg
except ImportError as exc:
    raise ImportError('aiopurgatory.streams.postgres needs asyncpg: pip install "aiopurgatory[postgres]"') from exc

from ..arguments import require_int
from ..bus.addresses import Password
from ..bus.postgres import PostgresBus, PostgresEngine
from ..clock import cancellations
from ..errors import PurgatoryError
from .event import StoreDownError, require_name
from .log import EventLog, LogOptions
from .store import NEWEST, Commit, Notify, Page, Row, Store
from .wakeups import LogBus

logger = logging.getLogger("aiopurgatory")


class PostgresLog(EventLog):
    """An EventLog on PostgreSQL. It keeps up to *connections* + 2 connections open; with a *bus*, up to *connections*.

    Its tables must be there: run the SQL of tables_sql(). An append is a transaction. Appends to different topics
    wait for each other at their commits, because they notify (see PostgresBus).

    Args:
        dsn: as for PostgresBus.
        bus: a PostgresBus on the same database; the log uses its connections. None (default): it makes its own.
        heartbeat: seconds, for its own PostgresBus; default 5.
        timeout: seconds that PostgreSQL may take to connect and to answer; default 5. An append waits for one of the
            *connections* as long; after that, it counts as an outage.
        connections: the most connections to read and append with; default 4. One of several is left to appends.
        password: as for PostgresBus, also for its own.
        options: as for EventLog.

    Raises: TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        dsn: str,
        *,
        bus: PostgresBus | None = None,
        heartbeat: float = 5.0,
        timeout: float = 5.0,
        connections: int = 4,
        password: Password | None = None,
        **options: Unpack[LogOptions],
    ) -> None:
        require_int("connections", connections, 1)
        name, keep = options.get("name", "events"), options.get("keep_seconds", 86_400.0)
        observers = options["observers"] = tuple(options.get("observers", ()))
        log_bus = LogBus(name, PostgresBus, dsn, bus, heartbeat, timeout, observers, password)
        super().__init__(PostgresStore(dsn, name, log_bus, timeout, connections, keep, password), **options)


def tables_sql(name: str = "events") -> str:
    """Return SQL that creates the tables of the log *name*, if they are not there.

        await connection.execute(tables_sql())

    Returns: a script of several statements. Run it in a migration.
    Raises: TypeError, ValueError: a log cannot have this *name*.
    """
    require_name(name)
    return f"""CREATE TABLE IF NOT EXISTS "{name}_topics" (
    topic text PRIMARY KEY,
    version text NOT NULL,
    state text NOT NULL,
    touched timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS "{name}_events" (
    topic text,
    number bigint,
    text text NOT NULL,
    PRIMARY KEY (topic, number)
);
"""


#: Topic, expected and new version, new state, first event to keep, numbers and texts of events, channel, message, and
#: the incarnation of the server's data.
_COMMIT: Final = """
WITH made AS (
    INSERT INTO "{name}_topics" SELECT $1, $3, $4, clock_timestamp() WHERE $2 = '' AND {life} = $10
    ON CONFLICT DO NOTHING RETURNING 1
), changed AS (
    UPDATE "{name}_topics" SET version = $3, state = $4, touched = clock_timestamp()
    WHERE topic = $1 AND version = $2 AND $2 <> '' AND {life} = $10 RETURNING 1
), done AS (
    SELECT FROM made UNION ALL SELECT FROM changed
), added AS (
    INSERT INTO "{name}_events" SELECT $1, number, text
    FROM unnest($6::bigint[], $7::text[]) AS new (number, text) WHERE EXISTS (SELECT FROM done)
), dropped AS (
    DELETE FROM "{name}_events" WHERE topic = $1 AND number < $5 AND EXISTS (SELECT FROM done)
)
SELECT extract(epoch FROM clock_timestamp())::float8, pg_notify($8, $9) FROM done
"""
#: Topic, the number of the last event not wanted, the most events, the bytes after which to add none. One statement, so
#: that all is of one moment.
_READ: Final = """
SELECT version, state, extract(epoch FROM clock_timestamp() - touched)::float8,
    extract(epoch FROM clock_timestamp())::float8, {life}, numbers, texts
FROM (SELECT array_agg(number ORDER BY number) AS numbers, array_agg(text ORDER BY number) AS texts FROM (
    SELECT number, text, sum(octet_length(text)) OVER (ORDER BY number) - octet_length(text) AS before FROM (
        SELECT number, text FROM "{name}_events" WHERE topic = $1 AND number > $2::bigint ORDER BY number LIMIT $3
    ) AS counted
) AS weighed WHERE before < $4) AS found
LEFT JOIN "{name}_topics" ON topic = $1
"""
_DROP_OLD: Final = """
WITH old AS (
    DELETE FROM "{name}_topics" WHERE touched < clock_timestamp() - make_interval(secs => $1) RETURNING topic
)
DELETE FROM "{name}_events" AS event USING old WHERE event.topic = old.topic
"""
#: The life of the server's data: a failover, and a recovery from a backup, change the timeline.
_LIFE: Final = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"

#: Mistakes do not heal: in statements, names, privileges and data. All else that the server refuses is an outage.
_MISTAKES: Final = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)
_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: Seconds between two deletions of old topics: the least.
_SWEEP: Final = 60.0


class PostgresStore(Store):
    """The store of a PostgresLog."""

    def __init__(
        self,
        dsn: str,
        name: str,
        bus: LogBus,
        timeout: float,
        connections: int,
        keep: float,
        password: Password | None,
    ) -> None:
        self._engine = PostgresEngine(dsn, "aiopurgatory", timeout, password=password)
        self._name, self._bus, self._timeout = name, bus, timeout
        self._connections, self._keep = connections, keep
        self._commit, self._read, self._drop_old = (
            sql.format(name=name, life=_LIFE) for sql in (_COMMIT, _READ, _DROP_OLD)
        )
        self._pool: Any = None
        #: Of reads; made anew for each loop. One connection is left to commits.
        self._turns = asyncio.Semaphore()
        #: The last outage that a read found, and when.
        self._down: StoreDownError | None = None
        self._down_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        await self._bus.open(notify, notify_all)
        self._turns, self._down = asyncio.Semaphore(max(1, self._connections - 1)), None
        self._pool = await asyncpg.create_pool(
            min_size=0,
            max_size=self._connections,
            timeout=self._timeout,
            command_timeout=self._timeout,
            connect=self._engine.connect,
        )
        try:
            await self._sweep()
        except _MISTAKES as exc:
            await self.aclose()
            raise PurgatoryError(f"the log {self._name!r} cannot use its tables: {exc}; {self._remedy(exc)}") from exc
        except BaseException:
            await self.aclose()
            raise
        # In an empty context: a request may call this, and the log lives longer.
        self._sweeping = Context().run(asyncio.create_task, self._sweep_forever(), name="aiopurgatory log: old topics")

    async def aclose(self) -> None:
        sweeping, self._sweeping = self._sweeping, None
        pool, self._pool = self._pool, None
        if sweeping is not None:
            sweeping.cancel()
        await self._bus.aclose()
        if pool is not None:
            pool.terminate()

    @property
    def error(self) -> str | None:
        return self._bus.error

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        fetch = self._fetch if after == NEWEST else self._in_turn  # NEWEST: for a commit
        ((version, state, idle, now, life, numbers, texts),) = await fetch(self._read, topic, after, rows, size)
        found: list[Row] = list(zip(numbers or (), texts or (), strict=True))
        return Page(version or "", state or "", max(0.0, idle or 0.0), now, life, found)

    async def commit(self, topic: str, commit: Commit, keep: float) -> Page:
        numbers, texts = [number for number, _ in commit.rows], [text for _, text in commit.rows]
        wake = self._bus.wake_up(topic, commit)
        change = commit.expected, commit.version, commit.state, commit.first, numbers, texts
        done = await self._fetch(self._commit, topic, *change, *wake, commit.server)
        if not done:
            return await self.read(topic, NEWEST, 1, 1)
        return Page(commit.version, commit.state, 0.0, done[0][0], commit.server, [])

    async def _fetch(self, sql: str, *arguments: Any) -> Any:
        assert self._pool is not None, "it is open"
        try:
            async with self._pool.acquire(timeout=self._timeout) as connection:
                return await connection.fetch(sql, *arguments)
        except _MISTAKES:
            raise
        except _ERRORS as exc:
            raise StoreDownError(self._engine.explain(exc)) from exc

    async def _in_turn(self, sql: str, *arguments: Any) -> Any:
        """Fetch when it is the turn of this read. The wait for earlier reads does not count as the server's time.

        Commits need no turn, so that they do not wait for thousands of such reads. Reads that have waited throughout an
        outage fail with the one that found it.
        """
        began = asyncio.get_running_loop().time()
        async with self._turns:
            if self._down is not None and self._down_at >= began:
                raise StoreDownError(*self._down.args) from self._down
            try:
                return await self._fetch(sql, *arguments)
            except StoreDownError as exc:
                self._down, self._down_at = exc, asyncio.get_running_loop().time()
                raise

    async def _sweep(self) -> None:
        await self._fetch(self._drop_old, self._keep)

    async def _sweep_forever(self) -> None:
        is_told = False
        while True:
            await asyncio.sleep(max(_SWEEP, self._keep / 16))
            try:
                await self._sweep()
                is_told = False
            except (Exception, asyncio.CancelledError) as exc:  # a pool may raise a CancelledError
                if cancellations():
                    raise
                if not is_told:
                    logger.warning("log %r: old topics could not be deleted; it tries again: %s", self._name, exc)
                is_told = True

    def _remedy(self, exc: Exception) -> str:
        tables = f"aiopurgatory.streams.postgres.tables_sql({self._name!r})"
        if isinstance(exc, asyncpg.InsufficientPrivilegeError):
            return f"grant SELECT, INSERT, UPDATE and DELETE on the tables of {tables}"
        return f"run {tables}"
