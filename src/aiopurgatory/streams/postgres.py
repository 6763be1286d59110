"""The log on PostgreSQL: a table of topics and one of events, with asyncpg."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Final, Unpack

from ..arguments import require, require_int
from ..bus.addresses import Password
from ..bus.engine import CHANNEL
from ..bus.postgres import POOLER, SCRIPT, PostgresBus, PostgresEngine, asyncpg, fetch_in
from ..clock import cancellations
from ..errors import PurgatoryError
from .event import StoreDownError, require_log_name
from .log import EventLog, LogOptions
from .store import NEWEST, Commit, Notify, Page, Row
from .topic_state import DEFAULT_KEEP, state_of
from .wakeups import ServerStore, wake_up
from .writer import named
from .writes import Decide

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
        pool: a pool of asyncpg on the same database, to read and append with, in place of *connections*. You open and
            close it. Without ``reset=`` of its own, it sends a second statement after each one. None (default): the log
            makes its own.
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
        pool: asyncpg.Pool | None = None,
        password: Password | None = None,
        **options: Unpack[LogOptions],
    ) -> None:
        require_int("connections", connections, 1)
        require(pool is None or isinstance(pool, asyncpg.Pool), "pool", "a pool of asyncpg, or None", pool)
        own = {"heartbeat": heartbeat, "timeout": timeout, "password": password}
        self._tables = PostgresStore(dsn, bus, options, pool or connections, **own)
        super().__init__(self._tables, **options)

    async def append(
        self,
        topic: str,
        data: str,
        name: str | None = None,
        *,
        id: str | None = None,  # noqa: A002
        timeout: float = 15.0,
        connection: Any = None,
    ) -> str:
        """Append an event, as EventLog.append() does; with *connection*, in its transaction (an outbox).

            async with connection.transaction():
                await connection.execute("UPDATE orders SET state = 'paid' WHERE id = 7")
                await log.append("orders", "7", "paid", connection=connection)

        The event, and its wake-ups, are there if and only if the transaction commits. Until its end, other writers of
        the topic wait, as in an outage: append last, and to several topics always in the same order. The log need not
        be started for this, and *timeout* has no meaning.

        Args:
            connection: of asyncpg, or an ``AsyncConnection`` of psycopg, on the same database, in a transaction. None
                (default): the log uses one of its own.

        Returns: the id of the event.

        Raises:
            RuntimeError: *connection* is in no transaction.
            Exception: as EventLog.append(); but of the server, with *connection*, as its library raises it.

        Cost: with *connection*, two statements.
        """
        if connection is None:
            return await super().append(topic, data, name, id=id, timeout=timeout)
        return await self._tables.write_in(connection, topic, self._appending(topic, data, name, id))


def tables_sql(name: str = "events") -> str:
    """Return SQL that creates the tables of the log *name*, if they are not there.

        await connection.execute(tables_sql())

    Returns: one statement. Run it in a migration.
    Raises: TypeError, ValueError: a log cannot have this *name*.
    """
    require_log_name(name)
    return f"""DO {SCRIPT} BEGIN
CREATE TABLE IF NOT EXISTS "{name}_topics" (
    topic text PRIMARY KEY,
    version text NOT NULL,
    state text NOT NULL,
    touched timestamptz NOT NULL,
    expires timestamptz NOT NULL,
    archive text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS "{name}_events" (
    topic text,
    number bigint,
    text text NOT NULL,
    PRIMARY KEY (topic, number)
);
END {SCRIPT}"""


#: Topic, expected and new version, new state, first event to keep, numbers and texts of events, channel, message, the
#: incarnation of the server's data, seconds until the topic expires, and its archive. This is the last column, because
#: PostgreSQL does not write the unchanged end of a row into its WAL.
_COMMIT: Final = """
WITH made AS (
    INSERT INTO "{name}_topics" SELECT $1, $3, $4, clock_timestamp(), clock_timestamp() + make_interval(secs => $11),
        $12
    WHERE $2 = '' AND {life} = $10
    ON CONFLICT DO NOTHING RETURNING 1
), changed AS (
    UPDATE "{name}_topics" SET version = $3, state = $4, touched = clock_timestamp(),
        expires = clock_timestamp() + make_interval(secs => $11), archive = coalesce(nullif($12, ''), archive)
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
    extract(epoch FROM clock_timestamp())::float8, {life}, archive, numbers, texts
FROM (SELECT array_agg(number ORDER BY number) AS numbers, array_agg(text ORDER BY number) AS texts FROM (
    SELECT number, text, sum(octet_length(text)) OVER (ORDER BY number) - octet_length(text) AS before FROM (
        SELECT number, text FROM "{name}_events" WHERE topic = $1 AND number > $2::bigint ORDER BY number LIMIT $3
    ) AS counted
) AS weighed WHERE before < $4) AS found
LEFT JOIN "{name}_topics" ON topic = $1
"""
#: Topic. Locks it until the end of the caller's transaction, and returns the same as _READ.
_LOCK: Final = """
WITH mine AS (SELECT version, state, touched, archive FROM "{name}_topics" WHERE topic = $1 FOR UPDATE)
SELECT version, state, extract(epoch FROM clock_timestamp() - touched)::float8,
    extract(epoch FROM clock_timestamp())::float8, {life}, archive, NULL AS numbers, NULL AS texts
FROM (SELECT) AS always LEFT JOIN mine ON true
"""
#: The most events to delete. A topic is deleted with its last event, so that a topic of any size, and a backlog of any
#: length, are deleted in statements that take little time. The oldest events go first: an append in between revives the
#: topic, and listeners are told of what is gone before its events, but not between them. Returns: whether there may be
#: more.
_DROP_OLD: Final = """
WITH old AS (
    SELECT topic FROM "{name}_topics" WHERE expires < clock_timestamp() LIMIT least($1::bigint, 100)
    FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM "{name}_events" WHERE ctid = ANY (ARRAY (
        SELECT oldest.ctid FROM old, LATERAL (
            SELECT ctid FROM "{name}_events" WHERE topic = old.topic ORDER BY number LIMIT $1
        ) AS oldest LIMIT $1
    )) RETURNING 1
), emptied AS (
    DELETE FROM "{name}_topics" WHERE topic IN (SELECT topic FROM old) AND (SELECT count(*) FROM dropped) < $1
)
SELECT count(*) > 0 FROM old
"""
#: The most events to delete at a time.
_BATCH: Final = 1_000
#: The life of the data. A start of the server (as after a crash, on a standby, or from a backup) and a restored or
#: emptied table, whose file is a new one, are another life. So are a mere restart and VACUUM FULL, which cost listeners
#: nothing: ids of earlier lives stay valid. The system's identifier tells less (a copy of a server has the same one),
#: and managed servers may hide it; none refuses these functions. A standby has no life: it may lack the newest events.
_LIFE: Final = """CASE WHEN NOT pg_is_in_recovery() THEN concat(
(date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, '.',
pg_relation_filenode('"{name}_topics"'::regclass)) END"""

#: Mistakes do not heal: in statements, names, privileges and data; and a pooler that changes the session between the
#: preparation of a statement and its use. All else that the server refuses is an outage.
_POOLED: Final = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
_MISTAKES: Final = (asyncpg.SyntaxOrAccessError, asyncpg.DataError, *_POOLED)
_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: Seconds between two deletions of old topics: the least.
_SWEEP: Final = 60.0


class PostgresStore(ServerStore):
    """The store of a PostgresLog.

    Args: pool: to use; or how many connections its own may have. The others are of ServerStore.
    """

    def __init__(
        self, dsn: str, bus: PostgresBus | None, log: LogOptions, pool: asyncpg.Pool | int, **own: Any
    ) -> None:
        super().__init__(PostgresBus, dsn, bus, log, **own)
        self._engine = PostgresEngine(dsn, CHANNEL, self._timeout, password=own["password"])
        self._keep = log.get("keep_seconds") or DEFAULT_KEEP.seconds
        self._shared = None if isinstance(pool, int) else pool
        self._connections = pool if isinstance(pool, int) else pool.get_max_size()
        life = _LIFE.format(name=self._name)
        self._commit, self._read, self._lock, self._drop_old = (
            sql.format(name=self._name, life=life) for sql in (_COMMIT, _READ, _LOCK, _DROP_OLD)
        )
        self._pool: Any = None
        #: Of reads; made anew for each loop. One connection is left to commits.
        self._turns = asyncio.Semaphore()
        #: The last outage that a read found, and when.
        self._down: StoreDownError | None = None
        self._down_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        await super().open(notify, notify_all)
        self._turns, self._down = asyncio.Semaphore(max(1, self._connections - 1)), None
        self._pool = self._shared or await asyncpg.create_pool(
            min_size=0,
            max_size=self._connections,
            timeout=self._timeout,
            connect=self._engine.connect,
            reset=_keep_session,
        )
        try:
            await self._require_sessions()
            await self._fetch(self._drop_old, 0)
            await self.read("", NEWEST, 0, 0)
        except _MISTAKES as exc:
            why = f"the log {self._name!r} cannot use its tables: {exc}; {self._remedy(exc)}"
            raise PurgatoryError(why) from exc
        except _ERRORS as exc:
            raise StoreDownError(self._engine.explain(exc)) from exc
        # In an empty context: a request may call this, and the log lives longer.
        self._sweeping = Context().run(asyncio.create_task, self._sweep_forever(), name="aiopurgatory log: old topics")
        if self._shared is None:  # hang up at the end of the loop, which cancels all tasks
            pool = self._pool
            self._sweeping.add_done_callback(lambda _: pool.terminate(), context=Context())

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._pool is not None and self._shared is None:
            self._pool.terminate()
        self._pool = None
        await super().aclose()

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        fetch = self._fetch if after == NEWEST else self._in_turn  # NEWEST: for a commit
        page = _page(await fetch(self._read, topic, after, rows, size))
        if not page.server:
            raise StoreDownError(self._engine.explain(asyncpg.ReadOnlySQLTransactionError("it recovers")))
        return page

    async def write_in(self, connection: Any, topic: str, decide: Decide) -> str:
        """Make the change that *decide* wants, in the transaction of *connection*. Returns: the id for the caller."""
        while True:  # only a topic that another transaction has begun meanwhile refuses the change
            page = _page(await fetch_in(connection, self._lock, topic))
            try:
                write = decide(page, state_of(page))
            except PurgatoryError as exc:
                raise named(topic, exc) from None
            if write.commit is None or await fetch_in(connection, self._commit, *self._change(topic, write.commit)):
                return write.id

    def _change(self, topic: str, commit: Commit) -> tuple[Any, ...]:
        """Return the arguments of _COMMIT."""
        numbers, texts = [number for number, _ in commit.rows], [text for _, text in commit.rows]
        change = topic, commit.expected, commit.version, commit.state, commit.first, numbers, texts
        return *change, self._channel, wake_up(self._name, topic, commit), commit.server, commit.keep, commit.archive

    async def commit(self, topic: str, commit: Commit) -> Page:
        done = await self._fetch(self._commit, *self._change(topic, commit))
        if not done:
            return await self.read(topic, NEWEST, 1, 1)
        return Page(commit.version, commit.state, 0.0, done[0][0], commit.server, [])

    async def _fetch(self, sql: str, *arguments: Any) -> Any:
        assert self._pool is not None, "it is open"
        try:
            async with self._pool.acquire(timeout=self._timeout) as connection:
                return await connection.fetch(sql, *arguments, timeout=self._timeout)
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

    async def _require_sessions(self) -> None:
        """Raises: PurgatoryError: a pooler gives the session of one connection to another one's transaction."""
        if self._connections < 2:  # then the errors of such a pooler tell, later
            return
        acquire, asked = partial(self._pool.acquire, timeout=self._timeout), ("SELECT pg_backend_pid()",)
        async with asyncio.timeout(self._timeout), acquire() as one, acquire() as other:
            pid = await one.fetchval(*asked)
            async with other.transaction():
                if pid == await other.fetchval(*asked):
                    raise PurgatoryError(f"the log {self._name!r} needs a session for each connection: {POOLER}")

    async def _sweep_forever(self) -> None:
        """Delete old topics from time to time."""
        is_told = False
        while True:
            try:
                while (await self._fetch(self._drop_old, _BATCH))[0][0]:
                    pass
                is_told = False
            except (Exception, asyncio.CancelledError) as exc:  # a pool may raise a CancelledError
                if cancellations():
                    raise
                if not is_told:
                    logger.warning("log %r: old topics could not be deleted; it tries again: %s", self._name, exc)
                is_told = True
            await asyncio.sleep(max(_SWEEP, self._keep / 16))

    def _remedy(self, exc: Exception) -> str:
        tables = f"aiopurgatory.streams.postgres.tables_sql({self._name!r})"
        if isinstance(exc, asyncpg.InsufficientPrivilegeError):
            return f"grant SELECT, INSERT, UPDATE and DELETE on the tables of {tables}, or EXECUTE on that function"
        return POOLER if isinstance(exc, _POOLED) else f"run {tables}"


async def _keep_session(connection: Any) -> None:
    """In place of a pool's reset, a statement after each one: the log changes nothing of its sessions."""


def _page(records: list[Any]) -> Page:
    """Return the page that _READ and _LOCK return."""
    ((version, state, idle, now, life, archive, numbers, texts),) = records
    found: list[Row] = list(zip(numbers or (), texts or (), strict=True))
    return Page(version or "", state or "", max(0.0, idle or 0.0), now, life or "", found, archive or "")
