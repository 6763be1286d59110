"""The report's page: its text for tables made by hand, and its layout in a real browser."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium import webdriver

from aiopurgatory.pipeline.advise import Advice, Option
from aiopurgatory.pipeline.page.load import Load, axis_of, load_of
from aiopurgatory.pipeline.page.page import page
from aiopurgatory.pipeline.page.promises import Limits
from aiopurgatory.pipeline.page.reading import SCHEMAS, minutes_of, seconds_of
from aiopurgatory.pipeline.page.wording import count, duration, share
from aiopurgatory.replay.settings import Setting

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
EVIL = "<script>alert(1)</script>"
NAMES = [EVIL, "$x^{$", "{{title}}", "\u202egnp\u0000", "𓂀" * 3, "n" * 1000, "_hidden", "a b\nc & d"]
ADVICE = Advice(
    Option(Setting(tick_ms=10.0), {}),
    ("About half of the <CPU>.", EVIL),
    ({"setting": Option(Setting(tick_ms=10.0), {}).name, "CPU": "0", "peak MB": "1"},),
).html()


def put(folder: Path, table: str, rows: Sequence[dict[str, Any]], name: str = "rows") -> None:
    (folder / table).mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), SCHEMAS[table]), folder / table / f"{name}.parquet")


def minute(at: datetime, rate: float = 100.0, covered: float = 60.0, **other: Any) -> dict[str, Any]:
    usual = {
        "purgatory": "fetch",
        "kind": "Wait",
        "minute": at,
        "covered_s": covered,
        "operations": rate * covered,
        "completed": rate * covered,
        "expired": 0.0,
        "cancelled": 0.0,
        "failed": 0.0,
        "missed_triggers": 0.0,
        "waited_p50_us": 250e3,
        "waited_p99_us": 13e6,
        "pending_mean": 5.0,
        "pending_peak": 9.0,
    }
    return usual | other


def second(at: datetime, completed: float = 100.0, **other: Any) -> dict[str, Any]:
    usual = {"purgatory": "fetch", "kind": "Wait", "second": at, "completed": completed, "pending": 5.0}
    return usual | dict.fromkeys(("expired", "cancelled", "failed"), 0.0) | other


def day(at: date, **other: Any) -> dict[str, Any]:
    return minute(NOON, 100.0) | {"date": at} | other


def load(folder: Path) -> Load:
    minutes, seconds = minutes_of(str(folder)), seconds_of(str(folder))
    return load_of(axis_of(minutes, seconds), minutes["fetch"], seconds.get("fetch"))


def total(found: Load) -> list[float]:
    return list(np.sum(list(found.rates.values.values()), axis=0))


def drawn(html: str, colour: str, plot: str = "Ended per second") -> list[str]:
    """Return the paths of *colour* in the plots of this title."""
    figures = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    of_title = [figure for figure in figures if f"<b>{plot}</b>" in figure]
    return [path for figure in of_title for path in re.findall(rf'<path class="\w+ {colour}" d="([^"]*)"', figure)]


# The load: 100 a second is drawn as 100 a second


def test_load_minutes_seen_in_part_are_no_less_load(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON, covered=30.0), minute(NOON + timedelta(minutes=1))])
    assert total(load(tmp_path)) == [100, 100]
    assert len(drawn(page(str(tmp_path)), "completed")[0].split("M")) == 2
    assert re.fullmatch(r"M0 (\d+)H10000V1000H0Z", drawn(page(str(tmp_path)), "completed")[0])


def test_load_seconds_from_the_middle_of_a_minute_constant(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON, covered=30.0), minute(NOON + timedelta(minutes=1))])
    put(tmp_path, "seconds", [second(NOON + timedelta(seconds=30 + n)) for n in range(90)])
    found = load(tmp_path)
    assert (found.rates.axis.step, found.rates.axis.count) == (1, 90)
    assert total(found) == [100] * 90
    assert re.fullmatch(r"M0 (\d+)H10000V1000H0Z", drawn(page(str(tmp_path)), "completed")[0])


@pytest.mark.parametrize(("begin", "length"), [(30.6, 60.0), (30.95, 60.1), (10.0, 1000.3), (5.5, 700.0)])
def test_load_steady_rate_that_begins_within_a_second_flat(tmp_path: Path, begin: float, length: float) -> None:
    seconds, minutes = Counter[int](), Counter[int]()
    for number in range(int(length * 1000)):
        moment = int((begin + number / 1000) * 1e6 + 0.5)
        seconds[moment // 1_000_000] += 1
        minutes[moment // 60_000_000] += 1
    end = begin + length
    covered = {n: min(end, 60 * n + 60) - max(begin, 60 * n) for n in minutes}
    rows = [
        minute(NOON + timedelta(minutes=n), covered=covered[n], operations=float(each), completed=float(each))
        for n, each in minutes.items()
    ]
    put(tmp_path, "minutes", rows)
    assert total(load(tmp_path)) == pytest.approx([1000] * len(minutes), rel=0.02)
    put(tmp_path, "seconds", [second(NOON + timedelta(seconds=n), float(each)) for n, each in seconds.items()])
    found = load(tmp_path)
    assert found.rates.axis.step == (1 if length < 600 else 10)
    assert total(found)[1:-2] == pytest.approx([1000] * (found.rates.axis.count - 3), rel=0.02)
    assert max(total(found)) < 1_020  # a part of a second is shown as it was counted


def test_load_one_minute_seen_in_part_shows_what_was_counted(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON, covered=9.0)])
    put(
        tmp_path,
        "seconds",
        [second(NOON + timedelta(seconds=n), 50.0 if n in (5, 14) else 100.0) for n in range(5, 15)],
    )
    assert total(load(tmp_path)) == [50, *[100] * 8, 50]


def test_load_silent_hour_is_zero_and_other_days_are_gaps(tmp_path: Path) -> None:
    hours = [n for n in range(24) if n != 3]
    whole = [minute(NOON - timedelta(hours=12) + timedelta(hours=h, minutes=n)) for h in hours for n in range(60)]
    later = [each | {"minute": each["minute"] + 2 * DAY} for each in whole]
    put(tmp_path, "minutes", whole, "first")
    put(tmp_path, "minutes", later, "later")
    found = load(tmp_path)
    rates, step = np.array(total(found)), found.rates.axis.step
    hour = 3600 // step
    assert set(rates[3 * hour : 4 * hour]) == {0}
    assert np.isnan(rates[24 * hour : 48 * hour]).all()
    assert set(rates[: 3 * hour]) | set(rates[4 * hour : 24 * hour]) | set(rates[52 * hour :]) == {100}
    assert np.isnan(found.times.values["waited_p99_us"][3 * hour : 4 * hour]).all()
    assert set(found.peak[3 * hour : 4 * hour]) == {0}


def test_load_ends_with_the_last_minute(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON + timedelta(minutes=n)) for n in range(3)])
    axis = load(tmp_path).rates.axis
    assert (axis.count, axis.end - axis.start) == (3, 180)


def test_load_all_purgatories_on_one_axis(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON), minute(NOON + timedelta(minutes=9), purgatory="produce")])
    first, then = drawn(page(str(tmp_path)), "completed")
    assert first.startswith("M0 ")
    assert "H1000V1000" in first
    assert then.startswith("M9000 ")
    assert "H10000V1000" in then


def test_load_waiting_mean_is_by_kind_and_peak_is_named(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON), minute(NOON, kind="Other", pending_mean=3.0, pending_peak=4.0)])
    found = load(tmp_path)
    assert {kind: list(mean) for kind, mean in found.waiting.values.items()} == {"Wait": [5], "Other": [3]}
    assert list(found.peak) == [13]
    assert not found.peak_exact
    assert "sum of the kinds' peaks" in text_of(page(str(tmp_path)))


def test_load_clock_of_1970_in_one_row_stays_quick(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(datetime(1970, 1, 1, tzinfo=UTC)), minute(NOON)])
    assert load(tmp_path).rates.axis.count <= 721


@pytest.mark.parametrize("years", [20, 56, 57, 120, 290])
def test_dates_over_decades_are_few_distinct_and_have_their_year(tmp_path: Path, years: int) -> None:
    first = datetime(1970, 6, 1, tzinfo=UTC)
    put(tmp_path, "minutes", [minute(first), minute(first.replace(year=1970 + years))])
    plot = page(str(tmp_path)).split("<figure>")[1]
    labels = [datetime.strptime(each, "%d %b %Y") for each in re.findall(r"<tspan[^>]*>([^<]*)</tspan>", plot)]
    assert 2 <= len(labels) <= 8
    assert labels == sorted(set(labels))
    assert 1970 <= labels[0].year <= labels[-1].year <= 1970 + years
    steps = np.diff(np.array(labels, "datetime64[D]"))
    assert len({*steps.tolist()}) == 1


# The words of the page


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(html: str) -> _Text:
    found = _Text()
    found.feed(html)
    return found


def text_of(html: str) -> str:
    return " ".join(" ".join(parsed(html).text).split())


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Write a report with rows in every table, and names full of markup."""
    minutes = [minute(NOON + timedelta(minutes=n), kind=kind) for n in range(30) for kind in NAMES]
    put(tmp_path, "minutes", [*minutes, minute(NOON, purgatory=EVIL, expired=6000.0, completed=0.0)])
    put(tmp_path, "days", [day(NOON.date(), kind=kind) for kind in NAMES])
    change = {"purgatory": EVIL, "kind": EVIL, "measure": "waited_p99_us", "before": 13e6, "now": 26e6, "change": 0.5}
    put(tmp_path, "changes", [{"date": NOON.date(), **change}])
    key = {"operations": 9.0, "share": 0.5, "keys_each": 1.0}
    keys = [
        {"purgatory": "fetch", "place": n, "key_hash": -1, "key": name, **key} for n, name in enumerate([None, *NAMES])
    ]
    put(tmp_path, "hot_keys", keys)
    put(tmp_path, "work", [{"purgatory": "fetch", "minute": NOON, "checks": 144_000.0 * len(NAMES)}])
    lost = [{"date": NOON.date(), "minute": NOON, "what": "dropped", "rows": 7.0}]
    put(tmp_path, "lost", [*lost, {"date": NOON.date(), "minute": None, "what": EVIL, "rows": 3.0}])
    settings = {"instances": 3, "tick_s": 0.25, "wheel_size": 20.0, "purge_interval": 0.0}
    put(tmp_path, "settings", [{"purgatory": EVIL, **settings}])
    return tmp_path


def test_page_sections_in_their_order(whole: Path) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", page(str(whole), advice=ADVICE))
    expected = ["Are we keeping our promises?", "What changed since the day before", "The load over time"]
    expected += ["Hot keys", "The purgatories&#x27; work", "Advice", "How to read this page"]
    assert titles == expected


def test_page_loads_nothing_and_hostile_names_are_text(whole: Path) -> None:
    html = page(str(whole), advice=ADVICE)
    found = parsed(html)
    assert found.tags["script"] == found.tags["img"] == 0
    assert not {name for name in found.attributes if name.startswith("on")}
    assert all(link == "data:," or link.startswith("#") for link in found.links)
    assert not re.search(r"url\(|@import|\w+://", html)
    text = "".join(found.text)
    for name in (EVIL, "$x^{$", "{{title}}", "𓂀𓂀𓂀", "_hidden"):
        assert name in text
    assert "\x00" not in html
    assert "n" * 200 not in text


def test_page_same_tables_same_bytes(whole: Path) -> None:
    assert page(str(whole), advice=ADVICE) == page(str(whole), advice=ADVICE)


def test_page_promises_verdict_in_words_with_limit_and_since(whole: Path) -> None:
    text = text_of(page(str(whole), limits=Limits(max_dropped_rows=5)))
    assert "1 of 7 promises broken" in text
    assert f"✗ broken share expired {EVIL} 100% at 2026-11-21 12:00 50.0% (default) start of the range" in text
    assert "✓ kept dropped rows the whole fleet 0 5 (given) 2026-11-21 12:01 7 1 of 30" in text
    assert "Now means 2026-11-21 12:29 UTC." in text


def test_page_all_promises_kept_says_so(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON)])
    text = text_of(page(str(tmp_path)))
    assert "All promises kept" in text
    assert "✓ kept late p99 fetch nothing expired 100 ms (default) start of the range" in text


def test_page_changes_three_ways(tmp_path: Path) -> None:
    put(tmp_path, "minutes", [minute(NOON)])
    put(tmp_path, "days", [day(NOON.date())])
    assert "There is no day before to compare with." in text_of(page(str(tmp_path)))
    put(tmp_path, "days", [day(NOON.date()), day(NOON.date() - DAY)])
    assert "Nothing changed: 2026-11-21 was like the day before." in text_of(page(str(tmp_path)))
    same = {"purgatory": "fetch", "kind": "Wait", "measure": "operations", "before": 5.0, "now": 5.0, "change": 0.0}
    put(tmp_path, "days", [day(NOON.date())])
    put(tmp_path, "changes", [{"date": NOON.date(), **same}])
    assert "Nothing changed" in text_of(page(str(tmp_path)))
    put(tmp_path, "changes", [{"date": NOON.date(), **same, "now": 15.0, "change": 0.67}])
    assert "fetch Wait operations 5 15 ▲ 3 times" in text_of(page(str(tmp_path)))


def test_page_lost_rows_by_reason_and_on_the_axis(whole: Path) -> None:
    html = page(str(whole))
    assert f"dropped 7 2026-11-21 12:00 2026-11-21 12:00 {EVIL} 3 2026-11-21 2026-11-21" in text_of(html)
    assert drawn(html, "dropped", "Rows dropped or quarantined per minute")[0].startswith("M0 ")
    assert drawn(html, "someday", "Rows dropped or quarantined per minute") == ["M0 0H10000V1000H0Z"]


def test_page_work_per_operation_and_per_second(whole: Path) -> None:
    assert f"checks {144_000 * len(NAMES):,} 0.8 {80 * len(NAMES)}" in text_of(page(str(whole)))


def test_page_advice_beside_the_settings_in_use(whole: Path) -> None:
    html = page(str(whole), advice=ADVICE)
    assert "<code>Purgatory(tick=0.01, wheel_size=20, purge_interval=0)</code>" in html
    assert "<li>About half of the &lt;CPU&gt;.</li>" in html
    text = text_of(html)
    assert f"Settings in use purgatory instances tick wheel_size purge_interval {EVIL} 3 250 ms 20 0" in text
    assert "peak MB tick=0.01, wheel_size=20, purge_interval=0 0 1" in text


def test_page_no_tables_at_all_says_so(tmp_path: Path) -> None:
    text = text_of(page(str(tmp_path)))
    assert "No operation ended on these days" in text
    assert "Too few operations to judge any promise" in text
    assert "There is no advice yet." in text


def test_page_folder_with_a_hostile_path(tmp_path: Path) -> None:
    folder = tmp_path / "José [1] {x,y} a:b date=5 %20"
    folder.mkdir()
    put(folder, "minutes", [minute(NOON)])
    (folder / "minutes" / ".rows.parquet.partial").write_bytes(b"half")
    assert "6,000 operations" in text_of(page(str(folder)))


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [
        *[(0, "0 s"), (1, "1 µs"), (250e3, "250 ms"), (999.9e3, "1 s"), (13e6, "13 s"), (13.49e6, "13.5 s")],
        *[(90e6, "1.5 min"), (5400e6, "1.5 h"), (129_600e6, "1.5 d"), (8.64e15, "100,000 d"), (float("nan"), "-")],
    ],
)
def test_duration_in_units_people_read(microseconds: float, expected: str) -> None:
    assert duration(microseconds) == expected


def test_counts_and_shares_do_not_round_some_to_none() -> None:
    assert [count(value) for value in (1234567, 0.5, 12.345, 0.00001)] == ["1,234,567", "0.5", "12.3", "< 0.001"]
    shares = [share(value) for value in (0.0, 0.00001, 0.0012, 0.125, 0.9999, 1.0)]
    assert shares == ["0%", "< 0.01%", "0.12%", "12.5%", "> 99.9%", "100%"]


# In a browser


def shown(driver: webdriver.Chrome, folder: Path, *, width: int = 1280, scheme: str = "light", media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    (folder / "report.html").write_text(page(str(folder), advice=ADVICE), encoding="utf-8")
    driver.get((folder / "report.html").as_uri())


# Of each element with text: its text, its contrast, and how light its background is.
COLOURS = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
const behind = (element) => {
  const colour = rgb(getComputedStyle(element).backgroundColor);
  return colour[3] === 0 ? behind(element.parentElement) : colour;
};
const selector = "h1, .headline, p, a, td, th, .verdict, dd, .plot text, figcaption span";
return [...document.querySelectorAll(selector)].map((element) => {
  const style = getComputedStyle(element), page = light(behind(element));
  const ink = light(rgb(element instanceof SVGElement ? style.fill : style.color));
  return [element.textContent.slice(0, 30), (Math.max(ink, page) + .05) / (Math.min(ink, page) + .05), page];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_browser_text_is_readable(driver: webdriver.Chrome, whole: Path, scheme: str) -> None:
    shown(driver, whole, scheme=scheme)
    found = driver.execute_script(COLOURS)
    assert len(found) > 100
    assert [each for each in found if each[1] < 4.5] == []
    assert (found[0][2] > 0.5) == (scheme == "light")


def test_page_browser_prints_dark_pages_on_white(driver: webdriver.Chrome, whole: Path) -> None:
    shown(driver, whole, scheme="dark", media="print", width=720)
    found = driver.execute_script(COLOURS)
    assert [each for each in found if each[1] < 4.5] == []
    assert found[0][2] > 0.9
    cut = (
        "return [...document.querySelectorAll('.wide, td, figure')].filter((e) => e.scrollWidth > e.clientWidth + 1 &&"
    )
    assert driver.execute_script(f"{cut} getComputedStyle(e).overflowX != 'visible').length") == 0
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 720


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_page_browser_does_not_scroll_sideways(driver: webdriver.Chrome, whole: Path, width: int) -> None:
    shown(driver, whole, width=width)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = "return [...document.querySelectorAll('.plot > svg')].map((e) => e.getBoundingClientRect().width)"
    plots = driver.execute_script(sizes)
    assert len(plots) == 7
    assert all(0.6 * min(width, 1180) < each <= width for each in plots)


def test_page_browser_draws_data_and_asks_nobody(driver: webdriver.Chrome, whole: Path) -> None:
    driver.get("about:blank")
    driver.get_log("performance")  # type: ignore[no-untyped-call]
    driver.get_log("browser")  # type: ignore[no-untyped-call]
    shown(driver, whole)
    area = "return document.querySelector('.plot path.completed').getBoundingClientRect()"
    box = driver.execute_script(area)
    assert box["width"] > 500
    assert box["height"] > 50
    assert driver.get_log("browser") == []  # type: ignore[no-untyped-call]
    entries = driver.get_log("performance")  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert asked - {"data:,"} == {(whole / "report.html").as_uri()}
