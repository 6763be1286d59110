"""Measures of minutes and days equal those of plain Python that counts one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiopurgatory.pipeline.cleaning.journal_tables import OPERATIONS
from aiopurgatory.pipeline.minutes.changes import changes
from aiopurgatory.pipeline.minutes.columns import Columns
from aiopurgatory.pipeline.minutes.measures import DAYS, DaySums
from aiopurgatory.pipeline.minutes.percentiles import ERROR, PERCENTILES
from aiopurgatory.pipeline.minutes.sums import Sums
from aiopurgatory.pipeline.minutes.units import EPOCH, MINUTE

from .journals import NOON, expired, operation

TODAY = (NOON.date() - EPOCH).days
SECOND = timedelta(seconds=1)
EASY = settings(max_examples=40, deadline=None)


def summed(*batches: Sequence[dict[str, Any]]) -> Sums:
    sums = Sums()
    for rows in batches:
        sums.add(Columns(pa.Table.from_pylist(list(rows), OPERATIONS.arrow).cast(OPERATIONS.held)))
    return sums


def sums_of_day(sums: Sums, day: int = TODAY) -> DaySums:
    tables = sums.tables()
    return DaySums(day, tables["activity"], tables["seconds"])


def minutes(*batches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    sums = summed(*batches)
    return sums_of_day(sums).minutes(sums.spans).to_pylist()  # type: ignore[no-any-return]


def one(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = minutes(rows)
    return found


def test_minutes_minute_is_that_of_the_end() -> None:
    rows = [operation(0, watched_at=NOON, waited_us=MINUTE - 1), operation(1, watched_at=NOON, waited_us=MINUTE)]
    found = minutes(rows)
    assert [(row["minute"].minute, row["operations"]) for row in found] == [(0, 1), (1, 1)]


def test_minutes_weight_counts_in_everything() -> None:
    found = one(
        [
            operation(0, weight=8.0, waited_us=0),
            operation(1, weight=2.0, waited_us=1_000, missed_trigger=True),
            expired(2, weight=5.0),
            operation(3, outcome="cancelled", weight=1.0),
            operation(4, outcome="failed", weight=4.0),
        ]
    )
    counts = [found[name] for name in ("operations", "completed", "expired", "cancelled", "failed", "missed_triggers")]
    assert counts == [20, 10, 5, 1, 4, 2]
    assert (found["completed_share"], found["expired_share"]) == (0.5, 0.25)
    assert found["waited_p50_us"] == pytest.approx(1_000, rel=ERROR)  # 8 of 20 waited for nothing, 2 more for 1 ms
    assert found["lateness_max_us"] == pytest.approx(1_000, rel=ERROR)


def test_minutes_nothing_expired_no_lateness() -> None:
    found = one([operation(0, waited_us=0)])
    assert (found["waited_p50_us"], found["waited_p999_us"], found["lateness_p99_us"]) == (0, 0, None)


@EASY
@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 50)), min_size=1, max_size=60), st.integers(1, 9))
def test_percentiles_any_values_within_their_error(values: list[tuple[int, int]], cut: int) -> None:
    rows = [
        operation(n, watched_at=NOON - timedelta(microseconds=waited), waited_us=waited, weight=float(weight))
        for n, (waited, weight) in enumerate(values)
    ]
    (found,) = (row for row in minutes(rows[:cut], rows[cut:]) if row["operations"])
    every = sorted(value for value, weight in values for _ in range(weight))
    for name, share in PERCENTILES.items():
        exact = every[math.ceil(share * len(every) - 1e-9) - 1]
        assert found[f"waited_{name}_us"] == pytest.approx(exact, rel=ERROR * (1 + 1e-9))


spans = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 130), st.integers(1, 3)), min_size=1, max_size=25)


@EASY
@given(spans, st.integers(1, 9))
def test_pending_any_starts_and_ends_same_as_looking(spans: list[tuple[int, int, int]], cut: int) -> None:
    rows = [
        operation(n, watched_at=NOON + start * SECOND, waited_us=length * 1_000_000, weight=float(weight))
        for n, (start, length, weight) in enumerate(spans)
    ]
    waiting: dict[int, list[int]] = defaultdict(lambda: [0] * 60)
    for start, length, weight in spans:
        for second in range(start, start + length):
            waiting[second // 60][second % 60] += weight
    found = {(row["minute"] - NOON) // timedelta(minutes=1): row for row in minutes(rows[:cut], rows[cut:])}
    ends = [start + length for start, length, _ in spans]
    for minute in found.keys() | waiting.keys():
        row = found.get(minute, {"pending_peak": 0, "pending_mean": 0})
        assert row["pending_peak"] == max(waiting[minute])
        covered = [second for second in range(60) if min(ends) <= 60 * minute + second <= max(ends)] or range(60)
        seen = [waiting[minute][second] for second in covered]
        assert row["pending_mean"] == pytest.approx(sum(seen) / len(seen))


def test_pending_over_midnight_shows_on_both_days() -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    sums = summed([operation(0, watched_at=midnight - 90 * SECOND, waited_us=150_000_000)])
    for day, peaks in ((TODAY, [("23:58", 1), ("23:59", 1)]), (TODAY + 1, [("00:00", 1)])):
        tables = sums.tables()
        activity = tables["activity"].filter(pa.array(tables["activity"]["minute"].to_numpy() // 1440 == day))
        found = DaySums(day, activity, tables["seconds"]).minutes(sums.spans).to_pylist()
        shown = [(f"{row['minute']:%H:%M}", row["pending_peak"]) for row in found if row["pending_peak"]]
        assert shown == peaks


def test_minutes_seen_in_part_rate_is_of_seconds_covered() -> None:
    begin = NOON + 35 * SECOND
    rows = [operation(n, watched_at=begin + n * SECOND / 100, waited_us=0) for n in range(9_001)]
    found = minutes(rows)
    assert [row["covered_s"] for row in found] == [25, 60, 5]
    assert [row["operations"] / row["covered_s"] for row in found] == pytest.approx([100, 100, 100], rel=0.01)
    sums = summed(rows)
    by_second = sums_of_day(sums).seconds().to_pylist()
    assert {row["completed"] for row in by_second[:-1]} == {100}


def test_minutes_silent_between_two_of_load_are_covered() -> None:
    rows = [operation(0, watched_at=NOON, waited_us=0), operation(1, watched_at=NOON + 150 * SECOND, waited_us=0)]
    assert [(row["minute"].minute, row["covered_s"]) for row in minutes(rows)] == [(0, 60), (2, 30)]


def test_sums_added_up_from_any_batches_are_the_same() -> None:
    random = np.random.default_rng(3)
    rows = [
        operation(
            n,
            purgatory=f"p{n % 3}",
            kind=f"k{n % 7}",
            key_hash=n % 11,
            key=f"key-{n % 11}" if n % 2 else None,
            watched_at=NOON + timedelta(milliseconds=int(random.integers(0, 300_000))),
            waited_us=int(random.integers(0, 10**8)),
            weight=float(random.integers(1, 4)),
        )
        for n in range(400)
    ]
    whole, parts = summed(rows).tables(), summed(*(rows[n : n + 37] for n in range(0, 400, 37))).tables()
    for name, table in whole.items():
        order = [(column, "ascending") for column in table.column_names]
        plain = [pa.Table.from_pylist(each.to_pylist()).sort_by(order).to_pylist() for each in (table, parts[name])]
        assert plain[0] == plain[1]


def test_sums_of_keys_any_two_hashes_stay_apart() -> None:
    once = 0x1E3779B97F4A7C15  # numbers of purgatories were multiplied by this, and added to the hash
    rows = [operation(0, purgatory="a", key_hash=once), operation(1, purgatory="b", key_hash=0)]
    found = summed(rows).tables()["keys"].to_pylist()
    assert sorted((row["purgatory"], row["key_hash"], row["operations"]) for row in found) == [
        ("a", once, 1.0),
        ("b", 0, 1.0),
    ]


def test_days_are_measured_from_all_their_minutes() -> None:
    rows = [operation(n, watched_at=NOON + n * 30 * SECOND, waited_us=20_000_000) for n in range(20)]
    sums = summed(rows)
    of_day = sums_of_day(sums)
    (day,) = of_day.days(sums.spans, of_day.minutes(sums.spans)).to_pylist()
    assert (day["date"], day["operations"], day["pending_peak"]) == (NOON.date(), 20, 1)
    assert day["pending_mean"] == pytest.approx(40 / 60, rel=0.01)
    assert day["covered_s"] == 570


def days(*rows: tuple[datetime, str, float]) -> pa.Table:
    nothing = dict.fromkeys(DAYS.names, 0.0)
    given = [{"date": at.date(), "purgatory": "fetch", "kind": kind, "operations": n} for at, kind, n in rows]
    return pa.Table.from_pylist([nothing | row for row in given], DAYS)


def test_changes_against_the_day_before_and_new_and_gone() -> None:
    day = timedelta(days=1)
    table = days(
        (NOON, "Same", 200),
        (NOON + day, "Same", 300),
        (NOON, "Gone", 200),
        (NOON + day, "New", 200),
        (NOON, "Rare", 99),
    )
    found = [row for row in changes(table).to_pylist() if row["measure"] == "operations"]
    assert {(row["kind"], row["before"], row["now"], row["date"].day) for row in found} == {
        ("Same", 200, 300, 22),
        ("Gone", 200, 0, 22),
        ("New", 0, 200, 22),
    }
    assert {row["kind"]: row["change"] for row in found} == {"Same": pytest.approx(1 / 3), "Gone": -1, "New": 1}
    assert [row["kind"] for row in found][-1] == "Same"  # the largest first


def test_changes_of_what_is_the_same_are_none() -> None:
    found = changes(days((NOON, "Same", 200), (NOON + timedelta(days=1), "Same", 200))).to_pylist()
    assert {row["change"] for row in found} == {0}


def test_changes_no_day_before_none() -> None:
    assert len(changes(days((NOON, "Same", 200), (NOON + timedelta(days=2), "Same", 300)))) == 0
