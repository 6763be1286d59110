"""poll.js and events.js in a real browser, with real routes, whose answers can be replaced by a front end's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from aiopurgatory.streams import MemoryLog, Run
from aiopurgatory.web import EventRoute, LogPolling, LongPolling, LongPollRoute, Policy

from .browser import Browser, Site
from .polls import Given, until

pytestmark = pytest.mark.slow

PAGE = """<!DOCTYPE html><link rel="icon" href="data:,"><script type="module">
import { poll } from "/js/poll.js";
import { events } from "/js/events.js";
import { shared } from "/js/tabs.js";
window.run = (client, url, options = {}) => {
    const seen = { got: [], heard: [], gone: 0, replaced: 0, end: null, leaving: new AbortController() };
    const told = {
        signal: seen.leaving.signal,
        heard: (status) => seen.heard.push(status),
        gone: () => seen.gone++,
    };
    if (options.replaced) told.replaced = () => { seen.replaced++; return new Promise((on) => { seen.goOn = on; }); };
    (async () => {
        for await (const each of ({ poll, events, shared })[client](url, { ...options, ...told })) seen.got.push(each);
    })().then(() => { seen.end = "ended"; }, (error) => { seen.end = `${error.message} (${error.status})`; });
    return seen;
};
</script>"""


async def text(request: Request) -> Response:
    return HTMLResponse("Please log in", headers={"ETag": '"1"'})


async def silent(request: Request) -> Response:
    """A stream whose server has gone without a goodbye."""

    async def body() -> AsyncIterator[bytes]:
        yield b"id: 1\ndata: one\n\n"
        await asyncio.sleep(20.0)

    return StreamingResponse(body(), media_type="text/event-stream")


class Logs(Site):
    """The routes of a log and of jobs, and the page."""

    def __init__(self, log: MemoryLog) -> None:
        policy = Policy(retry_after=(1, 1), heartbeat=0.2)
        client = lambda scope: scope.query.get("client")  # noqa: E731
        since = lambda scope: "running" if "wait" in scope.query else None  # noqa: E731
        self.log, self.jobs = log, Given("running", b'{"result": null}')
        self.polling = LongPolling[str](log.purgatory, self.jobs, policy=policy)
        super().__init__(
            log.purgatory,
            {"/page": PAGE},
            Route("/events/{topic}", EventRoute(LogPolling(log, policy), client=client)),
            Route("/polls/{topic}", LongPollRoute(LogPolling(log, policy), client=client)),
            Route("/jobs/{job}", LongPollRoute(self.polling, since=since)),
            Route("/silent", silent),
            Route("/text", text),
        )

    def end_job(self) -> None:
        self.jobs.given, self.jobs.body = "done", b'{"result": "42"}'
        self.polling.notify("7")


@pytest.fixture
async def site() -> AsyncIterator[Logs]:
    async with MemoryLog(unknown_timeout=0.2, keep_events=16) as log:
        yield Logs(log)


@pytest.fixture
async def run(site: Logs) -> AsyncIterator[Run]:
    """Of the topic "n", on the site that is served."""
    async with site.served(), site.log.run("n") as run:
        yield run


class Use:
    """A client that runs in the page."""

    def __init__(self, browser: Browser, site: Logs) -> None:
        self.browser, self.site = browser, site

    async def start(self, client: str, url: str, options: str = "{}") -> None:
        await self.browser.open(f"{self.site.address}/page")
        await self.browser.until("return typeof window.run", "function")
        await self.browser.run(f"window.seen = run({client!r}, {url!r}, {options})")

    async def sees(self, field: str, expected: Any) -> None:
        await self.browser.until(f"return seen.{field}", expected)

    async def texts(self, *expected: str) -> None:
        await self.sees("got.flat().map(event => event.data)", list(expected))


@pytest.fixture
def use(browser: Browser, site: Logs) -> Use:
    return Use(browser, site)


CLIENTS = pytest.mark.parametrize("client", ["poll", "events"])
ALL = pytest.mark.parametrize("client", ["poll", "events", "shared"])


def url_of(client: str) -> str:
    return "/polls/n" if client == "poll" else "/events/n"


@ALL
async def test_client_gets_all_events_and_ends_with_the_topic(use: Use, run: Run, client: str) -> None:
    await run.append("one", "token")
    await use.start(client, url_of(client))
    await use.texts("one")
    await run.append("two\nlines", "token")
    await use.texts("one", "two\nlines")
    await run.end("enough")
    await use.texts("one", "two\nlines", "enough")
    await use.sees("end", "ended")
    names = await use.browser.run("return seen.got.flat().map(event => event.name)")
    assert names == ["token", "token", "end"]


@ALL
@pytest.mark.parametrize("status", [401, 403, 404, 410, 405, 204])
async def test_client_stops_where_trying_again_is_of_no_use(use: Use, site: Logs, client: str, status: int) -> None:
    async with site.served():
        site.refusal = status, {}
        await use.start(client, url_of(client))
        await use.sees("end", "ended" if status == 204 else f"{url_of(client)} answered {status} ({status})")
        assert len(site.requests) == 1


@ALL
@pytest.mark.parametrize("status", [503, 429])
async def test_client_goes_on_after_a_refusal_from_its_last_id(
    use: Use, site: Logs, run: Run, client: str, status: int
) -> None:
    last = await run.append("one")
    await use.start(client, url_of(client))
    await use.texts("one")
    await until(lambda: site.purgatory.num_delayed == 1)
    before = len(site.requests)
    site.refusal = status, {}
    site.purgatory.expire_all()
    site.purgatory.close()
    await until(lambda: len(site.requests) > before)
    await run.append("two")
    await site.purgatory.start()
    site.refusal = 0, {}
    await use.texts("one", "two")
    assert {has for _, _, has in site.requests[before : before + 2]} == {last}


@CLIENTS
async def test_refused_clients_come_back_spread_out_and_later_each_time(use: Use, site: Logs, client: str) -> None:
    async with site.served():
        site.refusal = 502, {}
        await use.start(client, "/text")
        await use.browser.run(
            "seen.leaving.abort(); const plain = setTimeout; window.pauses = [];"
            "window.setTimeout = (done, ms) => { if (ms > 99 && ms < 20000) pauses.push(ms); return plain(done, ms); };"
            f"window.all = Array.from({{ length: 10 }}, () => run({client!r}, {url_of(client)!r}))"
        )
        await use.browser.until("return Math.min(...all.map(each => each.heard.length)) > 2", True)
        assert site.requests[-1][0] - site.requests[1][0] > 1.5
        first, *_, tenth, again = sorted(await use.browser.run("return pauses"))[:11]
        assert 300 < first < tenth - 50
        assert again >= 1000


@CLIENTS
async def test_client_waits_for_as_long_as_it_is_told(use: Use, site: Logs, client: str) -> None:
    async with site.served():
        site.refusal = 503, {"Retry-After": "2"}
        await use.start(client, url_of(client))
        await until(lambda: len(site.requests) == 2)
        (first, _, _), (second, _, _) = site.requests
        assert 2.0 <= second - first < 10.0


@CLIENTS
async def test_client_tells_what_it_hears(use: Use, site: Logs, client: str) -> None:
    async with site.served():
        site.refusal = 502, {}
        await use.start(client, url_of(client))
        await use.sees("heard[0]", 502)
    await use.sees("heard.at(-1)", 0)


@CLIENTS
async def test_replaced_client_goes_on_when_it_is_told(use: Use, site: Logs, run: Run, client: str) -> None:
    await run.append("one")
    await use.start(client, f"{url_of(client)}?client=ann", "{replaced: true}")
    await use.texts("one")
    await until(lambda: site.purgatory.num_delayed == 1)
    await use.browser.run(f"window.second = run({client!r}, '{url_of(client)}?client=ann')")
    await use.sees("replaced", 1)
    await use.browser.run("second.leaving.abort()")
    await run.append("two")
    await use.browser.run("seen.goOn()")
    await use.texts("one", "two")
    await use.sees("replaced", 1)


@CLIENTS
async def test_aborted_client_ends_and_leaves_its_place(use: Use, site: Logs, run: Run, client: str) -> None:
    await run.append("one")
    await use.start(client, url_of(client))
    await use.texts("one")
    await until(lambda: site.purgatory.num_delayed == 1)
    await use.browser.run("seen.leaving.abort()")
    await use.sees("end", "ended")
    await until(lambda: site.purgatory.num_delayed == 0)


@ALL
async def test_client_whose_caller_leaves_the_loop_leaves_its_place(
    use: Use, site: Logs, run: Run, client: str
) -> None:
    await run.append("one")
    await use.start(client, "/text")
    await use.browser.run(
        f"(async () => {{ const clients = await import('/js/{'tabs' if client == 'shared' else client}.js');"
        f"for await (const each of clients.{client}({url_of(client)!r})) break; window.left = true; }})()"
    )
    await use.browser.until("return window.left", True)
    await until(lambda: site.purgatory.num_delayed == 0)


@ALL
async def test_client_adds_nothing_to_its_signal_for_each_event(use: Use, run: Run, client: str) -> None:
    await run.append("0")
    await use.start(client, url_of(client))
    await use.texts("0")
    await use.browser.run(
        "const signal = seen.leaving.signal, add = signal.addEventListener; window.added = 0;"
        "signal.addEventListener = (...args) => { window.added++; add.apply(signal, args); }"
    )
    for number in range(1, 5):
        await run.append(str(number))
        await use.texts(*map(str, range(number + 1)))
    await use.browser.until("return window.added", 0)


@CLIENTS
async def test_page_of_a_login_is_no_answer(use: Use, site: Logs, client: str) -> None:
    async with site.served():
        await use.start(client, "/text")
        await use.browser.until("return seen.end !== null", True)
        assert len(site.requests) == 1


async def test_stream_that_is_silent_is_broken_and_resumed(use: Use, site: Logs) -> None:
    async with site.served():
        await use.start("events", "/silent", "{silence: 0.5}")
        await until(lambda: "1" in site.last_ids)
        await use.browser.run("seen.leaving.abort()")


async def test_heartbeats_keep_a_stream(use: Use, run: Run) -> None:
    await run.append("one")
    await use.start("events", "/events/n", "{silence: 3}")
    await use.texts("one")
    await asyncio.sleep(4.0)
    assert await use.browser.run("return seen.heard") == [200]


async def test_stream_has_an_event_for_events_that_are_gone(use: Use, run: Run) -> None:
    await run.append("one")
    await use.start("events", "/events/n", "{after: 'lost-7'}")
    await use.sees("got.map(event => event.name)", ["gone", "message"])


async def test_poll_goes_on_with_what_is_kept_and_tells_of_the_gap(use: Use, run: Run) -> None:
    for number in range(40):
        await run.append(str(number))
    await use.start("poll", "/polls/n", "{wait: 1}")
    await use.sees("gone", 1)
    await use.sees("got.flat().at(-1)?.data", "39")
    kept = await use.browser.run("return seen.got.flat().map(event => event.data)")
    assert kept == [str(number) for number in range(40 - len(kept), 40)]


async def test_job_is_polled_until_it_is_done(use: Use, site: Logs) -> None:
    async with site.served():
        await use.start("poll", "/jobs/7?wait=0.3")
        await until(lambda: len(site.requests) >= 3)
        site.end_job()
        await use.sees("got", [{"result": "42"}])
        count = len(site.requests)
        await asyncio.sleep(1.5)  # it is told the same again, as the route's since= heeds no ETag
        assert len(site.requests) - count <= 3
        await use.sees("got.length", 1)


async def test_job_is_polled_by_its_etag(use: Use, site: Logs) -> None:
    async with site.served():
        await use.start("poll", "/jobs/7", "{wait: 1}")
        await until(lambda: len(site.requests) >= 3)
        site.end_job()
        await use.sees("got", [{"result": None}, {"result": "42"}])


async def test_poll_of_an_address_with_an_id_goes_on_after_it(use: Use, site: Logs, run: Run) -> None:
    first = await run.append("one")
    await run.append("two")
    await use.start("poll", f"/polls/n?after={first}")
    await use.texts("two")
    await run.append("three")
    await use.texts("two", "three")
    assert len(site.requests) <= 3


async def test_empty_room_is_polled_until_somebody_writes(browser: Browser) -> None:
    async with MemoryLog(unknown_timeout=None) as log:
        site = Logs(log)
        use = Use(browser, site)
        async with site.served():
            await use.start("poll", "/polls/n", "{wait: 1}")
            await until(lambda: len(site.requests) == 2)
            await log.append("n", "hello")
            await use.texts("hello")
            assert await use.browser.run("return seen.got.length") == 1


# the network


@ALL
@pytest.mark.parametrize("was_parked", [True, False])
async def test_client_that_is_online_again_comes_back_at_once(
    use: Use, site: Logs, run: Run, client: str, was_parked: bool
) -> None:
    """Its connection may be dead without a word, or it waits for half a minute."""
    await run.append("one")
    site.refusal = (0, {}) if was_parked else (503, {"Retry-After": "30"})
    await use.start(client, url_of(client))
    await until(lambda: len(site.requests) == (2 if client == "poll" and was_parked else 1))
    await asyncio.sleep(0.2)
    site.refusal, count = (0, {}), len(site.requests)
    online = asyncio.get_running_loop().time()
    await use.browser.run("dispatchEvent(new Event('online'))")
    await until(lambda: len(site.requests) > count)
    assert 0.05 <= asyncio.get_running_loop().time() - online < 10.0
    await run.append("two")
    await use.texts("one", "two")


# tabs


class Tabs:
    """Tabs of one browser, each with a shared stream of the topic "n"."""

    def __init__(self, use: Use) -> None:
        self._use = use
        self.driver = use.browser.driver
        self.first = self.driver.current_window_handle

    async def open(self, options: str = "{}") -> str:
        await asyncio.to_thread(self.driver.switch_to.new_window, "tab")
        await self._use.start("shared", "/events/n", options)
        return self.driver.current_window_handle

    async def show(self, tab: str) -> None:
        await asyncio.to_thread(self.driver.switch_to.window, tab)

    async def close(self, tab: str) -> None:
        await self.show(tab)
        await asyncio.to_thread(self.driver.close)
        await self.show(self.first)


@pytest.fixture
async def tabs(use: Use) -> AsyncIterator[Tabs]:
    tabs = Tabs(use)
    yield tabs
    for handle in tabs.driver.window_handles:
        if handle != tabs.first:
            await tabs.close(handle)


async def test_eight_tabs_have_one_stream_and_all_events(use: Use, site: Logs, run: Run, tabs: Tabs) -> None:
    await run.append("one")
    opened = [await tabs.open() for _ in range(4)]
    await use.texts("one")
    await run.append("two")
    opened += [await tabs.open() for _ in range(4)]
    await run.append("three")
    for tab in opened:
        await tabs.show(tab)
        await use.texts("one", "two", "three")
    assert len(site.requests) == 1
    await tabs.close(opened[0])
    await run.append("four")
    for tab in opened[1:]:
        await tabs.show(tab)
        await use.texts("one", "two", "three", "four")
    await run.end("done")
    for tab in opened[1:]:
        await tabs.show(tab)
        await use.texts("one", "two", "three", "four", "done")
        await use.sees("end", "ended")
    # The next tab's; and on a slow machine the request of a tab that has older events.
    assert len(site.requests) in (2, 3)


async def test_tab_that_needs_older_events_has_a_stream_of_its_own(use: Use, site: Logs, run: Run, tabs: Tabs) -> None:
    first = await tabs.open("{keep: 2}")
    for number in range(4):
        await run.append(str(number))
    await use.texts("0", "1", "2", "3")
    await tabs.open("{keep: 2}")
    await use.texts("0", "1", "2", "3")
    assert len(site.requests) == 2
    await tabs.close(first)
    await tabs.open("{keep: 9}")
    await run.append("4")
    await use.texts("0", "1", "2", "3", "4")


async def test_refusal_of_the_stream_ends_all_tabs(use: Use, site: Logs, run: Run, tabs: Tabs) -> None:
    await run.append("one")
    opened = [await tabs.open() for _ in range(3)]
    await use.texts("one")
    site.refusal = 401, {}
    site.purgatory.expire_all()
    site.purgatory.close()
    for tab in opened:
        await tabs.show(tab)
        await use.sees("end", "/events/n answered 401 (401)")
