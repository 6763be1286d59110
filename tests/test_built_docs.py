"""The pages that `make docs` has built, opened as files in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BUILT = Path(__file__).parents[1] / "build" / "docs"
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
#: Elements that a reader cannot scroll into view.
CUT_OFF = """
    const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    const isOut = (e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e);
    return [...document.querySelectorAll("article *")].filter(isOut).map((e) => e.outerHTML.slice(0, 200));
"""
DESKTOP = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
#: Blocks of code that are wider than their column, but for a line of a log, which is as it is.
SCROLLS = """
    const isWide = (e) => e.scrollWidth > e.clientWidth + 1 && !/^purgatory '(orders|exports)'/.test(e.textContent);
    return [...document.querySelectorAll("article pre code")].filter(isWide).map((e) => e.textContent.slice(0, 200));
"""
SHADOWS = """
    const roots = [...document.querySelectorAll("*")].map((e) => e.shadowRoot);
    return roots.find((root) => root?.querySelector("input"));
"""

pytestmark = pytest.mark.skipif(not BUILT.exists(), reason="make docs has not been run")


@pytest.mark.timeout(120)
def test_pages_fit_on_a_phone_and_code_on_a_desktop(driver: Chrome) -> None:
    try:
        for page in sorted(BUILT.rglob("*.html")):
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
            driver.get(page.as_uri())
            width = driver.execute_script("return document.documentElement.scrollWidth")
            assert (width, driver.execute_script(CUT_OFF)) == (360, []), page.name
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", DESKTOP)
            is_reference = page.parent != BUILT  # its signatures may be wider
            assert is_reference or driver.execute_script(SCROLLS) == [], page.name
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("heartbeats", "reference/groups.html"),
        ("client disconnect", "fastapi.html#a-client-disconnects-its-wait-ends"),
        ("several topics", "streams.html#several-topics-in-one-stream"),
        ("acks=all", "acks-all.html"),
        ("rate limit", "limits-and-leases.html"),
        ("semaphore", "limits-and-leases.html"),
        ("quorum", "acks-all.html"),
        ("condition", "from-asyncio.html"),
        ("missed", "slow-polls.html"),
    ],
)
def test_search_of_a_page_opened_as_a_file_finds_page(driver: Chrome, words: str, page: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    def search_box(driver: Chrome) -> Any:
        driver.execute_script("document.querySelector('.md-search__button').click()")
        return driver.execute_script(SHADOWS)

    def is_found(_: Chrome) -> bool:
        name, anchor = page.partition("#")[::2]
        links = [link.get_attribute("href") or "" for link in box.find_elements("css selector", "a[href*='h=']")]
        return any(name in link and link.endswith(anchor) for link in links[:10])

    driver.get((BUILT / "reference" / "core.html").as_uri())
    box = WebDriverWait(driver, 30).until(search_box)
    box.find_element("css selector", "input").send_keys(words)
    assert WebDriverWait(driver, 30).until(is_found)
