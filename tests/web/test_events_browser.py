"""Streams of states in a real browser, as its EventSource takes them. Those of logs are in test_logs_browser.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.web import EventRoute, LongPolling, Policy

from .browser import Browser, Site
from .eventsource import Forgets
from .polls import until

pytestmark = pytest.mark.slow

PAGE = """<!DOCTYPE html><link rel="icon" href="data:,"><script>
const seen = [], sources = {};
function open(name) {
    const source = sources[name] = new EventSource("/events/" + name);
    for (const kind of ["message", "gone", "replaced"])
        source.addEventListener(kind, event => seen.push([name, kind, event.lastEventId, event.data]));
}
</script>"""


class Page:
    """A page and its streams."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.counters = Forgets()
        # A second: the server has closed its port by then. Otherwise it would refuse clients, and they would give up.
        self.polling = LongPolling(Purgatory("events"), self.counters, policy=Policy(retry_after=(1, 1)))
        route = EventRoute(self.polling, client=lambda scope: scope["path"])
        self.site = Site(self.polling.purgatory, {"/": PAGE}, Route("/events/{name}", route))

    def publish(self, number: int) -> None:
        self.counters.values["n"] = number
        self.polling.notify("n")

    async def open(self, *names: str) -> None:
        await self.browser.open(self.site.address)
        for name in names:
            await self.browser.run(f"open({name!r})")

    async def sees(self, *events: list[Any]) -> None:
        """The newest events."""
        await self.browser.until(f"return seen.slice(-{len(events)})", list(events))


@pytest.fixture
async def page(browser: Browser) -> Page:
    return Page(browser)


async def test_tab_is_closed_and_its_place_is_free(page: Page) -> None:
    driver = page.browser.driver
    async with page.site.served():
        await page.open()
        first = driver.current_window_handle
        await asyncio.to_thread(driver.switch_to.new_window, "tab")
        await page.open("n", "m")
        await until(lambda: page.site.purgatory.num_delayed == 2)
        await page.browser.run("sources.m.close()")
        await until(lambda: page.site.purgatory.num_delayed == 1)
        await asyncio.to_thread(driver.close)
        await until(lambda: page.polling.statistics().streams == page.site.purgatory.num_delayed == 0)
        driver.switch_to.window(first)


async def test_replaced_stream_does_not_come_back(page: Page) -> None:
    async with page.site.served():
        await page.open("n")
        await page.sees(["n", "message", "0", "n None 0"])
        await page.browser.run("older = sources.n; open('n')")
        await page.browser.until("return seen.map(event => event[1]).sort()", ["message", "message", "replaced"])
        await asyncio.sleep(2.0)  # twice as long as another would take
        # CONNECTING: it waits for its day to pass
        assert await page.browser.run("return [older.readyState, sources.n.readyState]") == [0, 1]
        assert len(page.site.requests) == 2


async def test_version_that_is_gone_is_told_and_forgotten(page: Page) -> None:
    async with page.site.served():
        page.publish(7)
        await page.open("n")
        await page.sees(["n", "message", "7", "n None 7"])
    page.counters.gone.add("7")
    page.publish(8)
    async with page.site.served():
        await page.sees(["n", "gone", "", "7 is gone"], ["n", "message", "8", "n None 8"])
        page.publish(9)
        await page.sees(["n", "message", "9", "n 8 9"])
        assert page.site.last_ids == ["", "7"]


async def test_resource_that_is_gone_is_not_asked_for_again(page: Page) -> None:
    async with page.site.served():
        await page.open("n")
        await page.sees(["n", "message", "0", "n None 0"])
        page.publish(-1)
        await page.sees(["n", "gone", "", "n was compacted"])
        await page.browser.until("return sources.n.readyState", 2)  # CLOSED, by the 410 when it came back
        assert page.site.last_ids == ["", ""]
