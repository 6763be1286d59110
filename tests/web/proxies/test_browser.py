"""Long polls from real Chromium: poll.js, and the claims of docs/proxies.md about browsers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from private_servers import free_port
from selenium import webdriver

from ..helpers import Served, read, wait_until
from .programs import LONG, Nginx, ends
from .recipes import changed, recipe

#: Where the page of another origin than the app is. The browser is told that it is at the app's address.
ELSEWHERE = "http://app.example"

START = """
    window.news = []; window.end = null; window.tries = []; window.controller = new AbortController();
    if (!window.plainFetch) window.plainFetch = window.fetch;
    window.fetch = (...request) => { window.tries.push(performance.now()); return window.plainFetch(...request); };
    const [url, wait, handled] = arguments;
    window.replaced = 0;
    const replaced = handled && (() => { window.replaced++; return new Promise(() => 0); });
    const options = { signal: controller.signal, wait, replaced };
    (async () => { for await (const news of poll(url, options)) window.news.push(news); })()
      .then(() => { window.end = "ended"; }, (error) => { window.end = String(error); });
"""


class Browser:
    """A page of the app, or one of ELSEWHERE, in which poll() runs."""

    def __init__(self, driver: webdriver.Chrome, served: Served) -> None:
        self.driver, self.served = driver, served
        self.app = "http://{}:{}".format(*served.address)
        self.open()

    def open(self, origin: str = "") -> None:
        self.driver.get(f"{origin or self.app}/page")
        self.until("typeof window.poll", "function")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, expression: str, expected: Any) -> None:
        """Wait until the JavaScript has the expected value, far less than LONG."""

        def found() -> Any:
            return self.run(f"return {expression}")

        wait_until(lambda: found() == expected, lambda: (expression, "is", found()), LONG * 3 / 4)

    def start(self, url: str, wait: float = LONG, replaced: bool = False) -> None:
        self.run(START, url, wait, replaced)

    def etag(self, topic: str) -> str:
        return self.served.ask(f"GET /polls/{topic}", {"Prefer": "wait=0"}).headers["etag"]

    def fetch(self, url: str, number: int = 1, **options: Any) -> None:
        """Send so many polls by fetch(), with a number in the place of N."""
        script = (
            "for (let i = 0; i < arguments[1]; i++) fetch(arguments[0].replace('N', i), arguments[2]).catch(() => 0)"
        )
        self.run(script, url, number, options)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served("uvicorn-asyncio-httptools", "proxies.app:cross_origin") as served:
        yield served


@pytest.fixture(scope="module")
def browser_flags(served: Served) -> list[str]:
    host = ELSEWHERE.removeprefix("http://")
    mapping = f"--host-resolver-rules=MAP {host}:80 {served.address[0]}:{served.address[1]}"
    return ["--ignore-certificate-errors", mapping]


@pytest.fixture
def browser(driver: webdriver.Chrome, served: Served) -> Iterator[Browser]:
    yield Browser(driver, served)
    driver.execute_script("window.stop()")  # else nothing could be loaded if the polls have all connections
    driver.refresh()  # ends requests that the script has begun since
    served.wait_for(pending=0)


@pytest.fixture
def elsewhere(browser: Browser) -> Browser:
    browser.open(ELSEWHERE)
    return browser


def test_client_resumes_by_etag_and_starts_over_when_it_is_gone(elsewhere: Browser, topic: str) -> None:
    elsewhere.start(f"{elsewhere.app}/polls/{topic}")
    for path, since, version in [("", None, "0"), ("?gone", "0", "1"), ("", None, "2")]:
        elsewhere.until("window.news.at(-1)?.slice(0, 3)", [topic, since, version])
        elsewhere.served.wait_for(pending=1)
        elsewhere.served.ask(f"POST /polls/{topic}{path}")


def test_stream_is_resumed_by_its_last_id(elsewhere: Browser, topic: str) -> None:
    elsewhere.served.ask(f"POST /polls/{topic}")
    elsewhere.run(
        "window.news = []; const [url] = arguments; window.controller = new AbortController();"
        "(async () => { for await (const { id, data } of events(url, { after: '0', signal: controller.signal }))"
        " news.push([id, JSON.parse(data)[1]]); })()",
        f"{elsewhere.app}/events/{topic}",
    )
    elsewhere.until("window.news", [["1", "0"]])
    elsewhere.run("controller.abort()")


@pytest.mark.slow
def test_client_that_is_refused_waits_for_as_long_as_it_is_told(elsewhere: Browser, topic: str) -> None:
    poll = f"/polls/{topic}?group={topic}"
    holder = elsewhere.served.send(f"GET {poll}", {"If-None-Match": '"0"'})
    elsewhere.served.wait_for(pending=1)
    elsewhere.start(elsewhere.app + poll)
    elsewhere.until("window.tries.length > 1", True)  # the second one is refused
    holder.close()
    elsewhere.until("window.tries.length > 2", True)
    _, second, third, *_ = elsewhere.run("return window.tries")
    assert third - second > 1900  # ms; its own pause would be 1 s at most
    elsewhere.served.ask(f"POST /polls/{topic}")
    elsewhere.until("window.news.length", 2)


def test_poll_ends_at_once_when_its_tab_is_closed(browser: Browser, topic: str) -> None:
    with ends(browser.served, cancelled=1), another_tab(browser):
        browser.start(f"{browser.app}/polls/{topic}")
        browser.served.wait_for(pending=1)


def test_poll_of_a_page_kept_for_the_back_button_waits_on(browser: Browser, topic: str) -> None:
    browser.start(f"{browser.app}/polls/{topic}")
    browser.served.wait_for(pending=1)
    browser.driver.get("about:blank")
    time.sleep(0.3)
    browser.served.wait_for(pending=1)
    browser.driver.back()


def test_page_that_ends_its_polls_follows_again_when_back(browser: Browser) -> None:
    with ends(browser.served, cancelled=1):
        browser.driver.get(f"{browser.app}/shown")
        browser.until("window.news?.length", 1)
        browser.served.wait_for(pending=1)
        browser.driver.get("about:blank")
    browser.served.ask("POST /polls/shown")
    browser.driver.back()
    browser.until("window.news?.at(-1)?.slice(0, 3)", ["shown", None, browser.etag("shown").strip('"')])
    browser.open()


def test_page_that_is_replaced_says_so_and_goes_on_when_told(browser: Browser) -> None:
    with showing(browser):
        client = browser.run("return window.client")
        with ends(browser.served, failed=2, cancelled=1):
            thief = browser.served.send(f"GET /polls/shown?client={client}", {"If-None-Match": browser.etag("shown")})
            browser.until("document.querySelector('#replaced').hidden", False)
            browser.served.wait_for(pending=1)
            browser.run("document.querySelector('#replaced button').click()")
            assert read(thief).status == 409
            browser.served.wait_for(pending=1)
            assert browser.run("return document.querySelector('#replaced').hidden")
            news = browser.run("return window.news.length")
            browser.served.ask("POST /polls/shown")
            browser.until("window.news.length", news + 1)
            browser.served.wait_for(pending=1)
            browser.driver.get("about:blank")


def test_duplicated_tab_has_its_own_id_and_a_reload_keeps_it(browser: Browser) -> None:
    with showing(browser):
        client = browser.run("return window.client")
        assert len(client) == 32
        browser.driver.refresh()
        browser.until("window.client", client)
        browser.until("window.news?.length", 1)
        browser.served.wait_for(pending=1)
        first = browser.driver.current_window_handle
        browser.run("window.open(location.href)")  # copies sessionStorage, as the browser's menu does
        (second,) = set(browser.driver.window_handles) - {first}
        browser.driver.switch_to.window(second)
        browser.until("window.news?.length", 1)
        assert browser.run("return window.client") != client
        browser.served.wait_for(pending=2)
        browser.driver.close()
        browser.driver.switch_to.window(first)
        browser.served.wait_for(pending=1)
        assert browser.run("return document.querySelector('#replaced').hidden")


def test_client_that_is_replaced_may_be_aborted(browser: Browser, topic: str) -> None:
    url = f"/polls/{topic}?client=ann"
    browser.start(browser.app + url, replaced=True)
    browser.served.wait_for(pending=1)
    browser.served.ask(f"GET {url}", {"If-None-Match": '"0"', "Prefer": "wait=1"})
    browser.until("window.replaced", 1)
    browser.run("controller.abort()")
    browser.until("window.end", "ended")


def test_client_that_is_aborted_in_a_pause_ends(browser: Browser, topic: str) -> None:
    browser.start(f"http://127.0.0.1:{free_port()}/polls/{topic}")
    browser.until("window.tries.length > 1", True)
    browser.run("controller.abort()")
    browser.until("window.end", "ended")


@pytest.mark.parametrize(
    ("query", "options", "parked"),
    [
        ("since=0", {}, 1),
        ("since=0", {"cache": "no-cache"}, 1),
        ("since=0", {"cache": "no-store"}, 2),
        ("", {"headers": {"If-None-Match": '"0"'}}, 2),
    ],
)
def test_same_poll_in_two_tabs_waits_if_it_may_use_the_cache(
    browser: Browser, topic: str, query: str, options: dict[str, Any], parked: int
) -> None:
    browser.fetch(f"/polls/{topic}?{query}", **options)
    browser.served.wait_for(pending=1)
    with another_tab(browser):
        browser.fetch(f"/polls/{topic}?{query}", **options)
        time.sleep(0.3)
        browser.served.wait_for(pending=parked)


def test_tabs_have_six_connections_together_over_http_1(browser: Browser, topic: str) -> None:
    with another_tab(browser):
        browser.fetch(f"/polls/{topic}-N", 3, headers={"If-None-Match": '"0"'})
        with another_tab(browser):
            browser.fetch(f"/polls/{topic}-N", 4, headers={"If-None-Match": '"0"'})
            browser.served.wait_for(pending=6)
            browser.run("fetch('/statistics').then(() => { window.answered = true; })")
            time.sleep(0.3)
            assert browser.run("return window.answered") is None
            browser.served.wait_for(pending=6)
            browser.served.ask(f"POST /polls/{topic}-0")
            browser.until("window.answered", True)


def test_page_has_room_for_more_polls_over_http_2(elsewhere: Browser, topic: str, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    places = {"listen 443": "listen 80", "/etc/ssl/app.pem": str(certificate), "/etc/ssl/app.key": str(key)}
    over_tls = {"        listen 80;\n": changed(recipe("nginx", 2), places)}
    with Nginx(elsewhere.served.address, over_tls) as nginx, ends(elsewhere.served, cancelled=20):
        url = "https://{}:{}/polls/{}-N".format(*nginx.address, topic)
        elsewhere.fetch(url, 20, headers={"If-None-Match": '"0"'})
        elsewhere.served.wait_for(pending=20)
        elsewhere.driver.refresh()


@contextmanager
def showing(browser: Browser) -> Iterator[None]:
    """The page that follows the topic "shown"."""
    browser.driver.get(f"{browser.app}/shown")
    browser.until("window.news?.length", 1)
    browser.served.wait_for(pending=1)
    yield
    browser.open()


@contextmanager
def another_tab(browser: Browser) -> Iterator[None]:
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        browser.open()
        yield
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)
