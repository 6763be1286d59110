"""Streams of events in a real browser, as its EventSource takes them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from selenium import webdriver
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, Policy

from .eventsource import Forgets

pytestmark = pytest.mark.slow

PAGE = """<!DOCTYPE html><link rel="icon" href="data:,"><script>
const seen = [], sources = {};
function open(name) {
    const source = sources[name] = new EventSource("/events/" + name);
    for (const kind of ["message", "gone", "replaced"])
        source.addEventListener(kind, event => seen.push([name, kind, event.lastEventId, event.data]));
}
</script>"""


class Site:
    """A page and its streams, on a server that can be stopped and started again on the same port."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.counters = Forgets()
        # A second: the server has closed its port by then. Otherwise it would refuse clients, and they would give up.
        self.polling = LongPolling(purgatory, self.counters, policy=Policy(retry_after=(1, 1)))
        #: The Last-Event-ID of each stream, in the order in which they began.
        self.last_ids: list[str | None] = []
        route = EventRoute(self.polling, resource=self._resource, client=lambda scope: scope["path"])
        self._app = Starlette(routes=[Route("/", self._page), Route("/events/{name}", route)])
        self._port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def publish(self, name: str) -> None:
        self.counters.values[name] = self.counters.values.get(name, 0) + 1
        self.polling.notify(name)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        server = uvicorn.Server(uvicorn.Config(self._app, log_level="warning", timeout_graceful_shutdown=5))
        with socket.create_server(("127.0.0.1", self._port)) as listener:
            self._port = listener.getsockname()[1]
            await self.purgatory.start()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield
            finally:
                self.purgatory.close()
                server.should_exit = True
                await serving

    def _resource(self, scope: Any) -> str:
        headers = dict(scope["headers"])
        last = headers.get(b"last-event-id")
        self.last_ids.append(None if last is None else last.decode())
        return str(scope["path_params"]["name"])

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(PAGE)


@pytest.fixture
async def site() -> Site:
    return Site(Purgatory("events"))


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    async def run(self, script: str) -> Any:
        return await asyncio.to_thread(self.driver.execute_script, script)

    async def open(self, site: Site, *names: str) -> None:
        await asyncio.to_thread(self.driver.get, site.address)
        for name in names:
            await self.run(f"open({name!r})")

    async def has_seen(self, *events: list[str]) -> None:
        """Wait until the page has seen these events and no others."""
        await self.until("return seen", list(events))

    async def until(self, script: str, expected: Any) -> None:
        end = time.monotonic() + 15
        while (found := await self.run(script)) != expected:
            assert time.monotonic() < end, f"{expected} was expected, and after 15 s it is {found}"
            await asyncio.sleep(0.02)


@pytest.fixture
async def browser(driver: webdriver.Chrome) -> AsyncIterator[Browser]:
    yield Browser(driver)
    await asyncio.to_thread(driver.get, "about:blank")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not holds():  # noqa: ASYNC110 (no event announces it)
            await asyncio.sleep(0.01)


async def test_events_arrive_as_they_are_published(site: Site, browser: Browser) -> None:
    async with site.served():
        await browser.open(site, "n")
        await browser.has_seen(["n", "message", "0", "n None 0"])
        for _ in range(2):
            site.publish("n")
            await asyncio.sleep(0.1)
        await browser.has_seen(
            ["n", "message", "0", "n None 0"], ["n", "message", "1", "n 0 1"], ["n", "message", "2", "n 1 2"]
        )


async def test_server_is_restarted_and_the_stream_goes_on(site: Site, browser: Browser) -> None:
    async with site.served():
        await browser.open(site, "n")
        site.publish("n")
        await browser.until("return seen.at(-1)?.[2]", "1")
        seen = await browser.run("return seen.length")
    site.publish("n")
    await asyncio.sleep(0.5)  # it does not get through meanwhile
    async with site.served():
        await browser.until("return seen.at(-1)", ["n", "message", "2", "n 1 2"])
        assert await browser.run("return seen.length") == seen + 1
        assert site.last_ids == [None, "1"]


async def test_tab_is_closed_and_its_place_is_free(site: Site, browser: Browser) -> None:
    async with site.served():
        await browser.open(site)
        first = browser.driver.current_window_handle
        await asyncio.to_thread(browser.driver.switch_to.new_window, "tab")
        await browser.open(site, "n", "m")
        await until(lambda: site.purgatory.num_delayed == 2)
        await browser.run("sources.m.close()")
        await until(lambda: site.purgatory.num_delayed == 1)
        await asyncio.to_thread(browser.driver.close)
        await until(lambda: site.polling.statistics().streams == 0)
        assert site.purgatory.num_delayed == 0
        browser.driver.switch_to.window(first)


async def test_replaced_stream_does_not_come_back(site: Site, browser: Browser) -> None:
    async with site.served():
        await browser.open(site, "n")
        await browser.has_seen(["n", "message", "0", "n None 0"])
        await browser.run("older = sources.n; open('n')")
        await browser.until("return seen.map(event => event[1]).sort()", ["message", "message", "replaced"])
        await asyncio.sleep(2.0)  # twice as long as another would take
        assert await browser.run("return older.readyState") == 0  # CONNECTING: it waits for its day to pass
        assert await browser.run("return sources.n.readyState") == 1
        assert len(site.last_ids) == 2


async def test_version_that_is_gone_is_told_and_forgotten(site: Site, browser: Browser) -> None:
    async with site.served():
        site.counters.values["n"] = 7
        await browser.open(site, "n")
        await browser.has_seen(["n", "message", "7", "n None 7"])
    site.counters.gone.add("7")
    site.publish("n")
    async with site.served():
        await browser.has_seen(
            ["n", "message", "7", "n None 7"], ["n", "gone", "", "7 is gone"], ["n", "message", "8", "n None 8"]
        )
        site.publish("n")
        await browser.until("return seen.at(-1)", ["n", "message", "9", "n 8 9"])
        assert site.last_ids == [None, "7"]


async def test_resource_that_is_gone_is_not_asked_for_again(site: Site, browser: Browser) -> None:
    async with site.served():
        await browser.open(site, "n")
        await browser.has_seen(["n", "message", "0", "n None 0"])
        site.counters.values["n"] = -1
        site.polling.notify("n")
        await browser.until("return seen.at(-1)", ["n", "gone", "", "n was compacted"])
        await browser.until("return sources.n.readyState", 2)  # CLOSED, by the 410 when it came back
        assert site.last_ids == [None, None]


async def test_refused_client_is_told_that_it_must_come_back_itself(site: Site, browser: Browser) -> None:
    async with site.served():
        site.purgatory.close()
        await browser.open(site, "n")
        await browser.until("return sources.n.readyState", 2)  # CLOSED
        await site.purgatory.start()
        await browser.run("open('n')")
        await browser.has_seen(["n", "message", "0", "n None 0"])
