"""The bus on PostgreSQL: LISTEN and NOTIFY, with asyncpg."""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Final, Unpack
from urllib.parse import parse_qs

from ..arguments import extra, require_seconds

with extra("postgres"):
    import asyncpg as asyncpg

from ..core.kit import checked_limit
from .addresses import HostNames, NamesLoop, Password, parse, password_of
from .engine import CHANNEL, BusyError, Hear, Link, Lost, explained, require_channel
from .keys import DATA, EVERY_KEY, MAX_LINE, encode
from .server import BusOptions, ServerBus
from .targets import Target

#: For the current transaction only, so that a pooler does not pass them on to other clients. Commits do not wait for
#: the disk or a standby: a server crash is a gap anyway. The wait for NOTIFY's lock is limited, because the backend of
#: an abandoned connection goes on waiting. Each new connection would add another such backend.
_SETTINGS: Final = "set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '{milliseconds}', true)"
_NOTIFY: Final = f"SELECT {_SETTINGS}, pg_notify($1, $2)"
#: For several messages. For one message, it is 100 us slower than _NOTIFY.
_NOTIFY_ALL: Final = f"""SELECT pg_notify($1, message) FROM (SELECT {_SETTINGS}) AS settings,
unnest($2::text[]) WITH ORDINALITY AS sent (message, place) ORDER BY place"""
#: LISTEN reads all notifications that idle transactions keep in the queue, at 1 to 2 s per GB. Nothing ends it, not
#: even pg_terminate_backend(). Eight at the same time take 5 to 8 times as long, so each database runs one at a time.
#: pg_notification_queue_usage() also drops notifications that every listener has read. Otherwise, if no session
#: listens, LISTEN reads them as well. This session sends nothing more, so idle_session_timeout would cause gaps.
_LISTEN: Final = """SET LOCAL lock_timeout = {milliseconds}; SELECT pg_advisory_xact_lock({lock});
SELECT pg_notification_queue_usage(); {listen};
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"""
_LISTEN_LOCK: Final = int.from_bytes(b"aiopurg")
#: The abandoned sessions that still run a statement of a bus. An idle one was cut off, and the server does not know it.
#: After a restart, a pid may be of another session, such as of a replication, which is always active.
_STILL_RUNNING: Final = """SELECT pid FROM pg_stat_activity
WHERE pid = ANY($1::int[]) AND state = 'active' AND query LIKE '%pg_notif%'"""

POOLER: Final = (
    "is there a pgbouncer in transaction mode in between? LISTEN succeeds there but receives nothing: give it the "
    "address of PostgreSQL itself"
)

_IDLE: Final = "end sessions that listen and are idle in a transaction (pg_stat_activity), as they fill the queue"
_REMEDY_LISTEN: Final = f"{_IDLE}; if LISTEN then takes longer than the bus' timeout, raise it"
_REMEDY_LEFT: Final = (
    f"it ends by itself; if it is a LISTEN that takes longer than the bus' timeout, raise that, or {_IDLE}"
)

#: The dollar quotes around a script, and around the body of a trigger's function; and how both begin. A script is one
#: statement, because libraries for migrations prepare it.
SCRIPT: Final = "$aiopurgatory_script$"
_BODY: Final = "$aiopurgatory_body$"
_QUOTE: Final = "$aiopurgatory"


class PostgresBus(ServerBus):
    """A Bus on PostgreSQL. It keeps two connections open, or one if it only publishes, and no transaction.

    Calling ``publish()`` after the commit does not slow down writers. A trigger (see trigger_sql()) is atomic with the
    data, but serializes commits: 222 a second instead of 1,833, measured with 8 clients.

    Args:
        dsn: as for ``asyncpg.connect()``: ``postgresql://user:password@host:5432/database?sslmode=verify-full``. The
            driver of SQLAlchemy's ``postgresql+asyncpg:`` is ignored; options are asyncpg's in any case. The dsn must
            not lead to a pgbouncer in transaction mode. A pgbouncer in session mode needs its ``server_reset_query``.
            With several hosts, add ``target_session_attrs=read-write``. Each then has an equal part of half the
            *timeout* to accept a connection.
        targets: purgatories and long polls to check, as for Bus. None (default): the bus only publishes.
        password: a function, plain or ``async def``: returns the password of each new connection, which may change.
            None (default): the dsn's, or from the file that its ``passfile`` names.
        options: name, heartbeat, timeout, spread and observers, as for ServerBus. The name also names the NOTIFY
            channel. Each database has its own channels.
    """

    def __init__(
        self,
        dsn: str,
        targets: Iterable[Target] | None = None,
        *,
        password: Password | None = None,
        **options: Unpack[BusOptions],
    ) -> None:
        name, timeout = options.get("name", CHANNEL), options.get("timeout", 5.0)
        super().__init__(PostgresEngine(dsn, name, timeout, targets is not None, password), targets, **options)

    async def publish_in(self, connection: Any, key: Hashable, *, limit: int | None = None) -> None:
        """Publish *key* in the transaction of *connection*: all processes check it if and only if that commits.

            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (7)")
                await bus.publish_in(connection, ("orders", 7))

        This process checks the key when it hears of it, as the others do. The bus need not be started for this.

        Args:
            connection: of asyncpg, or an ``AsyncConnection`` of psycopg, on the same database, in a transaction.
            key: as for publish().
            limit: as for publish(). Limits of one transaction add up.

        Raises:
            TypeError, ValueError: an argument is invalid.
            RuntimeError: *connection* is in no transaction.
            Exception: of its library.

        Cost: a statement; the commit takes the lock of NOTIFY.
        """
        line = encode(key)
        if limit is not None:  # equal messages of one transaction are merged, so that each has a sender of its own
            line = f"@{token_hex(8)}\n{line}\n+{checked_limit(limit)}"
        await fetch_in(connection, "SELECT pg_notify($1, $2)", self.name, line)


async def fetch_in(connection: Any, sql: str, *arguments: Any) -> list[Any]:
    """Return the rows of *sql*, run in the transaction of *connection*, of asyncpg or psycopg.

    Raises: TypeError: it is of another library. RuntimeError: it is in no transaction.
    """
    psycopg: Any = sys.modules.get("psycopg")
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        if connection.is_in_transaction():
            return list(await connection.fetch(sql, *arguments))
    elif psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        if not connection.autocommit or connection.info.transaction_status != 0:
            # The connection may have a row factory of its own.
            cursor = psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.tuple_row)
            await cursor.execute(sql, arguments)
            return list(await cursor.fetchall())
    else:
        raise TypeError(
            f"connection must be of asyncpg, or an AsyncConnection of psycopg, got {connection!r}; SQLAlchemy's has it "
            "as (await connection.get_raw_connection()).driver_connection"
        )
    raise RuntimeError("connection must be in a transaction; use 'async with connection.transaction()'")


class PostgresEngine:
    """The engine of a PostgresBus, with the same *dsn*, *channel* and *timeout*.

    Args: listens: False: it only publishes, on one connection. password: as for PostgresBus.
    Raises: TypeError, ValueError: *dsn* is invalid.
    """

    def __init__(
        self,
        dsn: str,
        channel: str,
        timeout: float = 5.0,
        listens: bool = True,
        password: Password | None = None,
    ) -> None:
        require_seconds("timeout", timeout, 0.01, 3600.0)
        if isinstance(dsn, str):  # as SQLAlchemy names its drivers
            dsn = re.sub(r"^(postgres(?:ql)?)\+\w+:", r"\1:", dsn)
        where, hosts = parse(dsn, "dsn", "postgresql://user:password@host:5432/database", ("postgresql", "postgres"))
        query = dsn.partition("?")[2]
        try:
            options = parse_qs(query, strict_parsing=bool(query))
        except ValueError:  # its message shows parts of the dsn
            raise ValueError("dsn must have options such as ?sslmode=require&connect_timeout=5") from None
        shown = "the host of its options" if "host" in options else "the default host"
        self._where = f"PostgreSQL at {where.replace('the default host', shown)}"
        self._dsn, self._channel = dsn, channel
        self._listens, self._password = listens, password_of(password)
        self._names, self._timeout = HostNames(), timeout
        self._hosts = len(hosts or options.get("host", [""])[0].split(","))
        #: The backends of the last attempt, or earlier ones that still run.
        self._left: list[int] = []
        #: Less than the bus's own timeout, so that the server's error arrives first and names the cause.
        self._milliseconds = max(1, int(timeout * 800))

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> _PostgresLink:
        """Connect twice and subscribe, as ``Engine`` says."""
        connections: list[Any] = []
        try:
            publisher = await self._watched(lost, connections)
            if self._left:
                self._left = [pid for (pid,) in await publisher.fetch(_STILL_RUNNING, self._left)]
            if self._left:  # with two more, the bus would have three sessions
                raise BusyError(f"an earlier session of this bus still runs its statement; {_REMEDY_LEFT}")
            listener = await self._watched(lost, connections) if self._listens else None
            self._left = [connection.get_server_pid() for connection in connections]
            # Prepared now, so that each send is one round trip (see GRACE).
            statements = [
                await publisher.prepare(sql.format(milliseconds=self._milliseconds)) for sql in (_NOTIFY, _NOTIFY_ALL)
            ]
            link = _PostgresLink(listener, publisher, statements, self._channel, hear)
            if listener is not None:
                await self._listen(listener, publisher, channels)
                for channel in channels:
                    await listener.add_listener(channel, link.hear)
        except BaseException:
            for connection in connections:
                connection.terminate()
            raise
        return link

    async def connect(self, *_: object, **options: Any) -> Any:
        """Connect. May be given to a pool, whose own dsn and loop it ignores."""
        loop = NamesLoop(self._names, self._hosts, self._timeout)
        options |= {"loop": loop, "password": self._password}
        return await asyncpg.connect(self._dsn, **options)

    async def _watched(self, lost: Lost, connections: list[Any]) -> Any:
        connection = await self.connect()
        connections.append(connection)
        connection.add_termination_listener(lambda _: lost(ConnectionResetError("PostgreSQL hung up")))
        return connection

    async def _listen(self, listener: Any, publisher: Any, channels: Sequence[str]) -> None:
        listen = "; ".join([f"LISTEN {_identifier('channel', channel)}" for channel in channels])
        sql = _LISTEN.format(milliseconds=self._milliseconds // 2 + 1, lock=_LISTEN_LOCK, listen=listen)
        try:
            await listener.execute(sql)
        except asyncpg.LockNotAvailableError:
            usage = await publisher.fetchval("SELECT pg_notification_queue_usage()")
            why = f"another LISTEN still runs; the queue of NOTIFY is {usage:.0%} full"
            raise BusyError(f"{why}; {_REMEDY_LISTEN}") from None

    def explain(self, exc: Exception) -> str:
        """Return the reason why the bus is not connected, and the remedy, without passwords."""
        remedy = next(remedy for kind, remedy in _REMEDIES.items() if isinstance(exc, kind))
        return explained(self._where, exc, "dsn", POOLER, remedy)


#: The first that fits holds.
_REMEDIES: Final = {
    asyncpg.LockNotAvailableError: "another session's commit holds the lock of NOTIFY: find it in pg_stat_activity; "
    "does it wait for a synchronous standby (wait_event SyncRep)?",
    asyncpg.ProgramLimitExceededError: f"the queue of NOTIFY is full: {_IDLE}",
    asyncpg.ReadOnlySQLTransactionError: "it is a standby: add target_session_attrs=read-write to the dsn, and "
    "all hosts",
    asyncpg.InvalidAuthorizationSpecificationError: "check user and password in the dsn, and pg_hba.conf",
    asyncpg.InsufficientPrivilegeError: "grant it to the user in the dsn",
    asyncpg.InvalidCatalogNameError: "check the database name in the dsn",
    asyncpg.TooManyConnectionsError: "raise max_connections: a bus takes two per process, or one if it only publishes",
    asyncpg.CannotConnectNowError: "it is starting or stopping",
    asyncpg.InvalidSQLStatementNameError: POOLER,
    asyncpg.DuplicatePreparedStatementError: POOLER,
    ssl.SSLError: "check the server's certificate, and sslmode and sslrootcert in the dsn",
    FileNotFoundError: "check the paths in the dsn: sslrootcert, or host if it is a folder",
    OSError: "check that it is running, host and port in the dsn, and for TLS sslmode and the certificates",
    Exception: "check the dsn",
}


class _PostgresLink(Link):
    def __init__(self, listener: Any, publisher: Any, statements: list[Any], channel: str, hear: Hear) -> None:
        self._listener, self._publisher, self._channel, self._hear = listener, publisher, channel, hear
        self._notify, self._notify_all = (statement.fetch for statement in statements)

    def hear(self, connection: Any, pid: int, channel: str, message: str) -> None:
        if channel == self._channel or message.startswith(DATA):
            self._hear(message)

    async def send(self, messages: list[str]) -> None:
        if len(messages) > 1:
            await self._notify_all(self._channel, messages)
        else:
            await self._notify(self._channel, messages[0])

    def abort(self) -> None:
        if self._listener is not None:
            self._listener.terminate()
        self._publisher.terminate()


def trigger_sql(
    table: str,
    key: Iterable[str | int],
    *,
    bus: str = CHANNEL,
    name: str | None = None,
    operations: Iterable[str] = ("INSERT", "UPDATE", "DELETE", "TRUNCATE"),
    limit: int | None = None,
    replicated: bool = True,
) -> str:
    """Return SQL that makes every changed row of *table* publish a key when its transaction commits.

        await connection.execute(trigger_sql("public.orders", ["orders", "$customer"]))

    publishes ``("orders", 7)`` for each changed row with 7 in its column ``customer``. An UPDATE that changes the key
    also publishes the old key. A TRUNCATE has every key checked. To change the triggers, run new SQL, which replaces
    them. So if a table has several keys, or several programs make triggers of it, each needs a *name* of its own:
    otherwise the last one replaces the others. Commits that notify are serialized in the whole database cluster. For
    tables with many writes, call ``bus.publish()`` after the commit.

    Args:
        table: the table's name, with or without a schema. Names are quoted, so they are case-sensitive.
        key: the parts of the key. A str or int stands for itself, ``"$column"`` for the column's value, and
            ``"$$..."`` for a str that begins with a dollar sign. Columns should be integers, booleans, texts or UUIDs;
            other types arrive as to_json() writes them. A single part is the key itself, not a tuple. A key that is
            too long becomes "check everything".
        bus: the name of the bus to publish on.
        name: the name of the trigger and its function. None (default): ``aiopurgatory_`` and the table's name, with a
            hash of it if it had to be changed. The trigger of TRUNCATE has ``_truncate`` in addition.
        operations: any of INSERT, UPDATE, DELETE and TRUNCATE; default all.
        limit: as for ``Bus.publish()``, for each row: three new jobs of one transaction wake three. None (default): no
            limit. Then equal keys of one transaction are published once.
        replicated: also for rows that come by logical replication, or with ``session_replication_role = replica``;
            default True. The script must then be run by the owner of the table. False: TRIGGER on it is enough.

    Returns: one statement. Run it in a migration.
    Raises: TypeError, ValueError: an argument is invalid. The message names it.
    """
    parts: list[str | int] = [key] if isinstance(key, str) else list(key)
    chosen = [operation.upper() for operation in operations]
    if not parts:
        raise ValueError('key must have at least one part, such as ["orders", "$id"], got []')
    if not chosen or not set(chosen) <= {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}:
        raise ValueError(f"operations must be some of INSERT, UPDATE, DELETE and TRUNCATE, got {chosen!r}")
    schema_and_table = table.split(".")
    if not 1 <= len(schema_and_table) <= 2:
        raise ValueError(f"table must be a name, or schema.name, got {table!r}")
    own_name = name or _name_for(schema_and_table[-1])
    schema = [_identifier("table", part) for part in schema_and_table[:-1]]
    trigger = _identifier("name", own_name)
    truncate = _identifier("name", own_name.encode()[:54].decode(errors="ignore") + "_truncate")
    function = ".".join([*schema, trigger])
    told = _literal(require_channel(bus, "bus"))
    whole = ".".join(_identifier("table", part) for part in schema_and_table)
    most = None if limit is None else checked_limit(limit)
    old, new = (_notify(told, _json_of(parts, row), most) for row in ("OLD", "NEW"))
    rows = " OR ".join(operation for operation in chosen if operation != "TRUNCATE")
    events = [(trigger, rows, "ROW")] if rows else []
    if "TRUNCATE" in chosen:
        events.append((truncate, "TRUNCATE", "STATEMENT"))
    created = "".join(
        f"CREATE TRIGGER {each} AFTER {event} ON {whole} FOR EACH {of} EXECUTE FUNCTION {function}();\n"
        + (f"ALTER TABLE {whole} ENABLE ALWAYS TRIGGER {each};\n" if replicated else "")
        for each, event, of in events
    )
    return f"""DO {SCRIPT} BEGIN
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {_BODY}
DECLARE
    before text;
    line text;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM pg_catalog.pg_notify({told}, '{EVERY_KEY}');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN {old} END IF;
    IF TG_OP <> 'DELETE' THEN {new} END IF;
    RETURN NULL;
END
{_BODY};
DROP TRIGGER IF EXISTS {trigger} ON {whole};
DROP TRIGGER IF EXISTS {truncate} ON {whole};
{created}END {SCRIPT}"""


def _name_for(table: str) -> str:
    """Return the name of the trigger of *table*, and of its function. No other table has it."""
    plain = re.sub(r"\W", "_", table)
    name = f"aiopurgatory_{plain}"
    if plain == table and len(name.encode()) <= 63:
        return name
    digest = blake2b(table.encode(), digest_size=4).hexdigest()
    return f"{name.encode()[:54].decode(errors='ignore')}_{digest}"


def _notify(told: str, json: str, limit: int | None) -> str:
    """Return the NOTIFY of one row. A key that is too long must not fail the write: it becomes "check everything".

    An UPDATE that keeps the key tells it once. Equal messages of one transaction are merged. With a limit, each one has
    a sender of its own.
    """
    message = "line" if limit is None else f"'@' || gen_random_uuid() || E'\\n' || line || E'\\n+{limit}'"
    return f"""
        before := line;
        line := {json};
        IF line IS DISTINCT FROM before THEN
            PERFORM pg_catalog.pg_notify({told}, CASE WHEN octet_length(line) > {MAX_LINE} THEN '*' ELSE {message} END);
        END IF;
    """


def _json_of(parts: list[str | int], row: str) -> str:
    values = [_value(part, row) for part in parts]
    json = values[0] if len(values) == 1 else f"json_build_array({', '.join(values)})"
    return f"COALESCE({json}::text, 'null')"


def _value(part: str | int, row: str) -> str:
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise TypeError(f"key must consist of str and int parts, got {part!r}")
    if isinstance(part, str) and part.startswith("$") and not part.startswith("$$"):
        column = f"{row}.{_identifier('key', part[1:])}"
        uuid = f"json_build_object('$uuid', {column})"
        is_uuid = f"{column} IS NOT NULL AND pg_typeof({column})::text = 'uuid'"
        return f"CASE WHEN {is_uuid} THEN {uuid} ELSE to_json({column}) END"
    return f"to_json({part}::bigint)" if isinstance(part, int) else f"to_json({_literal(part.removeprefix('$'))}::text)"


def _identifier(parameter: str, text: str) -> str:
    if not text or "\0" in text or _QUOTE in text or len(text.encode()) > 63:
        raise ValueError(f"{parameter} must have names of 1 to 63 bytes without NUL or {_QUOTE}, got {text!r}")
    return '"' + text.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """Return *text* as a string constant that does not depend on standard_conforming_strings."""
    if "\0" in text or _QUOTE in text:
        raise ValueError(f"key and channel must not contain NUL or {_QUOTE}, got {text!r}")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
