"""Promises: the verdict, and its first minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.page.page import records
from aiopurgatory.pipeline.page.promises import Limits, verdicts

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
#: Minutes: the operations that expired, missed triggers, the lateness in us, and all operations.
KEPT, BROKEN = (10.0, 0.0, 1e3, 1000.0), (900.0, 7.0, 5e5, 1000.0)
FEW, FEW_KEPT, SILENT = (900.0, 7.0, 5e5, 99.0), (10.0, 0.0, 1e3, 99.0), (0.0, 0.0, None, 1000.0)
#: By purgatory, its minutes from noon on.
MINUTES: dict[str, list[tuple[Any, ...]]] = {
    "again": [BROKEN, KEPT, BROKEN, BROKEN],
    "mended": [KEPT, BROKEN, KEPT, KEPT],
    "kept": [KEPT, KEPT],
    "broken": [BROKEN, BROKEN],
    "few break": [KEPT, FEW],
    "few mend": [BROKEN, FEW_KEPT],
    "few": [FEW],
    "nothing expired": [BROKEN, SILENT],
    "at its limit": [(500.0, 0.0, 0.0, 1000.0)],
    "above": [(501.0, 0.0, 0.0, 1000.0)],
}
WORK = "minute TIMESTAMP, dropped_rows BIGINT, collector_us BIGINT"
Rows = list[tuple[Any, ...]]
Stand = dict[tuple[str | None, str], Any]


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def found(
    spark: SparkSession,
    minutes: dict[str, list[tuple[Any, ...]]],
    limits: Limits | None = None,
    work: Rows | None = None,
) -> Stand:
    schema = (
        "purgatory STRING, minute TIMESTAMP, expired DOUBLE, missed_triggers DOUBLE, lateness_p99_us DOUBLE, "
        "operations DOUBLE"
    )
    rows = [(name, at(number), *each) for name, own in minutes.items() for number, each in enumerate(own)]
    known, limits = spark.createDataFrame(rows, schema), limits or Limits()
    table = verdicts(known, spark.createDataFrame(work or [], WORK), limits).toArrow()
    return {(each.purgatory, each.name): each for each in records(table)}


@pytest.fixture(scope="module")
def stand(spark: SparkSession) -> Stand:
    return found(spark, MINUTES, Limits(max_expired_share=0.5))


@pytest.mark.parametrize("name", ["share expired", "late p99", "missed triggers"])
def test_promises_verdicts_have_their_first_minute(stand: Stand, name: str) -> None:
    again, mended = stand["again", name], stand["mended", name]
    assert (again.verdict, again.since, again.at, again.judged, again.broken) == ("broken", at(2), at(3), 4, 3)
    assert (mended.verdict, mended.since, mended.broken) == ("kept", at(2), 1)
    for always in ("kept", "broken"):
        assert (stand[always, name].verdict, stand[always, name].since) == (always, None)


def test_promises_minute_of_few_neither_breaks_nor_mends(stand: Stand) -> None:
    assert stand["few break", "late p99"].verdict == "kept"
    mended = stand["few mend", "late p99"]
    assert (mended.verdict, mended.at) == ("broken", at(0))
    assert stand["few", "late p99"].verdict == "unknown"


def test_promises_nothing_expired_nothing_late(stand: Stand) -> None:
    late = stand["nothing expired", "late p99"]
    assert (late.verdict, late.since, late.now, late.worst) == ("kept", at(1), None, 500.0)


def test_promises_minute_in_which_nothing_ended_is_not_judged(spark: SparkSession) -> None:
    stand = found(
        spark, {"quiet": [KEPT, (0.0, 0.0, None, 0.0)], "only waits": [(0.0, 0.0, None, 0.0)]}, Limits(fewest=0)
    )
    assert (stand["quiet", "share expired"].verdict, stand["quiet", "share expired"].judged) == ("kept", 1)
    assert stand["only waits", "share expired"].verdict == "unknown"


def test_promises_value_at_its_limit_is_kept(spark: SparkSession) -> None:
    stand = found(spark, MINUTES, Limits(max_expired_share=0.5))
    assert stand["at its limit", "share expired"].verdict == "kept"
    assert stand["above", "share expired"].verdict == "broken"


def test_promises_share_expired_is_limited_by_the_usual_one(spark: SparkSession) -> None:
    usual = [(100.0, 0.0, 0.0, 1000.0)] * 3  # with the last minute: 175 of 1000
    stand = found(spark, {"more": [*usual, (400.0, 0.0, 0.0, 1000.0)], "always": [(990.0, 0.0, 0.0, 1000.0)] * 2})
    more, always = stand["more", "more expired than usual"], stand["always", "more expired than usual"]
    assert (stand["more", "share expired"].limit, stand["always", "share expired"].verdict) == (0.5, "broken")
    assert (more.verdict, more.now, more.broken) == ("broken", 0.4, 1)
    assert more.limit == pytest.approx(1.5 * 0.175 + 0.01)
    assert (always.verdict, always.limit) == ("kept", 1.0)
    assert stand["more", "late p99"].limit == 100.0


def test_promises_few_that_expire_by_chance_are_usual(spark: SparkSession) -> None:
    usual = [(60.0, 0.0, 0.0, 1200.0)] * 5
    stand = found(spark, {"chance": [*usual, (13.0, 0.0, 0.0, 130.0)], "news late": [*usual, (26.0, 0.0, 0.0, 130.0)]})
    assert stand["chance", "more expired than usual"].verdict == "kept"
    assert stand["news late", "more expired than usual"].verdict == "broken"


def test_promises_usual_share_is_not_changed_by_a_stop(spark: SparkSession) -> None:
    stop = (0.0, 0.0, 0.0, 7_200.0)
    stand = found(spark, {"p": [*[(60.0, 0.0, 0.0, 1200.0)] * 3, (75.0, 0.0, 0.0, 1200.0), stop]})
    assert stand["p", "more expired than usual"].broken == 0


def test_promises_dropped_rows_are_of_the_fleet(spark: SparkSession) -> None:
    work = [(at(1), 3, 5), (at(1), 4, 6), (at(2), 0, 7)]
    fleet = found(spark, {"p": [KEPT, KEPT, KEPT]}, work=work)[None, "dropped rows"]
    assert (fleet.purgatory, fleet.verdict, fleet.since, fleet.worst) == (None, "kept", at(2), 7.0)
    assert (fleet.worst_at, fleet.collector_us) == (at(1), 11)
    silent = found(spark, {"p": [KEPT]}, work=[(at(5), 3, 0)])[None, "dropped rows"]
    assert (silent.verdict, silent.since) == ("broken", at(5))


def test_promises_kinds_of_a_purgatory_count_together(spark: SparkSession) -> None:
    both = [("p", at(0), 60.0, 0.0, 0.0, 60.0), ("p", at(0), 12.0, 0.0, 0.0, 60.0)]
    schema = "purgatory STRING, minute TIMESTAMP, expired DOUBLE, missed_triggers DOUBLE, lateness_p99_us DOUBLE, "
    rows = spark.createDataFrame(both, schema + "operations DOUBLE")
    table = verdicts(rows, spark.createDataFrame([], WORK), Limits()).where("name = 'share expired'").toArrow()
    assert table["now"].to_pylist() == [pytest.approx(0.6)]


@pytest.mark.parametrize(
    "name", ["max_expired_share", "max_lateness_ms", "max_missed_share", "max_dropped_rows", "fewest"]
)
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_limits_that_no_minute_can_break_or_keep_are_refused(name: str, value: float) -> None:
    assert getattr(Limits(**{name: 0.0}), name) == 0
    with pytest.raises(PurgatoryError, match=f"{name} must be (>= 0|from 0 to 1), got {value:g}"):
        Limits(**{name: value})
