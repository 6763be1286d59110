"""The report's page: its text for tables made by hand, and its layout in a real browser."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual
from selenium import webdriver

from aiopurgatory.pipeline.advise import Advice, Option
from aiopurgatory.pipeline.page.figures import Axis, axis_of, count, share
from aiopurgatory.pipeline.page.page import Found, latest, page, read, reasons, steps, write_page
from aiopurgatory.pipeline.page.promises import Limits
from aiopurgatory.pipeline.tables import PLACES, REPORT
from aiopurgatory.replay.target import Setting

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
EVIL = "<script>alert(1)</script>"
NAMES = [EVIL, "$x^{$", "{{title}}", "\u202egnp\u0000", "𓂀" * 3, "n" * 1000, "_hidden", "a b\nc & d"]
OPTION = Option(Setting(tick_ms=10.0), {})
ADVICE = Advice(
    OPTION,
    f"Use `Purgatory({OPTION.name})`: it saves {EVIL}.",
    ("About half of the <CPU>.",),
    [{"setting": OPTION.name, "CPU": "0", "peak MB": "1"}],
)
OUTCOMES = {"completed": 6000.0, "expired": 0.0, "cancelled": 0.0, "failed": 0.0}


def put(spark: SparkSession, folder: Path, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a table of the report. Columns that *rows* leave out are null."""
    names = [each.split()[0] for each in REPORT[table].split(", ")]
    frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], REPORT[table])
    frame.coalesce(1).write.mode("overwrite").parquet(str(folder / "report" / "1.made.none" / table))
    places = spark.createDataFrame([(name, None, "1.made.none", "", 0, "", None) for name in REPORT], PLACES)
    places.coalesce(1).write.mode("overwrite").parquet(str(folder / "report" / "1.made.none" / "files"))


def minute(at: datetime, **other: Any) -> dict[str, Any]:
    usual = {"date": at.date(), "purgatory": "fetch", "kind": "Wait", "minute": at, "covered_s": 60.0}
    usual |= {"operations": 6000.0, **OUTCOMES, "missed_triggers": 0.0, "waited_p50_us": 250e3, "waited_p99_us": 13e6}
    return usual | {"pending_mean": 5.0, "pending_peak": 9.0} | other


def day(at: date, **other: Any) -> dict[str, Any]:
    return minute(NOON) | {"date": at} | other


def html_of(spark: SparkSession, folder: Path, limits: Limits | None = None, advice: Advice | None = None) -> str:
    write_page(spark, str(folder), folder / "report.html", limits, advice)
    return (folder / "report.html").read_text(encoding="utf-8")


# DataFrame -> DataFrame


def test_steps_pool_kinds_and_minutes(spark: SparkSession) -> None:
    schema = (
        "purgatory STRING, minute TIMESTAMP, completed DOUBLE, expired DOUBLE, cancelled DOUBLE, failed DOUBLE, "
        "pending_mean DOUBLE, pending_peak DOUBLE, waited_p50_us DOUBLE, waited_p99_us DOUBLE, lateness_p99_us DOUBLE"
    )
    rows = [
        ("p", NOON, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 5.0, None, None),
        ("p", NOON, 10.0, 20.0, 0.0, 0.0, 30.0, 40.0, 4.0, None, 7.0),  # another kind
        ("p", NOON + timedelta(minutes=1), 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, None, None),
    ]
    at = int(NOON.timestamp())
    work = spark.createDataFrame(
        [("p", NOON, 99), ("q", NOON, 7)], "purgatory STRING, minute TIMESTAMP, pending BIGINT"
    )
    found = steps(spark.createDataFrame(rows, schema), work, Axis(at, at + 120, 120))
    # The statistics know of 99 that wait, most of which have not ended.
    expected = [("p", 0, 12.0, 22.0, 0.0, 0.0, 50.0, 99.0, 5.0, None, 7.0)]
    columns = (
        "purgatory STRING, step INT, completed DOUBLE, expired DOUBLE, cancelled DOUBLE, failed DOUBLE, "
        "pending_mean DOUBLE, pending_peak DOUBLE, waited_p50_us DOUBLE, "
        "waited_p99_us DOUBLE, lateness_p99_us DOUBLE"
    )
    assertDataFrameEqual(found, spark.createDataFrame(expected, columns))


def test_latest_changes_are_those_of_the_newest_day(spark: SparkSession) -> None:
    today, before = NOON.date(), NOON.date() - DAY
    rows = [
        (today, "p", "k", "a", 1.0, 2.0, 0.5),
        (today, "p", "k", "b", 9.0, 1.0, -0.9),
        (before, "p", "k", "a", 1.0, 9.0, 0.9),
    ]
    found = latest(spark.createDataFrame(rows, REPORT["changes"])).collect()
    assert [row.measure for row in found] == ["b", "a"]


def test_reasons_put_dropped_rows_first_then_by_rows(spark: SparkSession) -> None:
    lost = spark.createDataFrame([(NOON.date(), "odd", 5), (NOON.date() + DAY, "odd", 1)], REPORT["lost"])
    work = spark.createDataFrame([(NOON, 1), (NOON + DAY, 0)], "minute TIMESTAMP, dropped_rows BIGINT")
    found = reasons(lost, work).collect()
    assert [tuple(row) for row in found] == [
        ("dropped", 1, "2026-11-21 12:00", "2026-11-21 12:00"),
        ("odd", 6, "2026-11-21", "2026-11-22"),
    ]


# The load


def loaded(spark: SparkSession, folder: Path, minutes: Sequence[dict[str, Any]]) -> Found:
    put(spark, folder, "minutes", minutes)
    dates = {each["date"] for each in minutes}
    put(spark, folder, "days", [day(each) for each in dates])
    return read(spark, str(folder), Limits())


def test_load_silent_hour_is_zero_and_other_days_are_gaps(spark: SparkSession, tmp_path: Path) -> None:
    hours = [n for n in range(24) if n != 3]
    whole = [minute(NOON - timedelta(hours=12) + timedelta(hours=h, minutes=n)) for h in hours for n in range(60)]
    later = [minute(each["minute"] + 2 * DAY) for each in whole]
    found = loaded(spark, tmp_path, [*whole, *later])
    hour = 3600 // found.axis.step
    rates = found.curve("fetch", "completed") / found.axis.seconds
    assert set(rates[3 * hour : 4 * hour]) == {0}
    assert np.isnan(rates[24 * hour : 48 * hour]).all()
    assert set(rates[: 3 * hour]) | set(rates[4 * hour : 24 * hour]) | set(rates[52 * hour :]) == {100}
    assert np.isnan(found.curve("fetch", "waited_p99_us", np.nan)[3 * hour : 4 * hour]).all()


def test_load_of_a_short_journal_is_by_second(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path, "seconds", [
        {"date": NOON.date(), "purgatory": "fetch", "kind": "Wait", "second": NOON + timedelta(seconds=n)}
        | {"completed": 100.0, "expired": 0.0, "cancelled": 0.0, "failed": 0.0, "pending": 5.0}
        for n in range(90)
    ])  # fmt: skip
    found = loaded(spark, tmp_path, [minute(NOON), minute(NOON + timedelta(minutes=1))])
    assert (found.axis.step, len(found.axis.edges)) == (1, 91)
    assert list(found.curve("fetch", "waited_p50_us", np.nan)) == [250e3] * 90
    assert list(found.curve("fetch", "completed")) == [100.0] * 90
    path = re.search(r'<path class="area completed" d="([^"]*)"', html_of(spark, tmp_path))
    assert path is not None
    assert re.fullmatch(r"M0 (\d+)H10000V1000H0Z", path[1])


@pytest.mark.parametrize(("years", "steps_at_most"), [(0, 60), (1, 720), (57, 721), (290, 721)])
def test_axis_has_few_steps_however_long(years: int, steps_at_most: int) -> None:
    last = int(NOON.timestamp()) + 3540 + years * 31_557_600
    axis = axis_of(int(NOON.timestamp()), last, unit=60)
    assert len(axis.edges) - 1 <= steps_at_most
    assert axis.edges[0] <= NOON.timestamp() < axis.edges[1]
    assert axis.edges[-1] > last


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


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with rows in every table, and names full of markup. Its path has a name like them."""
    folder = tmp_path_factory.mktemp("report") / "a b %41 é"
    minutes = [minute(NOON + timedelta(minutes=n), kind=kind) for n in range(30) for kind in NAMES]
    bad = {"purgatory": EVIL, "expired": 6000.0, "completed": 0.0, "lateness_p99_us": 1e3}
    put(spark, folder, "minutes", [*minutes, minute(NOON, **bad)])
    put(spark, folder, "days", [*(day(NOON.date(), kind=kind) for kind in NAMES), day(NOON.date(), **bad)])
    change = {"purgatory": EVIL, "kind": EVIL, "measure": "waited_p99_us", "before": 13e6, "now": 39e6, "change": 0.67}
    put(spark, folder, "changes", [{"date": NOON.date(), **change}])
    key = {"operations": 9.0, "share": 0.5, "keys_each": 1.0, "purgatory": "fetch", "key_hash": -1}
    put(spark, folder, "hot_keys", [key | {"place": n, "key": name} for n, name in enumerate([None, *NAMES])])
    put(spark, folder, "work", [{"purgatory": "fetch", "minute": NOON, "checks": 48_000, "dropped_rows": 7}])
    put(spark, folder, "lost", [{"date": NOON.date(), "what": EVIL, "rows": 3}])
    settings = {"instances": 3, "tick_s": 0.25, "wheel_size": 20, "purge_interval": 0}
    put(spark, folder, "settings", [{"purgatory": EVIL, **settings}])
    html_of(spark, folder, Limits(max_expired_share=0.5, max_dropped_rows=5), ADVICE)
    return folder


@pytest.fixture
def html(whole: Path) -> str:
    return (whole / "report.html").read_text(encoding="utf-8")


def test_page_sections_in_their_order(html: str) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", html)
    assert titles == ["Promises", "Changes", "Load", "Timeouts", "Hot keys", "Work", "Advice", "How to read this page"]


def test_page_loads_nothing_and_hostile_names_are_text(html: str) -> None:
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


def test_page_same_tables_same_bytes(spark: SparkSession, whole: Path, html: str) -> None:
    assert html_of(spark, whole, Limits(max_expired_share=0.5, max_dropped_rows=5), ADVICE) == html


def test_page_names_the_broken_promise_and_its_remedy(html: str) -> None:
    text = text_of(html)
    assert f"1 of 9 promises broken: share expired of {EVIL}" in text
    assert (
        f"Share expired of {EVIL} : 100% at 2026-11-21 12:00, the worst of 1 such minutes; the limit is 50.0%." in text
    )
    assert "Most likely, news came too late. See that all code" in text
    assert f"✗ broken share expired {EVIL} 100% 50.0% - 2026-11-21 12:00 100% 2026-11-21 12:00 1 of 1" in text
    assert (
        "✓ kept dropped rows the whole fleet 0 5 2026-11-21 12:01 2026-11-21 12:29 7 2026-11-21 12:00 1 of 30" in text
    )


def test_page_says_what_changed_what_was_lost_and_the_work(html: str) -> None:
    text = text_of(html)
    assert f"{EVIL} {EVIL} waited p99 13 s 39 s ▲ 3 times" in text
    assert f"dropped 7 2026-11-21 12:00 2026-11-21 12:00 {EVIL} 3 2026-11-21 2026-11-21" in text
    assert "refused fetch 48,000 " in text
    assert "#ffffffffffffffff 9 50.0% 1" in text


def test_page_advice_and_the_settings_in_use(html: str) -> None:
    assert "Use <code>Purgatory(tick=0.01, wheel_size=20, purge_interval=0)</code>: it saves &lt;script&gt;" in html
    assert "<li>About half of the &lt;CPU&gt;.</li>" in html
    text = text_of(html)
    assert f"Settings in use purgatory instances tick wheel_size purge_interval {EVIL} 3 250 ms 20 0" in text
    assert "peak MB tick=0.01, wheel_size=20, purge_interval=0 0 1" in text


def test_page_no_tables_at_all_says_so(spark: SparkSession, tmp_path: Path) -> None:
    text = text_of(html_of(spark, tmp_path))
    assert "No operation ended on these days" in text
    assert "Too few operations to judge any promise" in text
    assert "There is no day before to compare with." in text
    assert "There is no advice yet." in text


def test_page_all_promises_kept_and_nothing_changed_says_so(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path, "minutes", [minute(NOON)])
    put(spark, tmp_path, "days", [day(NOON.date()), day(NOON.date() - DAY)])
    same = {"purgatory": "fetch", "kind": "Wait", "measure": "operations", "before": 5.0, "now": 5.0, "change": 0.0}
    put(spark, tmp_path, "changes", [{"date": NOON.date(), **same}])
    text = text_of(html_of(spark, tmp_path))
    assert "All promises kept" in text
    assert "✓ kept late p99 fetch - 100 ms - 2026-11-21 12:00 - - 0 of 1" in text
    assert "Nothing changed: 2026-11-21 was like the day before." in text


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (["kept", "kept"], "All promises kept"),
        (["broken", "kept"], "1 of 2 promises broken: late p99 of p"),
        (["broken"] * 2, "2 of 2 promises broken: late p99 of p, late p99 of p"),
        (["broken"] * 4, "4 of 4 promises broken"),
        (["kept", "unknown"], "No promise broken; too few operations to judge 1 of 2"),
        (["broken", "unknown"], "1 of 2 promises broken: late p99 of p; too few operations to judge 1 of 2"),
        (["unknown"], "Too few operations to judge any promise"),
        ([], "Too few operations to judge any promise"),
    ],
)
def test_page_headline_names_what_is_broken_and_counts_what_is_unknown(verdicts: list[str], headline: str) -> None:
    columns = dict.fromkeys(("now", "limit", "since", "at", "worst", "worst_at"))
    promises = [
        SimpleNamespace(purgatory="p", name="late p99", verdict=each, broken=0, judged=0, **columns)
        for each in verdicts
    ]
    everything = SimpleNamespace(operations=0.0, dates=[])
    rows: dict[str, list[Any]] = {
        name: [] for name in ("changes", "lost", "days", "hot_keys", "work", "settings", "findings", "timeouts")
    }
    html = page(Found(everything, {}, {"promises": promises, **rows}, axis_of(None, None, unit=60)))
    found = re.search(r'<p class="headline (\w+)">(.*?)</p>', html)
    assert found is not None
    assert (found[1], found[2]) == (verdicts[0] if verdicts else "unknown", headline)


def test_page_coarse_keys_without_known_reads_says_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    """A counter's growth is unknown before the first snapshot that was delivered."""
    work = {"reads": 0, "reads_in_vain": 5, "checks": 500, "completed": 5, "watched_entries": 500, "keys": 2}
    put(spark, tmp_path, "work", [{"purgatory": "fetch", "minute": NOON, "checks_without_effect": 9, **work}])
    text = text_of(html_of(spark, tmp_path))
    assert "Coarse keys of fetch : 250 operations wait under a key on average" in text


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
    assert len(plots) == 6
    assert all(0.6 * min(width, 1180) < each <= width for each in plots)


@pytest.mark.parametrize("width", [320, 360, 700])
def test_page_browser_phone_shows_each_value_with_its_name(driver: webdriver.Chrome, whole: Path, width: int) -> None:
    shown(driver, whole, width=width)
    wide = "return [...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert driver.execute_script(wide) == 0
    cut = """
    return [...document.querySelectorAll('td')].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.left < 0 || box.right > innerWidth || !e.dataset.label
        || !getComputedStyle(e, '::before').content.includes(e.dataset.label);
    }).length"""
    assert driver.execute_script(cut) == 0


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
