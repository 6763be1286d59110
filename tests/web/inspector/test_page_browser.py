"""The live page in a real browser, without a screen."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling
from aiopurgatory.web.inspector import Inspector, snapshot

from ..browser import Browser
from ..polls import Counters, Polls
from .helpers import Wait, serve, state

pytestmark = pytest.mark.slow
CELLS = "return [...document.querySelectorAll('#{} td')].map(cell => cell.textContent)"
SCROLL_WIDTH = "return document.documentElement.scrollWidth"


class Page(Browser):
    """The tests' questions to the page."""

    async def text(self, selector: str) -> str:
        return await asyncio.to_thread(lambda: self.driver.find_element(By.CSS_SELECTOR, selector).text)

    async def shows(self, selector: str, text: str | Callable[[str], bool]) -> None:
        """Wait until *selector* has this text, or one that this holds for."""
        await self.until(f"return document.querySelector({json.dumps(selector)})?.textContent ?? ''", text)

    async def search(self, text: str) -> None:
        field = self.driver.find_element(By.ID, "key")
        field.clear()
        await asyncio.to_thread(field.send_keys, text, "\n")

    async def choose(self, number: int) -> None:
        """Show the purgatory of this number."""
        field = "const field = document.getElementById('which')"
        await self.run(f"{field}; field.value = {number}; field.dispatchEvent(new Event('change'))")

    def emulate(self, command: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", arguments)

    async def problems(self) -> list[Any]:
        """Complaints of the console and the policy since the last call."""
        entries = await asyncio.to_thread(self.driver.get_log, "browser")
        return [entry["message"] for entry in entries]

    async def requested(self) -> set[str]:
        """The addresses asked for since the last call, but not of the page that the browser starts with."""
        entries = await asyncio.to_thread(self.driver.get_log, "performance")
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        urls = [params["request"]["url"] for params in sent if not params["documentURL"].startswith("chrome:")]
        return {url.partition("?")[0] for url in urls}


@pytest.fixture
async def page(driver: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    monkeypatch.setattr(snapshot, "REFRESH", 0.05)
    page = Page(driver)
    await page.requested()
    await page.problems()
    yield page
    await page.open("about:blank")


@asynccontextmanager
async def opened(page: Page, *objects: Any, **options: Any) -> AsyncIterator[None]:
    """The drawn page of an inspector. It must not complain of anything, or ask anybody else."""
    async with serve(Inspector(objects, **options)) as port:
        address = f"http://127.0.0.1:{port}/purgatory/"
        await page.open(address)
        await page.shows("#live", "live")
        yield
        assert await page.problems() == []
        requested = await page.requested()
        assert requested - {"data:,"} <= {address, f"{address}state", f"{address}search"}
        assert address in requested
        await page.open("about:blank")


@pytest.fixture
async def purgatory(page: Page, show_keys: bool) -> AsyncIterator[Purgatory]:
    """With its drawn page."""
    purgatory = Purgatory("shown")
    async with purgatory, opened(page, LongPolling(purgatory, Counters()), show_keys=show_keys):
        await page.shows("#figure-pending", "0")
        yield purgatory


async def test_page_follows_what_parks_and_ends(page: Page, purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Wait(100.0), [("orders", 7)]) for _ in range(12)]
    await page.shows("#figure-pending", "12")
    assert await page.text("#most tbody") == "('orders', 7) 12"
    assert "Wait" in await page.text("#oldest tbody")
    for op in ops[:5]:
        op.force_complete()
    for op in ops[5:7]:
        op.cancel()
    await page.shows("#figure-pending", "5")
    figures = [await page.text(f"#figure-{name}") for name in ("completed", "cancelled")]
    assert figures == ["5", "2"]


@pytest.mark.parametrize(("show_keys", "kind"), [(True, "('export', int)"), (False, "(str, int)")])
async def test_page_begins_with_missed_kinds_and_slowest_keys(
    page: Page, purgatory: Purgatory, show_keys: bool, kind: str
) -> None:
    ready: list[int] = []
    waiting = asyncio.create_task(purgatory.wait_for(lambda: ready, [("export", 7)], timeout=0.1))
    purgatory.watch(Wait(100.0), ["orders"])
    purgatory.watch(Wait(100.0), ["orders"])
    await asyncio.sleep(0)  # now it waits
    ready.append(1)
    await waiting
    await page.shows("#figure-missed", "1")
    assert await page.text("#missed tbody") == f"ConditionWait {kind} 1"
    key = "'orders'" if show_keys else "[0-9a-f]{12}"
    assert re.fullmatch(rf"{key} 2 .*s", await page.text("#slowest tbody"))


async def test_page_draws_a_ring_for_each_wheel_and_moves_its_hand(page: Page, purgatory: Purgatory) -> None:
    purgatory.watch(Wait(100.0), ["key"])
    await page.shows("#figure-pending", "1")
    counts = "return ['track', 'fill', 'hand'].map(name => document.querySelectorAll('#rings .' + name).length)"
    assert await page.run(counts) == [4, 1, 2]  # the wheels of 20 and of 400 ms have no hand
    hand = "return document.querySelector('#rings .hand').getAttribute('transform')"
    before = await page.run(hand)
    await page.until(hand, lambda found: found != before)
    levels = await page.text("#levels tbody")
    assert levels.splitlines()[3] == "3 8 s 2.67 min 1 / 20 1"


async def test_page_shows_how_polls_were_answered(page: Page) -> None:
    async with Purgatory("polls") as purgatory:
        polls = Polls(purgatory, Counters(), max_per_group=1)
        async with opened(page, purgatory, polls.polling):
            hidden = "return [...document.querySelectorAll('.polling')].map(panel => getComputedStyle(panel).display)"
            assert await page.run(hidden) == ["none", "none"]
            await page.choose(1)
            await page.shows("#answers tbody", "no poll has been answered yet")
            parked = [await polls.park(client="ann", group="tenant")]
            parked += [await polls.park(client="bob"), await polls.park(client="bob")]
            await polls.now(group="tenant")
            await polls.now(known=None)
            await page.shows("#answers tbody", lambda text: "refused" in text)
            await page.shows("#oldest tbody", lambda text: text.count("LongPoll") == 2)
            assert (await page.text("#answers tbody")).splitlines() == [
                "200 something new 1",
                "409 replaced by a newer poll of the client 1",
                "503 refused 1",
            ]
            assert (await page.text("#parked tbody")).splitlines() == [
                "refused: the group is full 1",
                "polls and streams of named clients 2",
                "groups with polls or streams 1",
                "open event streams 0",
                "bodies cached for other polls 1 (509 bytes)",
            ]
            assert await page.run(hidden) == ["block", "block"]
        polls.publish()
        assert sorted([(await poll).status for poll in parked]) == [200, 200, 409]


async def test_page_shows_an_event_log(page: Page) -> None:
    async with MemoryLog(name="runs") as log:
        await log.append("chat", "hello")
        listener = log.follow("chat")
        await anext(listener)
        async with opened(page, log):
            await page.shows("#logs tbody", lambda text: "no outage" in text)
            size = log.statistics().window_bytes
            assert await page.run(CELLS.format("logs")) == ["no outage", "1", "1", f"{size} bytes", "1", "1", "0"]
        await listener.aclose()


async def test_page_finds_a_key(page: Page, purgatory: Purgatory) -> None:
    for number in range(3):
        purgatory.watch(Wait(None), [("orders", number)])
    await page.search("('orders',1)")
    await page.shows("#hits", lambda text: text.startswith("('orders', 1) 1 waiting"))
    await page.search("payments")
    await page.shows("#hits", "Nothing waits under this key.")
    await page.shows("#most", lambda text: "('orders', 2)" in text)
    await page.run("document.querySelector('#most button').click()")
    await page.shows("#hits", lambda text: text.startswith("('orders', 0) 1 waiting"))


HOSTILE = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"


async def test_hostile_names_are_shown_as_text(page: Page, purgatory: Purgatory) -> None:
    kind = type(HOSTILE, (Wait,), {})
    purgatory.watch(kind(None), [HOSTILE])
    await page.shows("#most tbody", lambda text: HOSTILE in text)
    await page.shows("#oldest tbody", lambda text: text.count(HOSTILE) == 2)
    await page.search(HOSTILE)
    await page.shows("#hits", lambda text: text.count(HOSTILE) == 3)
    found = await page.run("return [document.images.length, document.scripts.length, window.pwned ?? null]")
    assert found == [0, 1, None]


async def test_hostile_name_of_a_purgatory_is_shown_as_text(page: Page) -> None:
    async with Purgatory(HOSTILE) as one, Purgatory("two") as two, opened(page, one, two):
        two.watch(Wait(None), ["key"])
        await page.shows("#which", f"{HOSTILE}two")
        assert await page.run("return document.images.length") == 0
        await page.choose(1)
        await page.shows("#figure-pending", "1")
        assert await page.run("return document.title") == "Purgatory two"


async def test_policy_stops_markup_and_other_origins(page: Page) -> None:
    async with Purgatory() as purgatory, serve(Inspector([purgatory])) as other, opened(page, purgatory):
        for script in (
            "document.body.innerHTML = '<b>x</b>'",
            "const s = document.createElement('script'); s.append('window.pwned = 1'); document.body.append(s)",
            f"return fetch('http://127.0.0.1:{other}/purgatory/state', {{mode: 'no-cors'}})",
        ):
            tried = f"return (async () => {{ {script} }})().then(() => window.pwned ?? 'nothing', error => error.name)"
            assert await page.run(tried) in ("TypeError", "nothing")
            assert await page.problems() != []


async def test_page_follows_a_purgatory_that_is_started_again(page: Page, purgatory: Purgatory) -> None:
    purgatory.close()
    await page.shows("#live", "closed")
    await purgatory.start()
    purgatory.watch(Wait(None), ["key"])
    await page.shows("#state", "open")
    await page.shows("#figure-pending", "1")
    await page.shows("#live", "live")


async def test_page_beside_another_keeps_its_history(page: Page) -> None:
    async with Purgatory() as purgatory, serve(Inspector([purgatory])) as port:
        other = asyncio.create_task(state(port, (await state(port))["cursor"]))
        await asyncio.sleep(0.3)
        await page.open(f"http://127.0.0.1:{port}/purgatory/")
        await page.shows("#live", "live")
        began = await page.run("return history[0][0]")
        purgatory.watch(Wait(None), ["key"])
        await page.shows("#figure-pending", "1")
        await other
        assert await page.run("return history[0][0]") == began
        assert await page.run("return history.every((row, at) => at === 0 || row[0] > history[at - 1][0])")
        await page.open("about:blank")


async def test_page_says_when_the_server_is_gone(page: Page) -> None:
    async with Purgatory() as purgatory:
        async with serve(Inspector([purgatory])) as port:
            await page.open(f"http://127.0.0.1:{port}/purgatory/")
            await page.shows("#live", "live")
        await page.shows("#live", lambda text: text.startswith("no answer, retrying"))


@pytest.fixture(params=[320, 375, 768, 1280])
def width(request: pytest.FixtureRequest, page: Page) -> Iterator[int]:
    width: int = request.param
    page.emulate("setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 700)
    yield width
    page.emulate("clearDeviceMetricsOverride")
    page.emulate("setEmulatedMedia", features=[])


async def test_page_fits_any_width_in_both_colours(page: Page, purgatory: Purgatory, width: int) -> None:
    for number in range(20):
        purgatory.watch(Wait(10.0**number), [("a long key " * 20, number), number])
    await page.shows("#figure-pending", "20")
    colours = set()
    for scheme in ("light", "dark"):
        page.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.add(await page.run("return getComputedStyle(document.body).backgroundColor"))
        assert await page.run(SCROLL_WIDTH) <= width
    assert len(colours) == 2


async def test_page_shows_buses_and_what_is_wrong_at_any_width(page: Page, width: int) -> None:
    server = MemoryServer()
    async with (
        MemoryLog(name="runs") as log,
        MemoryBus(server, [log.purgatory], name="invoices_of_all_shops") as bus,
        opened(page, log, buses=[bus]),
    ):
        await page.shows("#buses tbody", lambda text: "connected" in text)
        server.is_down = True
        bus.publish("key")
        await page.shows("#buses tbody", lambda text: "the MemoryServer is down" in text)
        assert await page.run(SCROLL_WIDTH) <= width
        # The lines of the reason: it does not stand in a column of a few letters.
        reason = "return document.querySelector('#buses td:nth-child(2)').getBoundingClientRect().height"
        assert await page.run(reason) < 80
        name, _, last_echo, keys, oldest, *others = await page.run(CELLS.format("buses"))
        assert (name, last_echo, keys) == ("invoices_of_all_shops", "", "1")
        assert (bool(oldest), others) == (True, ["1", "1", "0", "0"])
        server.is_down = False
        await page.shows("#buses tbody", lambda text: "connected" in text and "down" not in text)
