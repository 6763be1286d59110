"""The examples for several workers on real servers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import asyncpg
import httpx
import pytest
from private_servers import Server, program

from .helpers import ENV, EXAMPLES, engine, served

#: Once: events stay in the tables of the module's server.
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]


def fleet_of(app: str, server: Server, *options: str) -> AbstractContextManager[str]:
    """The address of three worker processes of an example, run as its docstring says."""
    variables = {"DATABASE_URL": server.url(), "REDIS_URL": server.url(), "DEMO_EXAMPLE": f"longpoll_{server.kind}"}
    return served(EXAMPLES, app, ENV | variables, "--workers", "3", *options)


def client_of(address: str) -> httpx.AsyncClient:
    """With a connection of its own for each request: any worker may accept it."""
    return httpx.AsyncClient(base_url=address, timeout=25.0, limits=httpx.Limits(max_keepalive_connections=0))


async def poll(client: httpx.AsyncClient, etag: str | None, wait: float = 20.0, topic: str = "orders") -> Any:
    """The status, the ETag, the ids or None, and the worker that it came from, if it told."""
    headers = {} if etag is None else {"If-None-Match": etag}
    answer = await client.get(f"/topics/{topic}", params={"wait": wait}, headers=headers)
    ids = [event["id"] for event in answer.json()] if answer.status_code == 200 else None
    return answer.status_code, answer.headers.get("etag", ""), ids, answer.headers.get("worker", "")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with engine("postgres")() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(postgres: Server) -> Iterator[str]:
    with fleet_of("longpoll_postgres:app", postgres) as address:
        yield address


INSERT = "INSERT INTO events (topic, data) VALUES ('{}', '{{}}')"


def write(writer: str, server: Server) -> None:
    """By the servers' own tools, as the docstrings have it."""
    if server.kind == "postgres":
        subprocess.run([writer, server.url(), "-qc", INSERT.format("orders")], check=True, timeout=20)
    else:
        lines = 'XADD events:orders * item 2\nPUBLISH aiopurgatory "\\"orders\\""\n'
        command = [writer, "--no-auth-warning", "-u", server.url()]
        subprocess.run(command, input=lines, text=True, check=True, timeout=20, stdout=subprocess.DEVNULL)


async def wake(writer: str, server: Server, address: str) -> None:
    """In rounds, until each worker has woken polls: the kernel chooses which of them accepts a connection."""
    workers: set[str] = set()
    woken: set[str] = set()
    etag: str | None = None
    async with client_of(address) as client, asyncio.timeout(60.0):
        while len(workers) < 3:  # until each has one; all came, and this one begins, before the write
            _, etag, _, worker = await poll(client, None)
            workers.add(worker)
        while woken != workers:
            parked = []
            for _ in range(10):
                parked.append(asyncio.create_task(poll(client, etag)))
                await asyncio.sleep(0.02)  # a worker accepts all connections that have come
            await asyncio.sleep(0.5)
            await asyncio.to_thread(write, writer, server)
            async with asyncio.timeout(15.0):  # of the 20 s that they would have waited
                answers = await asyncio.gather(*parked)
            assert {(status, len(ids)) for status, _, ids, _ in answers} == {(200, 1)}
            etag = answers[0][1]
            woken.update(worker for *_, worker in answers)


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_plain_write_wakes_polls_of_all_workers(kind: str) -> None:
    writer = program("psql" if kind == "postgres" else "redis-cli")
    with engine(kind)() as server:
        if writer is None:
            pytest.skip("psql or redis-cli is not installed: make programs")
        with fleet_of("demo_workers_server:create_app", server, "--factory") as address:
            await wake(writer, server, address)


async def test_postgres_client_far_behind_gets_bounded_answers(fleet: str, postgres: Server) -> None:
    connection = await asyncpg.connect(postgres.url())
    await connection.execute("INSERT INTO events (topic, data) SELECT 'long', '{}' FROM generate_series(1, 2500)")
    await connection.close()
    etag, got = '"0"', list[list[int]]()
    async with client_of(fleet) as client:
        while sum(map(len, got)) < 2500:
            _, etag, ids, _ = await poll(client, etag, 0.0, "long")
            got.append(ids)
        assert (await poll(client, etag, 0.0, "long"))[0] == 304
    assert [number for ids in got for number in ids] == list(range(1, 2501))
    assert len(got) == 3


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_postgres_interleaved_transactions_lose_nothing(fleet: str, postgres: Server, end: str) -> None:
    """The event that is inserted first would become visible last, if ids were given out before the commit."""
    older, newer = [await asyncpg.connect(postgres.url()) for _ in range(2)]
    async with client_of(fleet) as client:
        assert (await poll(client, None, 0.0, end))[:3] == (200, '"0"', [])
        parked = asyncio.create_task(poll(client, '"0"', 20.0, end))
        await older.execute("BEGIN;" + INSERT.format(end))
        second = asyncio.create_task(newer.execute(INSERT.format(end)))
        await asyncio.sleep(0.3)
        assert not second.done()
        assert not parked.done()
        await older.execute(end)
        await second
        seen: list[int] = []
        while (found := await parked)[0] == 200:
            seen += found[2]
            parked = asyncio.create_task(poll(client, found[1], 0.5, end))
        assert found[0] == 304
        assert seen == ([1, 2] if end == "COMMIT" else [1])
    await older.close()
    await newer.close()


async def test_postgres_client_ahead_or_cut_off_starts_over(fleet: str, postgres: Server) -> None:
    connection = await asyncpg.connect(postgres.url())
    async with client_of(fleet) as client:

        async def gone(version: str | None, wait: float = 20.0) -> Any:
            return (await poll(client, version, wait, "gone"))[:3]

        await connection.execute(";".join([INSERT.format("gone")] * 3))
        assert await gone('"1"') == (200, '"3"', [2, 3])
        assert await gone(None) == (200, '"3"', [1, 2, 3])
        # Of before a backup was restored; no version.
        for version in ['"4"', '"x"', '"99999999999999999999999"', '"1-1"']:
            assert (await gone(version))[0] == 410
        await connection.execute("DELETE FROM events WHERE topic = 'gone' AND id < 2")
        assert [(await gone(f'"{version}"'))[0] for version in (0, 1, 2)] == [410, 410, 200]
        assert (await gone('"3"', 0.2))[0] == 304
    await connection.close()
