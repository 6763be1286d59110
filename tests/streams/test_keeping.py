"""What is kept belongs to the topic: no other process shortens it by a default, a start, or a smaller bound (S12)."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from bus.servers import run_sql  # type: ignore[import-not-found]

from aiopurgatory import GoneError
from aiopurgatory.streams import EventLog
from aiopurgatory.streams.store import NEWEST
from aiopurgatory.streams.topic_state import DEFAULT_KEEP, Keep, TopicState, in_force, state_of

from .conftest import ON_SERVERS, Open, log_at

WEEK = 7 * 86_400.0


async def kept(log: EventLog, topic: str, after: str | None = None) -> list[str]:
    """Return the data of the events that are kept."""
    last, found = await log.last_id(topic), list[str]()
    async for event in log.follow(topic, after):
        found.append(event.data)
        if event.id == last:
            break
    return found


async def bounds(log: EventLog, topic: str) -> Keep:
    state = state_of(await log._store.read(topic, NEWEST, 1, 1))
    assert state is not None
    return state.keep


@ON_SERVERS
@pytest.mark.parametrize("script", [{}, {"keep_events": 16}], ids=["default", "smaller"])
async def test_append_by_a_script_trims_nothing(new_log: Open, topic: str, script: dict[str, Any]) -> None:
    app, other = await new_log(keep_events=160), await new_log(**script)
    for number in range(150):
        await app.append(topic, str(number))
    await other.append(topic, "script")
    assert await kept(app, topic) == [*map(str, range(150)), "script"]


@ON_SERVERS
async def test_larger_of_two_bounds_holds_and_is_told_once(
    new_log: Open, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiopurgatory")
    small, large, default = (
        await new_log(keep_events=16, keep_bytes=1 << 20),
        await new_log(keep_events=160),
        await new_log(),
    )
    for log in (small, large, default, small, large, default):
        for number in range(40):
            await log.append(topic, str(number))
    assert await bounds(default, topic) == Keep(160, 1 << 20, 0.0)
    assert 150 <= len(await kept(default, topic)) <= 160
    told = [record.getMessage() for record in caplog.records if "another process" in record.getMessage()]
    assert told == [
        f"log 'events': topic {topic!r} keeps the keep_events=160 of another process, not keep_events=16: "
        "give all the same"
    ]


@ON_SERVERS
async def test_run_keeps_its_bounds_through_another_process(new_log: Open, topic: str) -> None:
    app, script = await new_log(keep_seconds=WEEK, keep_bytes=1_000), await new_log()
    async with app.run(topic) as run:
        await run.append("a")
    assert await bounds(script, topic) == Keep(0, 1_000, WEEK)
    begun = f"{topic} of an app that only begins it"
    async with app.run(begun):
        await script.end(begun)
    assert await bounds(script, begun) == Keep(0, 1_000, WEEK)


async def test_run_that_a_reader_abandons_keeps_its_bounds(new_log: Open, topic: str, kind: str) -> None:
    app = await new_log(keep_seconds=WEEK)
    reader = app if kind == "memory" else await new_log(keep_seconds=2 * WEEK)
    run = app.run(topic, lease=0.2)
    await run.__aenter__()
    assert run._renewing is not None
    run._renewing.cancel()
    async for event in reader.follow(topic):
        assert event.data == "abandoned"
    assert (await bounds(reader, topic)).seconds == WEEK


@pytest.mark.parametrize("kind", ["redis"], indirect=True, scope="session")
async def test_redis_expiry_is_that_of_the_topic(url: str, new_log: Open, topic: str) -> None:
    from redis.asyncio import Redis as Client

    app, script = await new_log(keep_seconds=WEEK), await new_log()
    for log, name in ((app, topic), (script, topic), (script, "control")):
        await log.append(name, "a")
    async with Client.from_url(url) as client:
        for part in ("state", "events"):
            assert await client.ttl(f"events:{{{topic}}}:{part}") > WEEK - 100
            assert 86_300 < await client.ttl(f"events:{{control}}:{part}") <= 86_400


@pytest.mark.parametrize("kind", ["postgres"], indirect=True, scope="session")
async def test_postgres_start_of_a_script_deletes_no_room(url: str, new_log: Open, topic: str) -> None:
    app, script = await new_log(keep_seconds=WEEK), await new_log()
    await app.append(topic, "hello")
    await script.append(topic, "from a script")
    await script.append("control", "hello")
    quiet = "UPDATE events_topics SET touched = touched - interval '2 days', expires = expires - interval '2 days'"
    await run_sql(url, quiet)
    async with log_at(url) as starting:
        while await starting.last_id("control") is not None:  # noqa: ASYNC110 it is swept in the background
            await asyncio.sleep(0.01)
        assert await kept(starting, topic) == ["hello", "from a script"]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True, scope="session")
async def test_postgres_backlog_of_old_topics_is_deleted_in_batches(
    url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncpg

    from aiopurgatory.streams import postgres

    monkeypatch.setattr(postgres, "_BATCH", 100)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            """INSERT INTO events_topics SELECT 'old ' || i, 'v', '{}', now(), now() - interval '1 hour'
               FROM generate_series(1, 150) i;
               INSERT INTO events_events SELECT 'old 1', i, 'x' FROM generate_series(1, 2550) i;
               INSERT INTO events_events SELECT 'old ' || i, 1, 'x' FROM generate_series(2, 150) i"""
        )
        # Another process sweeps, or appends to a topic that has expired.
        await connection.execute("BEGIN; SELECT FROM events_topics WHERE topic = 'old 2' FOR UPDATE")
        async with log_at(url, keep_events=5) as log:
            await log.append(topic, "new")
            left = "SELECT array_agg(DISTINCT topic) FROM {} WHERE topic LIKE 'old %'"
            async with asyncio.timeout(30.0):
                while await connection.fetchval(left.format("events_topics")) != ["old 2"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert await connection.fetchval(left.format("events_events")) == ["old 2"]
            assert await kept(log, topic) == ["new"]
    finally:
        await connection.execute("COMMIT; DELETE FROM events_topics; DELETE FROM events_events")
        await connection.close()


@pytest.mark.parametrize("kind", ["postgres"], indirect=True, scope="session")
async def test_postgres_append_to_a_topic_that_is_being_deleted(url: str, log: Any, topic: str) -> None:
    """Its oldest events are gone, and listeners are told so. None is missing between others."""
    for number in range(1, 101):
        await log.append(topic, str(number))
    await run_sql(  # in one transaction, so that no sweep of the log comes in between
        url,
        f"""UPDATE events_topics SET expires = CASE topic WHEN '{topic}' THEN now() ELSE 'infinity' END;
        CREATE TEMP TABLE moved AS TABLE events_events;
        DELETE FROM events_events;
        INSERT INTO events_events SELECT * FROM moved ORDER BY random();
        {log._tables._drop_old.replace("$1", "60")};  -- one batch
        UPDATE events_topics SET expires = 'infinity'""",
    )
    await log.append(topic, "new")
    with pytest.raises(GoneError) as caught:
        await kept(log, topic)
    assert await kept(log, topic, caught.value.after) == [*map(str, range(61, 101)), "new"]


def test_state_without_bounds_does_not_mention_them() -> None:
    """They would go over the wire with each event."""
    assert "keep" not in json.loads(TopicState("e", "s").text())
    assert json.loads(TopicState("e", "s", keep=Keep(5)).text())["keep"] == [5, 0, 0.0]
    assert in_force(Keep(5)) == (5, *DEFAULT_KEEP[1:])
