"""Streams in a real browser, as its EventSource takes them: of an event log, through a real nginx, and of states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from llm_stream import PAGE
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import EventRoute, LogPolling, LongPolling, Policy

from .browser import Browser, Site
from .eventsource import Forgets
from .polls import until
from .proxies.programs import Nginx
from .proxies.recipes import blocks

pytestmark = pytest.mark.slow

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
TEXT = "return document.querySelector('#text').textContent"
DATA = "return seen.map(event => event[1]).join(' ')"


#: The script of docs/streams.md, on a page.
(SCRIPT,) = blocks("streams.md", "js")
DOCUMENTED = f"""<!DOCTYPE html><link rel="icon" href="data:,"><p id="text"></p><p id="state"></p><script type="module">
{SCRIPT}
onpageshow = () => listen("1", new AbortController().signal);
</script>"""


OTHER = """<!DOCTYPE html><link rel="icon" href="data:,"><title>Another page</title>"""


class Behind(Site):
    """Two documented pages and a plain one, and a log, on a server behind nginx."""

    def __init__(self, log: MemoryLog) -> None:
        pages = {"/": PAGE, "/plain": PLAIN, "/documented": DOCUMENTED, "/other": OTHER}
        route = EventRoute(LogPolling(log, Policy(retry_after=(1, 1))))
        super().__init__(log.purgatory, pages, Route("/answers/{answer}/events", route))
        self.log = log
        self.nginx = Nginx(("127.0.0.1", self.port), {"location /polls/": "location /"})

    @property
    def address(self) -> str:
        return "http://{}:{}/".format(*self.nginx.address)


@pytest.fixture
async def site() -> AsyncIterator[Behind]:
    async with MemoryLog() as log:
        site = Behind(log)
        with site.nginx:
            yield site


async def show(browser: Browser, address: str) -> None:
    await browser.open("about:blank")  # else a change of the fragment loads nothing
    await browser.open(address)


async def test_events_have_names_and_the_end_stops_it_for_good(site: Behind, browser: Browser) -> None:
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}plain")
        await browser.run("open()")
        await until(lambda: site.purgatory.num_delayed == 1)
        ids = [await run.append("to be", "token"), await run.append("or\nnot")]
        await browser.until("return seen", [["token", "to be", ids[0]], ["message", "or\nnot", ids[1]]])
        await run.end("enough")
        await browser.until("return seen.at(-1).slice(0, 2)", ["end", "enough"])
        await browser.until("return source.readyState", 2)  # CLOSED, by the 204 when it came back
        await asyncio.sleep(2.0)  # twice as long as another reconnect would take
        assert site.last_ids == ["", run.last_id]
        assert await browser.run("return seen.length") == 3


async def test_page_goes_on_after_a_502_with_the_last_id(site: Behind, browser: Browser) -> None:
    async with site.log.run("1") as run:
        async with site.served():
            await show(browser, f"{site.address}plain")
            await browser.run("open()")
            await until(lambda: site.purgatory.num_delayed == 1)
            await run.append("a", "token")
            await browser.until(DATA, "a")
        await browser.until("return source.readyState", 2)  # CLOSED: EventSource gives up at nginx's 502
        await run.append("b", "token")
        async with site.served():
            await browser.run("open(seen.at(-1)[2])")
            await browser.until(DATA, "a b")


@pytest.mark.parametrize("page", ["#1", "documented"])
async def test_documented_page_is_reloaded_and_reopened(site: Behind, browser: Browser, page: str) -> None:
    async with site.log.run("1") as run:
        async with site.served():
            await show(browser, f"{site.address}{page}")
            await run.append("a", "token")
            await browser.until(TEXT, "a")
            await asyncio.to_thread(browser.driver.refresh)
            await run.append("b", "token")
            await browser.until(TEXT, "ab")
        await asyncio.sleep(2.0)  # nginx answers 502
        await run.append("c", "token")
        async with site.served():
            await browser.until(TEXT, "abc")
            await run.end()
            await browser.until("return document.querySelector('#state').textContent", "done")
            await until(lambda: site.purgatory.num_delayed == 0)


@pytest.mark.parametrize("is_over", [False, True])
async def test_page_left_and_returned_to_misses_nothing(site: Behind, browser: Browser, is_over: bool) -> None:
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}#1")
        await run.append("a", "token")
        await browser.until(TEXT, "a")
        await browser.run("window.was = true")
        await browser.open(f"{site.address}other")
        await until(lambda: site.purgatory.num_delayed == 0)
        await run.append("b", "token")
        if is_over:
            await run.end()
        await asyncio.to_thread(browser.driver.back)
        assert await browser.run("return window.was")
        await browser.until(TEXT, "ab")
        if not is_over:
            await run.append("c", "token")
            await browser.until(TEXT, "abc")


@pytest.mark.parametrize("begin", ["open()", "follow()"])
async def test_page_kept_for_the_back_button_misses_nothing(site: Behind, browser: Browser, begin: str) -> None:
    async with site.served(), site.log.run("1") as run:
        await show(browser, f"{site.address}plain")
        await browser.run(begin)
        await run.append("a", "token")
        await browser.until(DATA, "a")
        await browser.open(f"{site.address}other")
        await run.append("b", "token")
        await asyncio.sleep(0.5)
        assert site.purgatory.num_delayed == 1  # it also keeps its place
        await asyncio.to_thread(browser.driver.back)
        await browser.until(DATA, "a b")
        assert len(site.last_ids) == 1


# streams of states


STATES = """<!DOCTYPE html><link rel="icon" href="data:,"><script>
const seen = [], sources = {};
function open(name) {
    const source = sources[name] = new EventSource("/events/" + name);
    for (const kind of ["message", "gone", "replaced"])
        source.addEventListener(kind, event => seen.push([name, kind, event.lastEventId, event.data]));
}
</script>"""


class States:
    """A page and its streams."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.counters = Forgets()
        self.polling = LongPolling(Purgatory("events"), self.counters, policy=Policy(retry_after=(1, 1)))
        route = EventRoute(self.polling, client=lambda scope: scope["path"])
        self.site = Site(self.polling.purgatory, {"/": STATES}, Route("/events/{name}", route))

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
async def states(browser: Browser) -> States:
    return States(browser)


async def test_replaced_stream_does_not_come_back(states: States) -> None:
    async with states.site.served():
        await states.open("n")
        await states.sees(["n", "message", "0", "n None 0"])
        await states.browser.run("older = sources.n; open('n')")
        await states.browser.until("return seen.map(event => event[1]).sort()", ["message", "message", "replaced"])
        await asyncio.sleep(2.0)  # twice as long as another would take
        # CONNECTING: it waits for its day to pass
        assert await states.browser.run("return [older.readyState, sources.n.readyState]") == [0, 1]
        assert len(states.site.requests) == 2


async def test_version_that_is_gone_is_told_and_forgotten(states: States) -> None:
    async with states.site.served():
        states.publish(7)
        await states.open("n")
        await states.sees(["n", "message", "7", "n None 7"])
    states.counters.gone.add("7")
    states.publish(8)
    async with states.site.served():
        await states.sees(["n", "gone", "", "7 is gone"], ["n", "message", "8", "n None 8"])
        states.publish(9)
        await states.sees(["n", "message", "9", "n 8 9"])
        assert states.site.last_ids == ["", "7"]


async def test_resource_that_is_gone_is_not_asked_for_again(states: States) -> None:
    async with states.site.served():
        await states.open("n")
        await states.sees(["n", "message", "0", "n None 0"])
        states.publish(-1)
        await states.sees(["n", "gone", "", "n was compacted"])
        await states.browser.until("return sources.n.readyState", 2)  # CLOSED, by the 410 when it came back
        assert states.site.last_ids == ["", ""]
