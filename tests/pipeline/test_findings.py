"""The first screen names what is wrong. Each journal is recorded by the library itself: see workloads.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.page.page import write_page
from aiopurgatory.pipeline.report import report

from . import workloads
from .test_page import text_of

#: By workload: what the header of its page says, and what it must not say beside that.
SAID: dict[str, list[str]] = {
    "healthy": ["All promises kept"],
    "leak": ["Leak of fetch", "operations were waiting at 2026-11-21 12:0", "Their number only grows"],
    "timeout_too_short": [
        "Timeout too short of fetch",
        "share expired of fetch",
        "expired at 500 ms. Of the answers in time",
    ],
    "timeout_too_long": ["Timeout too long of fetch", "answers come long before it. With", "less time in all"],
    "coarse_keys": ["Coarse keys of fetch", "reads after a check found nothing", "The hottest key is 'rows'"],
    "coarse_operations": ["Coarse keys of fetch", "200 operations wait under a key", "ended 1 of them"],
    "hot_key": ["Hot key of fetch", "of all, waited under one key, 'main'"],
    "pauses": [
        *("All promises kept now, but not before: late p99 of fetch Late p99 of fetch : 2.7", " s at 2026-11-21 12:0"),
        "Python's garbage collector ran for",
    ],
    "missed_checks": [
        *("Missed checks of fetch", "Missed checks of fetch , Order :", "operations waited for their whole timeout"),
        *("usually 30 s, though what they waited for had come", "of the kind ('order', int) . Call notify()"),
        "missed triggers of fetch",
    ],
    "keys_of_another_type": [
        *("Keys of another type of fetch", "while operations waited under its twin"),
        *("Missed checks of fetch , Fetch :", "of the kind int ."),
    ],
}
WRONG = [f"{each} of" for each in ("Leak", "Coarse keys", "Hot key", "without effect", "another type", "Missed checks")]
WRONG += ["Timeout too long", "Timeout too short", "More expired than usual"]


def header_of(spark: SparkSession, folder: Path, step: workloads.Step) -> str:
    """Return the text of the first screen."""
    workloads.record(folder / "journal", step)
    ingest(spark, str(folder / "journal"), str(folder / "out"))
    report(spark, str(folder / "out"))
    write_page(spark, str(folder / "out"), folder / "report.html")
    header = re.search(r"<header>.*?</header>", (folder / "report.html").read_text("utf-8"), re.DOTALL)
    assert header is not None
    return text_of(header[0])


@pytest.mark.parametrize("name", SAID)
def test_page_first_screen_names_the_fault(spark: SparkSession, tmp_path: Path, name: str) -> None:
    step: Callable[..., None] = getattr(workloads, name)
    text = header_of(spark, tmp_path, step)
    for each in SAID[name]:
        assert each in text
    others = [each for each in WRONG if each in text and not any(each in said for said in SAID[name])]
    assert others == [], text
