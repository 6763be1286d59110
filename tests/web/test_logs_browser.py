"""Streams of an event log in a real browser, through a real nginx, as its EventSource takes them."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from llm_stream import PAGE
from selenium import webdriver
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import EventRoute, Policy

from .proxies.programs import Nginx, free_port
from .test_events_browser import Browser, until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

PLAIN = """<!DOCTYPE html><link rel="icon" href="data:,"><script>
let seen = [], source;
function open(after) {
    source = new EventSource("/answers/1/events" + (after ? "?after=" + after : ""));
    for (const kind of ["message", "token", "gone", "end"])
        source.addEventListener(kind, event => seen.push([kind, event.data, event.lastEventId]));
}
async function follow() {
    const { events } = await import("/js/events.js");
    for await (const { id, name, data } of events("/answers/1/events")) seen.push([name, data, id]);
}
</script>"""
DATA = "return seen.map(event => event[1]).join(' ')"


#: The script of docs/streams.md, on a page.
(SCRIPT,) = re.findall(
    r"^```js\n(.*?)^```$", (ROOT / "docs" / "streams.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
DOCUMENTED = f"""<!DOCTYPE html><link rel="icon" href="data:,"><p id="text"></p><p id="state"></p><script type="module">
{SCRIPT}
onpageshow = () => listen("1", new AbortController().signal);
</script>"""


class Site:
    """Two documented pages and a plain one, and a log, on a server that can be stopped, behind nginx."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        #: The Last-Event-ID of each stream.
        self.last_ids: list[str | None] = []
        route = EventRoute(log, policy=Policy(retry_after=(1, 1)), resource=self._resource)
        pages = [Route(f"/{name}", self._page) for name in ("", "plain", "documented", "other")]
        scripts = Mount("/js", StaticFiles(packages=[("aiopurgatory.web", "js")]))
        self._app = Starlette(routes=[*pages, scripts, Route("/answers/{answer}/events", route)])
        self._app_port = free_port()
        self.nginx = Nginx(("127.0.0.1", self._app_port), {"location /polls/": "location /"})

    @property
    def address(self) -> str:
        return "http://{}:{}/".format(*self.nginx.address)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        server = uvicorn.Server(uvicorn.Config(self._app, log_level="warning", timeout_graceful_shutdown=5))
        with socket.create_server(("127.0.0.1", self._app_port)) as listener:
            await self.log.purgatory.start()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield
            finally:
                self.log.purgatory.close()
                server.should_exit = True
                await serving

    def _resource(self, scope: Any) -> str:
        last = dict(scope["headers"]).get(b"last-event-id")
        self.last_ids.append(None if last is None else last.decode())
        return str(scope["path_params"]["answer"])

    async def _page(self, request: Request) -> Response:
        pages = {"/": PAGE, "/plain": PLAIN, "/documented": DOCUMENTED}
        return HTMLResponse(pages.get(request.url.path, "<title>Another page</title>"))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with MemoryLog() as log:
        site = Site(log)
        with site.nginx:
            yield site


@pytest.fixture
async def browser(driver: webdriver.Chrome) -> AsyncIterator[Browser]:
    yield Browser(driver)
    await asyncio.to_thread(driver.get, "about:blank")


async def show(browser: Browser, address: str) -> None:
    await asyncio.to_thread(browser.driver.get, "about:blank")  # else a change of the fragment loads nothing
    await asyncio.to_thread(browser.driver.get, address)


async def test_events_have_names_and_the_end_stops_it_for_good(site: Site, browser: Browser) -> None:
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}plain")
        await browser.run("open()")
        await until(lambda: site.log.purgatory.num_delayed == 1)
        ids = [await run.append("to be", "token"), await run.append("or\nnot")]
        await browser.until("return seen", [["token", "to be", ids[0]], ["message", "or\nnot", ids[1]]])
        await run.end("enough")
        await browser.until("return seen.at(-1).slice(0, 2)", ["end", "enough"])
        await browser.until("return source.readyState", 2)  # CLOSED, by the 204 when it came back
        await asyncio.sleep(2.0)  # twice as long as another reconnect would take
        assert site.last_ids == [None, run.last_id]
        assert await browser.run("return seen.length") == 3


async def test_server_restarted_at_once_is_not_noticed(site: Site, browser: Browser) -> None:
    async with site.log.run("1") as run:
        async with site.served():
            await show(browser, f"{site.address}plain")
            await browser.run("open()")
            await until(lambda: site.log.purgatory.num_delayed == 1)
            before = await run.append("a", "token")
            await browser.until(DATA, "a")
        await run.append("b", "token")
        async with site.served():
            await browser.until(DATA, "a b")
            assert site.last_ids == [None, before]
            await run.append("c", "token")
            await browser.until(DATA, "a b c")


async def test_page_goes_on_after_a_502_with_the_last_id(site: Site, browser: Browser) -> None:
    async with site.log.run("1") as run:
        async with site.served():
            await show(browser, f"{site.address}plain")
            await browser.run("open()")
            await until(lambda: site.log.purgatory.num_delayed == 1)
            await run.append("a", "token")
            await browser.until(DATA, "a")
        await browser.until("return source.readyState", 2)  # CLOSED: EventSource gives up at nginx's 502
        await run.append("b", "token")
        async with site.served():
            await browser.run("open(seen.at(-1)[2])")
            await browser.until(DATA, "a b")


@pytest.mark.parametrize("page", ["#1", "documented"])
async def test_documented_page_is_reloaded_and_reopened(site: Site, browser: Browser, page: str) -> None:
    text = "return document.querySelector('#text').textContent"
    async with site.log.run("1") as run:
        async with site.served():
            await show(browser, f"{site.address}{page}")
            await run.append("a", "token")
            await browser.until(text, "a")
            await asyncio.to_thread(browser.driver.refresh)
            await run.append("b", "token")
            await browser.until(text, "ab")
        await asyncio.sleep(2.0)  # nginx answers 502
        await run.append("c", "token")
        async with site.served():
            await browser.until(text, "abc")
            await run.end()
            await browser.until("return document.querySelector('#state').textContent", "done")
            await until(lambda: site.log.purgatory.num_delayed == 0)


@pytest.mark.parametrize("is_over", [False, True])
async def test_page_left_and_returned_to_misses_nothing(site: Site, browser: Browser, is_over: bool) -> None:
    text = "return document.querySelector('#text').textContent"
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}#1")
        await run.append("a", "token")
        await browser.until(text, "a")
        await browser.run("window.was = true")
        await asyncio.to_thread(browser.driver.get, f"{site.address}other")
        await until(lambda: site.log.purgatory.num_delayed == 0)
        await run.append("b", "token")
        if is_over:
            await run.end()
        await asyncio.to_thread(browser.driver.back)
        assert await browser.run("return window.was")
        await browser.until(text, "ab")
        if not is_over:
            await run.append("c", "token")
            await browser.until(text, "abc")


@pytest.mark.parametrize("begin", ["open()", "follow()"])
async def test_page_kept_for_the_back_button_misses_nothing(site: Site, browser: Browser, begin: str) -> None:
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}plain")
        await browser.run(begin)
        await run.append("a", "token")
        await browser.until(DATA, "a")
        await asyncio.to_thread(browser.driver.get, f"{site.address}other")
        await run.append("b", "token")
        await asyncio.sleep(0.5)
        assert site.log.purgatory.num_delayed == 1  # it keeps its place, too
        await asyncio.to_thread(browser.driver.back)
        await browser.until(DATA, "a b")
        assert len(site.last_ids) == 1
