r"""Long polls of a PostgreSQL table, with any number of worker processes. (PostgreSQL 14 or newer)

    export DATABASE_URL=postgresql://user:password@127.0.0.1:5432/database
    cd examples && uvicorn --workers 3 longpoll_postgres:app

    curl -i localhost:8000/topics/orders                         200, the last 100 events, and an ETag
    curl -i localhost:8000/topics/orders -H 'If-None-Match: "7"' -H 'Prefer: wait=20'
                                                                 waits; 200 and events after event 7, or else 304
    curl localhost:8000/topics/orders -d '{"item": 1}'           201 {"id":8}
    psql $DATABASE_URL -c "INSERT INTO events (topic, data) VALUES ('orders', '{\"item\": 2}')"

Each of the last two commands answers the polls waiting for ``orders``, in every worker. The ETag is the id of the last
event. After an answer 410, start over without If-None-Match: the client's last event is no longer in the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import asyncpg
from fastapi import FastAPI, HTTPException, Path, Request
from starlette.routing import Route
from starlette.types import Scope

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.bus.postgres import PostgresBus, trigger_sql
from aiopurgatory.web import LongPolling, LongPollRoute

# A sequence assigns ids before the commit: event 8 can become visible before 7, and a client at 8 would never see 7.
# Here, a topic's ids come from a row that stays locked until the commit, so its events become visible in order.
SCHEMA = """
SELECT pg_advisory_xact_lock(20240817);  -- the workers start at once, and concurrent CREATE TABLEs can fail
CREATE TABLE IF NOT EXISTS topics (topic text PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE IF NOT EXISTS events (topic text, id bigint, data jsonb NOT NULL, PRIMARY KEY (topic, id));
CREATE OR REPLACE FUNCTION number_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO topics VALUES (NEW.topic, 1)
    ON CONFLICT (topic) DO UPDATE SET last = topics.last + 1 RETURNING last INTO NEW.id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER number_event BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION number_event();
"""
# Each INSERT publishes its topic on commit. The topic is the key that its polls wait under.
WAKE = trigger_sql("events", ["$topic"], operations=["INSERT"])

TOPIC = r"[\w.-]{1,100}"
FIRST_READ = 100
#: The most events of an answer: a client may ask for all from the first one on.
MOST = 1_000


class Events:
    """The source of the polls. A woken worker reads the table itself: the bus carries keys, not data."""

    pool: asyncpg.Pool

    async def version(self, topic: str) -> str:
        return str(await self.pool.fetchval("SELECT last FROM topics WHERE topic = $1", topic) or 0)

    async def read(self, topic: str, since: str | None, version: str) -> tuple[str, bytes]:
        """The events after *since*, up to *version*, and the version of the last: a client far behind asks again."""
        known = max(int(version) - FIRST_READ, 0) if since is None else event_id(since)
        rows = await self.pool.fetch(
            """SELECT id, json_build_object('id', id, 'data', data)::text AS event
            FROM events WHERE topic = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4""",
            *(topic, known, int(version), MOST + 1),
        )
        # The client's last event must still be there. It is not if old events were deleted, or a backup was restored.
        # (This is not noticed once new events have taken the same ids: empty both tables after a restore.)
        if since is not None and (not rows or rows[0]["id"] != max(known, 1)):
            raise GoneError(f"event {since} of {topic} no longer exists; start over without If-None-Match")
        last = str(rows[-1]["id"]) if rows else version
        return last, f"[{','.join(row['event'] for row in rows if row['id'] > known)}]".encode()


def event_id(since: str) -> int:
    """Parse *since*: clients may send anything as their version."""
    if not re.fullmatch(r"\d{1,18}", since, re.ASCII):
        raise GoneError("the version in If-None-Match is unknown; start over without it")
    return int(since)


def topic_of(scope: Scope) -> str:
    topic: str = scope["path_params"]["topic"]
    if not re.fullmatch(TOPIC, topic):
        raise HTTPException(404, f"topic must be 1 to 100 letters, digits and _.-, got {topic[:100]!r}")
    return topic


events = Events()
polling = LongPolling(Purgatory("polls"), events)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["DATABASE_URL"]
    # Each worker process has a bus and a pool. If PostgreSQL hangs, polls are answered 503 after 5 s.
    async with PostgresBus(url, [polling]), asyncpg.create_pool(url, command_timeout=5) as events.pool:
        await events.pool.execute(SCHEMA + WAKE)  # in production, use a migration: this locks the table
        yield


app = FastAPI(
    lifespan=lifespan, routes=[Route("/topics/{topic}", LongPollRoute(polling, resource=topic_of), methods=["GET"])]
)


@app.post("/topics/{topic}", status_code=201)
async def publish(topic: Annotated[str, Path(pattern=f"^{TOPIC}$")], request: Request) -> dict[str, Any]:
    insert = "INSERT INTO events (topic, data) VALUES ($1, $2) RETURNING id"
    try:
        return {"id": await events.pool.fetchval(insert, topic, (await request.body()).decode())}
    except (asyncpg.DataError, asyncpg.StatementTooComplexError, UnicodeDecodeError) as exc:  # not valid jsonb
        raise HTTPException(400, f"the body must be JSON: {exc}") from exc
