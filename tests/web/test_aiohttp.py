"""Handlers of aiohttp apps when their clients leave."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web

from aiopurgatory import Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import DisconnectedError, LongPolling, while_connected
from aiopurgatory.web.aiohttp import setup

from .helpers import Answered
from .polls import KNOWN, Counters, until

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Site:
    """An app with one handler, and a client that asks for it and leaves."""

    def __init__(self) -> None:
        self.purgatory = Purgatory()
        self.polling = LongPolling(self.purgatory, Counters())
        self.seen: list[str] = []

    async def answer(self, request: web.Request) -> int:
        return (await self.polling.answer("n", KNOWN, request.query)).status

    @asynccontextmanager
    async def served(self, handler: Handler, cancels: bool = True) -> AsyncIterator[tuple[str, int]]:
        app = web.Application()
        app.router.add_get("/", handler)
        setup(app, self.purgatory)
        runner = web.AppRunner(app, handler_cancellation=cancels)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield runner.addresses[0]
        finally:
            await runner.cleanup()

    async def ask_and_leave(self, handler: Handler, has_begun: Callable[[], bool]) -> None:
        async with self.served(handler) as address:
            _, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(has_begun)
            writer.close()
            await until(lambda: "ended" in self.seen)


@pytest.mark.parametrize("arguments", [(Purgatory(), web.Application()), (web.Application(), Purgatory)])
def test_setup_of_something_else_is_refused(arguments: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"^purgatory must be a Purgatory, got <"):
        setup(*arguments)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("failure", [LookupError, web.HTTPNotFound])
async def test_handler_that_raises_after_its_poll_is_logged_once(
    site: Site, failure: type[Exception], caplog: pytest.LogCaptureFixture, reported: list[Any]
) -> None:
    async def handler(request: web.Request) -> web.Response:
        site.seen.append(str(await site.answer(request)))
        site.seen.append("ended")
        raise failure

    await site.ask_and_leave(handler, lambda: site.purgatory.num_delayed == 1)
    assert site.seen == ["499", "ended"]
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
    logged = [] if failure is web.HTTPNotFound else ["a handler raised after its client had disconnected"]
    assert [record.message for record in caplog.records if record.name == "aiohttp.web"] == logged


async def test_handler_that_does_not_poll_is_cancelled(site: Site) -> None:
    async def handler(request: web.Request) -> web.Response:
        site.seen.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            site.seen.append("ended")
        return web.Response()

    await site.ask_and_leave(handler, lambda: "begun" in site.seen)
    assert site.seen == ["begun", "ended"]


async def test_block_ends_with_its_client_and_its_handler_goes_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.Response:
        try:
            async with while_connected():
                await site.purgatory.wait_for(lambda: site.seen or None, ["n"], timeout=60)
        except DisconnectedError:
            await asyncio.sleep(0.01)
            site.seen.append("ended")
            raise
        return web.Response()

    await site.ask_and_leave(handler, lambda: site.purgatory.num_delayed == 1)
    assert site.purgatory.num_delayed == 0
    assert caplog.records == []


async def test_block_without_handler_cancellation_says_what_it_needs(site: Site) -> None:
    async def handler(request: web.Request) -> web.Response:
        with pytest.raises(RuntimeError, match="and handler_cancellation=True for run_app"):
            async with while_connected():
                pass
        site.seen.append("ended")
        return web.Response()

    async with site.served(handler, cancels=False) as address, ClientSession() as client:
        assert (await client.get("http://{}:{}/".format(*address))).status == 200


@pytest.mark.parametrize("failure", [PurgatoryClosedError, PurgatoryFullError, asyncio.CancelledError])
@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("cancels", [False, True])
async def test_refusal_that_leaves_a_handler_is_answered_503(
    site: Site, failure: type[BaseException], has_begun: bool, cancels: bool
) -> None:
    """One that was cancelled, as a wait by cancel_for_key(), counts as closed."""

    async def handler(request: web.Request) -> web.Response:
        if has_begun:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"x")
        raise failure("refused")

    async with site.served(handler, cancels) as address, asyncio.timeout(5.0):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = Answered(whole := await reader.read())  # to the end of the connection
        assert answer.status == (200 if has_begun else 503)
        assert ("refused" in answer.headers) != has_begun
        assert whole.count(b"HTTP/1.1") == 1
        writer.close()
