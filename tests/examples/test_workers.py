"""The examples for several workers on real servers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from private_servers import Server, free_port, program

from .helpers import ENV, EXAMPLES, engine, read, until_open


class Fleet:
    """Three worker processes of an example, run as its docstring says."""

    def __init__(self, app: str, server: Server) -> None:
        self.port, self.url = free_port(), server.url()
        command = [sys.executable, "-m", "uvicorn", "--workers", "3", "--port", str(self.port), *app.split()]
        variables = {"DATABASE_URL": self.url, "REDIS_URL": self.url, "DEMO_EXAMPLE": f"longpoll_{server.kind}"}
        options = ["--log-level", "warning", "--app-dir", str(EXAMPLES)]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=ENV | variables)
        until_open(self.port)

    def ask(self, etag: str | None, wait: float = 20.0, topic: str = "orders") -> socket.socket:
        """Send a poll, on a connection of its own."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=25)
        condition = "" if etag is None else f"If-None-Match: {etag}\r\n"
        client.sendall(
            f"GET /topics/{topic}?wait={wait} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{condition}\r\n".encode()
        )
        return client

    def poll(self, etag: str | None, wait: float = 20.0, topic: str = "orders") -> tuple[int, str, Any]:
        return answered(self.ask(etag, wait, topic))[:3]

    def stop(self) -> None:
        self.process.terminate()
        _, err = self.process.communicate(timeout=20)
        assert (self.process.returncode, err) == (0, "")


def answered(client: socket.socket) -> tuple[int, str, Any, str]:
    """The status, the ETag, the ids or None, and the worker that it came from, if it told."""
    status, rest = read(client)
    head, _, body = rest.partition("\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    ids = [event["id"] for event in json.loads(body)] if status == 200 else None
    return status, fields.get("etag", ""), ids, fields.get("worker", "")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with engine("postgres")() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(postgres: Server) -> Iterator[Fleet]:
    fleet = Fleet("longpoll_postgres:app", postgres)
    yield fleet
    fleet.stop()


INSERT = "INSERT INTO events (topic, data) VALUES ('{}', '{{}}')"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_plain_write_wakes_polls_of_all_workers(kind: str) -> None:
    """By the servers' own tools, as the docstrings have it."""
    writer = program("psql" if kind == "postgres" else "redis-cli")
    with engine(kind)() as server:
        if writer is None:
            pytest.skip("psql or redis-cli is not installed: make programs")
        fleet = Fleet("--factory demo_workers_server:create_app", server)
        try:
            workers: set[str] = set()
            clients = []
            deadline = time.monotonic() + 20
            while len(workers) < 3:  # until each has one; all came, and this one begins, before the write
                assert time.monotonic() < deadline
                _, etag, _, worker = answered(fleet.ask(None))
                workers.add(worker)
            clients = [fleet.ask(etag) for _ in range(30)]
            time.sleep(0.5)
            if kind == "postgres":
                subprocess.run([writer, server.url(), "-qc", INSERT.format("orders")], check=True, timeout=20)
            else:
                lines = 'XADD events:orders * item 2\nPUBLISH aiopurgatory "\\"orders\\""\n'
                command = [writer, "--no-auth-warning", "-u", server.url()]
                subprocess.run(command, input=lines, text=True, check=True, timeout=20, stdout=subprocess.DEVNULL)
            start = time.monotonic()
            answers = [answered(client) for client in clients]
            assert time.monotonic() - start < 5.0  # of the 20 s that they would have waited
            assert {(status, len(ids)) for status, _, ids, _ in answers} == {(200, 1)}
            assert {worker for *_, worker in answers} == workers
        finally:
            fleet.stop()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_postgres_interleaved_transactions_lose_nothing(fleet: Fleet, end: str) -> None:
    """The event that is inserted first would become visible last, if ids were given out before the commit."""
    asyncio.run(interleave(fleet, end))


async def interleave(fleet: Fleet, end: str) -> None:
    async def poll(etag: str | None, wait: float) -> tuple[int, str, Any]:
        return await asyncio.to_thread(fleet.poll, etag, wait, end)

    older, newer = [await asyncpg.connect(fleet.url) for _ in range(2)]
    try:
        assert await poll(None, 0.0) == (200, '"0"', [])
        parked = asyncio.create_task(poll('"0"', 20.0))
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
            parked = asyncio.create_task(poll(found[1], 0.5))
        assert found[0] == 304
        assert seen == ([1, 2] if end == "COMMIT" else [1])
    finally:
        await older.close()
        await newer.close()


@pytest.mark.slow
def test_postgres_client_ahead_or_cut_off_starts_over(fleet: Fleet) -> None:
    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(fleet.url)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute(";".join([INSERT.format("gone")] * 3)))
    assert fleet.poll('"1"', topic="gone") == (200, '"3"', [2, 3])
    assert fleet.poll(None, topic="gone") == (200, '"3"', [1, 2, 3])
    for version in ['"4"', '"x"', '"99999999999999999999999"', '"1-1"']:  # of before a backup was restored; no version
        assert fleet.poll(version, topic="gone")[0] == 410
    asyncio.run(execute("DELETE FROM events WHERE topic = 'gone' AND id < 2"))
    assert [fleet.poll(f'"{version}"', topic="gone")[0] for version in (0, 1, 2)] == [410, 410, 200]
    assert fleet.poll('"3"', 0.2, topic="gone")[0] == 304
