"""The service of docs/logins.md: what a login that ends, ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from aiopurgatory.testing import MemoryBus, MemoryServer

from .helpers import block, until

pytest.importorskip("fastapi")
#: Once: the topics of its log are there for good.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])


def program(name: str) -> Any:
    """The page's file *name*, imported."""
    module = sys.modules[name] = ModuleType(name)
    exec(block("logins.md", f"{name}.py"), module.__dict__)
    return module


service = program("service")
program("routes")
revocations = program("revocations")
app, inboxes, log, logins, polling = (getattr(service, name) for name in ("app", "inboxes", "log", "logins", "polling"))
for name in ("service", "routes", "revocations"):
    del sys.modules[name]  # other tests may import files of these names


@asynccontextmanager
async def client_of(user: int, seconds: float = 60.0) -> AsyncIterator[httpx.AsyncClient]:
    cookies = {"token": await logins.begin(user, seconds)}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", cookies=cookies) as client:
        yield client


async def parked(count: int) -> None:
    await until(lambda: log.purgatory.num_delayed + polling.purgatory.num_delayed == count)


@pytest.mark.parametrize("path", ["/runs/a", "/runs/a/events", "/inbox"])
async def test_login_is_needed(path: str) -> None:
    async with log, client_of(1, -1.0) as client:
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize("path", ["/runs/f", "/runs/g/events"])
async def test_token_is_found_behind_a_cookie_of_json(path: str) -> None:
    async with log, client_of(1) as client:
        await log.end(path.split("/")[2])
        (token,) = client.cookies.values()
        client.cookies.clear()
        for other, status in [("", 200), ('a={"b": 1}; ', 200), ('a={"b": 1}; no', 401)]:
            answer = await client.get(path, headers={"cookie": f"{other}token={token}"})
            assert answer.status_code == status


@pytest.mark.parametrize("path", ["/runs/a", "/runs/e/events"])
async def test_token_expires(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(service, "time", SimpleNamespace(time=lambda: now))
    monkeypatch.setattr("aiopurgatory.web.stream.time", lambda: now)
    async with log, client_of(1, 0.5) as client:
        await log.append(path.split("/")[2], "early")
        begin = time.monotonic()
        async with asyncio.timeout(15.0):  # a stream may last for an hour; not each lets a cancellation through
            assert (await client.get(path)).text.count("data: early") == 1
        assert 0.4 < time.monotonic() - begin < 15.0
        now += 0.5
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize("path", ["/runs/b", "/runs/c/events"])
async def test_user_logs_out(path: str) -> None:
    async with log, client_of(1) as ann, client_of(2) as bob:
        hers, his = asyncio.create_task(ann.get(path)), asyncio.create_task(bob.get(path))
        await parked(2)
        assert (await ann.delete("/login")).status_code == 200
        assert "late" not in (await hers).text
        assert (await ann.get(path)).status_code == 401
        await log.end(path.split("/")[2], "late")
        assert "data: late" in (await his).text


async def test_user_logs_out_while_a_poll_waits() -> None:
    async with polling, client_of(1) as ann, client_of(2) as bob:
        headers = {"If-None-Match": '"0"'}
        requests = [client.get("/inbox", headers=headers) for client in (ann, bob)]
        polls = [asyncio.create_task(request) for request in requests]
        await parked(2)
        assert (await ann.delete("/login")).status_code == 200
        assert (await polls[0]).status_code == 503
        assert (await ann.get("/inbox")).status_code == 401
        inboxes.unread[2] = 1
        polling.notify(2)
        assert (await polls[1]).text == "1"


async def test_user_logs_out_in_another_worker() -> None:
    server = MemoryServer()
    async with log, client_of(1) as ann, client_of(2) as bob:
        here, there = MemoryBus(server, [revocations.Revocations()]), MemoryBus(server, [])
        async with here, there:
            hers = asyncio.create_task(ann.get("/runs/d"))
            his = asyncio.create_task(bob.get("/runs/d"))
            await parked(2)
            await logins.end(1)
            there.publish(("user", 1))
            assert (await hers).status_code == 200
            await parked(1)
            await here.gap()
            assert (await his).status_code == 200
