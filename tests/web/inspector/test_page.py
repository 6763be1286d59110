"""The live page in a real browser, without a screen."""

from __future__ import annotations

import asyncio
import json
import time
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
from aiopurgatory.web.inspector import Inspector, view

from ..polls import Counters, Polls, settle
from .helpers import Wait, serve

pytestmark = pytest.mark.slow


class Page:
    """The tests' questions to the browser. Blocking: to be called in a thread."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, port: int) -> None:
        self.port = port
        self.problems()
        self.driver.get(f"http://127.0.0.1:{port}/purgatory/")

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def text(self, selector: str) -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).text

    def until(self, selector: str, holds: Callable[[str], bool]) -> str:
        """Wait until the text of *selector* is as it should be."""
        end = time.monotonic() + 15
        while True:
            found = self.run(f"return document.querySelector({json.dumps(selector)})?.textContent ?? ''")
            if holds(found):
                return str(found)
            assert time.monotonic() < end, f"{selector} shows {found!r}"
            time.sleep(0.02)

    def search(self, text: str) -> None:
        field = self.driver.find_element(By.ID, "key")
        field.clear()
        field.send_keys(text, "\n")

    def choose(self, number: int) -> None:
        """Show the purgatory of this number."""
        field = "const field = document.getElementById('which')"
        self.run(f"{field}; field.value = {number}; field.dispatchEvent(new Event('change'))")

    def emulate(self, command: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", arguments)

    def problems(self) -> list[Any]:
        """Complaints of the console and the policy since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requested(self) -> list[str]:
        """The addresses asked for since the last call, but not those of the page that the browser starts with."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent if not params["documentURL"].startswith("chrome:")]


@pytest.fixture
def page(driver: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(view, "REFRESH", 0.05)
    page = Page(driver)
    page.requested()
    yield page
    driver.get("about:blank")


@asynccontextmanager
async def shown(page: Page, *, show_keys: bool = True) -> AsyncIterator[Purgatory]:
    """A purgatory with an open page that has been drawn; it must not complain of anything, or ask anybody else."""
    purgatory = Purgatory("shown")
    polling = LongPolling(purgatory, Counters())
    async with purgatory, serve(Inspector([polling], show_keys=show_keys)) as port:
        await asyncio.to_thread(page.open, port)
        await asyncio.to_thread(page.until, "#live", lambda text: text == "live")
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "0")
        yield purgatory
        assert await asyncio.to_thread(page.problems) == []
        requested = await asyncio.to_thread(page.requested)
        assert {url.partition("?")[0] for url in requested} - {"data:,"} <= {
            f"http://127.0.0.1:{port}/purgatory/{path}" for path in ("", "state", "search")
        }
        assert f"http://127.0.0.1:{port}/purgatory/" in requested
        await asyncio.to_thread(page.driver.get, "about:blank")


async def test_page_follows_what_parks_and_ends(page: Page) -> None:
    async with shown(page) as purgatory:
        ops = [purgatory.watch(Wait(100.0), [("orders", 7)]) for _ in range(12)]
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "12")
        assert await asyncio.to_thread(page.text, "#most tbody") == "('orders', 7) 12"
        assert "Wait" in await asyncio.to_thread(page.text, "#oldest tbody")
        for op in ops[:5]:
            op.force_complete()
        for op in ops[5:7]:
            op.cancel()
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "5")
        figures = [await asyncio.to_thread(page.text, f"#figure-{name}") for name in ("completed", "cancelled")]
        assert figures == ["5", "2"]


async def test_page_draws_a_ring_for_each_wheel_and_moves_its_hand(page: Page) -> None:
    async with shown(page) as purgatory:
        purgatory.watch(Wait(100.0), ["key"])
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "1")
        counts = "return ['track', 'fill', 'hand'].map(name => document.querySelectorAll('#rings .' + name).length)"
        assert await asyncio.to_thread(page.run, counts) == [4, 1, 2]  # those of 20 and of 400 ms have no hand
        hand = "return document.querySelector('#rings .hand').getAttribute('transform')"
        before = await asyncio.to_thread(page.run, hand)
        await asyncio.sleep(0.3)
        assert await asyncio.to_thread(page.run, hand) != before
        levels = await asyncio.to_thread(page.text, "#levels tbody")
        assert levels.splitlines()[3] == "3 8 s 2.67 min 1 / 20 1"


async def test_page_shows_how_polls_were_answered(page: Page) -> None:
    async with Purgatory("polls") as purgatory:
        polls = Polls(purgatory, Counters(), max_per_group=1)
        async with serve(Inspector([purgatory, polls.polling])) as port:
            await asyncio.to_thread(page.open, port)
            await asyncio.to_thread(page.until, "#live", lambda text: text == "live")
            hidden = "return [...document.querySelectorAll('.polling')].map(panel => getComputedStyle(panel).display)"
            assert await asyncio.to_thread(page.run, hidden) == ["none", "none"]
            await asyncio.to_thread(page.choose, 1)
            await asyncio.to_thread(page.until, "#answers tbody", lambda text: text == "no poll has been answered yet")
            parked = [polls.start(client="ann", group="tenant"), polls.start(client="bob"), polls.start(client="bob")]
            await settle()
            await polls.now(group="tenant")
            await polls.now(known=None)
            await asyncio.to_thread(page.until, "#answers tbody", lambda text: "refused" in text)
            await asyncio.to_thread(page.until, "#oldest tbody", lambda text: text.count("LongPoll") == 2)
            assert (await asyncio.to_thread(page.text, "#answers tbody")).splitlines() == [
                "200 something new 1",
                "409 replaced by a newer poll of the client 1",
                "503 refused 1",
            ]
            assert (await asyncio.to_thread(page.text, "#parked tbody")).splitlines() == [
                "refused: the group is full 1",
                "polls and streams of named clients 2",
                "groups with polls or streams 1",
                "open event streams 0",
                "bodies cached for other polls 1 (509 bytes)",
            ]
            assert await asyncio.to_thread(page.run, hidden) == ["block", "block"]
            assert await asyncio.to_thread(page.problems) == []
            await asyncio.to_thread(page.driver.get, "about:blank")
            polls.publish()
            assert sorted([(await poll).status for poll in parked]) == [200, 200, 409]


async def test_page_shows_buses_and_what_is_wrong_with_them(page: Page) -> None:
    server = MemoryServer()
    async with (
        Purgatory("shown") as purgatory,
        MemoryBus(server, [purgatory]) as bus,
        serve(Inspector([purgatory], buses=[bus])) as port,
    ):
        await asyncio.to_thread(page.open, port)
        text = await asyncio.to_thread(page.until, "#buses tbody", lambda text: "connected" in text)
        assert text.startswith("aiopurgatory")
        server.is_down = True
        bus.publish("key")
        await asyncio.to_thread(page.until, "#buses tbody", lambda text: "the MemoryServer is down" in text)
        outbox = "return [...document.querySelectorAll('#buses td')].map(cell => cell.textContent).slice(2)"
        last_echo, keys, oldest, *others = await asyncio.to_thread(page.run, outbox)
        assert (last_echo, keys, bool(oldest), others) == ("", "1", True, ["1", "1", "0", "0"])
        server.is_down = False
        await asyncio.to_thread(page.until, "#buses tbody", lambda text: "connected" in text and "down" not in text)
        assert await asyncio.to_thread(page.problems) == []
        await asyncio.to_thread(page.driver.get, "about:blank")


async def test_page_shows_an_event_log(page: Page) -> None:
    async with MemoryLog(name="runs") as log, serve(Inspector([log])) as port:
        await log.append("chat", "hello")
        listener = log.follow("chat")
        await anext(listener)
        await asyncio.to_thread(page.open, port)
        await asyncio.to_thread(page.until, "#logs tbody", lambda text: "no outage" in text)
        cells = "return [...document.querySelectorAll('#logs td')].map(cell => cell.textContent)"
        size = log.statistics().window_bytes
        assert await asyncio.to_thread(page.run, cells) == ["no outage", "1", "1", f"{size} bytes", "1", "1", "0"]
        assert await asyncio.to_thread(page.problems) == []
        await asyncio.to_thread(page.driver.get, "about:blank")
        await listener.aclose()


async def test_page_finds_a_key(page: Page) -> None:
    async with shown(page) as purgatory:
        for number in range(3):
            purgatory.watch(Wait(None), [("orders", number)])
        await asyncio.to_thread(page.search, "('orders',1)")
        await asyncio.to_thread(page.until, "#hits", lambda text: text.startswith("('orders', 1) 1 waiting"))
        await asyncio.to_thread(page.search, "payments")
        await asyncio.to_thread(page.until, "#hits", lambda text: text == "Nothing waits under this key.")
        await asyncio.to_thread(page.until, "#most", lambda text: "('orders', 2)" in text)
        await asyncio.to_thread(page.run, "document.querySelector('#most button').click()")
        await asyncio.to_thread(page.until, "#hits", lambda text: text.startswith("('orders', 0) 1 waiting"))


async def test_page_shows_numbers_for_keys_unless_allowed(page: Page) -> None:
    async with shown(page, show_keys=False) as purgatory:
        purgatory.watch(Wait(None), ["jane@example.org"])
        await asyncio.to_thread(page.until, "#most tbody", lambda text: text.endswith("1"))
        number = await asyncio.to_thread(page.text, "#most button")
        assert "jane" not in await asyncio.to_thread(page.run, "return document.documentElement.outerHTML")
        await asyncio.to_thread(page.search, "jane@example.org")
        await asyncio.to_thread(page.until, "#hits", lambda text: text.startswith(f"{number} 1 waiting"))


HOSTILE = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"


async def test_hostile_names_are_shown_as_text(page: Page) -> None:
    kind = type(HOSTILE, (Wait,), {})
    async with shown(page) as purgatory:
        purgatory.watch(kind(None), [HOSTILE])
        await asyncio.to_thread(page.until, "#most tbody", lambda text: HOSTILE in text)
        await asyncio.to_thread(page.until, "#oldest tbody", lambda text: text.count(HOSTILE) == 2)
        await asyncio.to_thread(page.search, HOSTILE)
        await asyncio.to_thread(page.until, "#hits", lambda text: text.count(HOSTILE) == 3)
        found = await asyncio.to_thread(
            page.run, "return [document.images.length, document.scripts.length, window.pwned ?? null]"
        )
        assert found == [0, 1, None]


async def test_hostile_name_of_a_purgatory_is_shown_as_text(page: Page) -> None:
    async with Purgatory(HOSTILE) as one, Purgatory("two") as two, serve(Inspector([one, two])) as port:
        two.watch(Wait(None), ["key"])
        await asyncio.to_thread(page.open, port)
        await asyncio.to_thread(page.until, "#which", lambda text: text == f"{HOSTILE}two")
        assert await asyncio.to_thread(page.run, "return document.images.length") == 0
        await asyncio.to_thread(page.choose, 1)
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "1")
        assert await asyncio.to_thread(page.run, "return document.title") == "Purgatory two"
        await asyncio.to_thread(page.driver.get, "about:blank")


async def test_policy_stops_markup_and_other_origins(page: Page) -> None:
    async with Purgatory() as purgatory, serve(Inspector([purgatory])) as port, serve(Inspector([purgatory])) as other:
        await asyncio.to_thread(page.open, port)
        await asyncio.to_thread(page.until, "#live", lambda text: text == "live")
        scripts = [
            "document.body.innerHTML = '<b>x</b>'",
            "const s = document.createElement('script'); s.append('window.pwned = 1'); document.body.append(s)",
            f"return fetch('http://127.0.0.1:{other}/purgatory/state', {{mode: 'no-cors'}})",
        ]
        for script in scripts:
            attempt = (
                f"return (async () => {{ {script} }})().then(() => window.pwned ?? 'nothing', error => error.name)"
            )
            assert await asyncio.to_thread(page.run, attempt) in ("TypeError", "nothing")
            assert await asyncio.to_thread(page.problems) != []
        await asyncio.to_thread(page.driver.get, "about:blank")


async def test_page_follows_a_purgatory_that_is_started_again(page: Page) -> None:
    async with shown(page) as purgatory:
        purgatory.close()
        await asyncio.to_thread(page.until, "#live", lambda text: text == "closed")
        await purgatory.start()
        purgatory.watch(Wait(None), ["key"])
        await asyncio.to_thread(page.until, "#state", lambda text: text == "open")
        await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "1")
        await asyncio.to_thread(page.until, "#live", lambda text: text == "live")


async def test_page_says_when_the_server_is_gone(page: Page) -> None:
    async with Purgatory() as purgatory:
        async with serve(Inspector([purgatory])) as port:
            await asyncio.to_thread(page.open, port)
            await asyncio.to_thread(page.until, "#live", lambda text: text == "live")
        await asyncio.to_thread(page.until, "#live", lambda text: text.startswith("no answer, retrying"))
        await asyncio.to_thread(page.driver.get, "about:blank")


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
async def test_page_fits_any_width_in_both_colours(page: Page, width: int) -> None:
    page.emulate("setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 700)
    try:
        async with shown(page) as purgatory:
            for number in range(20):
                purgatory.watch(Wait(10.0**number), [("a long key " * 20, number), number])
            await asyncio.to_thread(page.until, "#figure-pending", lambda text: text == "20")
            colours = set()
            for scheme in ("light", "dark"):
                page.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                colours.add(await asyncio.to_thread(page.run, "return getComputedStyle(document.body).backgroundColor"))
                assert await asyncio.to_thread(page.run, "return document.documentElement.scrollWidth") <= width
            assert len(colours) == 2
    finally:
        page.emulate("clearDeviceMetricsOverride")
        page.emulate("setEmulatedMedia", features=[])


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
async def test_page_shows_buses_and_logs_at_any_width(page: Page, width: int) -> None:
    page.emulate("setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 700)
    server = MemoryServer()
    try:
        async with (
            MemoryLog(name="runs") as log,
            MemoryBus(server, [log.purgatory], name="invoices_of_all_shops") as bus,
            serve(Inspector([log], buses=[bus])) as port,
        ):
            server.is_down = True
            bus.publish("key")
            await asyncio.to_thread(page.open, port)
            await asyncio.to_thread(page.until, "#buses tbody", lambda text: "the MemoryServer is down" in text)
            assert await asyncio.to_thread(page.run, "return document.documentElement.scrollWidth") <= width
            # The lines of the reason: it does not stand in a column of a few letters.
            reason = "return document.querySelector('#buses td:nth-child(2)').getBoundingClientRect().height"
            assert await asyncio.to_thread(page.run, reason) < 80
            await asyncio.to_thread(page.driver.get, "about:blank")
    finally:
        page.emulate("clearDeviceMetricsOverride")
