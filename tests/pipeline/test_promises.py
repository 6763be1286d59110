"""Promises: the verdict, and its first minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.page.promises import Limits, Promise, headline, promises
from aiopurgatory.pipeline.page.reading import SCHEMAS, minutes_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEPT, BROKEN = {"expired": 10.0}, {"expired": 900.0, "lateness_p99_us": 5e5, "missed_triggers": 7.0}


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMAS[name])


def stand(*minutes: dict[str, Any], lost: list[dict[str, Any]] | None = None, limits: Limits | None = None) -> Any:
    """Return the promises by name, of a purgatory with *minutes* from noon on."""
    usual = {"purgatory": "fetch", "kind": "Wait", "covered_s": 60.0, "operations": 1000.0, "missed_triggers": 0.0}
    rows = [usual | {"minute": at(number)} | minute for number, minute in enumerate(minutes)]
    with TemporaryDirectory() as folder:
        Path(folder, "minutes").mkdir()
        pq.write_table(table("minutes", rows), f"{folder}/minutes/rows.parquet")
        found = promises(minutes_of(folder), table("lost", lost or []), limits or Limits())
    return {each.name: each for each in found}


@pytest.mark.parametrize("name", ["share expired", "late p99", "missed triggers"])
def test_promises_broken_since_its_present_run_began(name: str) -> None:
    found = stand(BROKEN, KEPT, BROKEN, BROKEN)[name]
    assert (found.verdict, found.since, found.at) == ("broken", at(2), at(3))
    assert (found.judged, found.broken) == (4, 3)


@pytest.mark.parametrize("name", ["share expired", "late p99", "missed triggers"])
def test_promises_kept_again_since_it_was_mended(name: str) -> None:
    found = stand(KEPT, BROKEN, KEPT, KEPT)[name]
    assert (found.verdict, found.since, found.broken) == ("kept", at(2), 1)


@pytest.mark.parametrize(("minute", "verdict"), [(KEPT, "kept"), (BROKEN, "broken")])
def test_promises_never_otherwise_in_the_whole_range(minute: dict[str, Any], verdict: str) -> None:
    found = stand(minute, minute)["share expired"]
    assert (found.verdict, found.since) == (verdict, None)


def test_promises_minute_of_few_neither_breaks_nor_mends() -> None:
    few = {"operations": 99.0}
    assert stand(KEPT, BROKEN | few)["late p99"].verdict == "kept"
    mended = stand(BROKEN, KEPT | few)["late p99"]
    assert (mended.verdict, mended.at) == ("broken", at(0))
    assert stand(BROKEN | few)["late p99"].verdict == "unknown"
    assert stand(BROKEN | few, limits=Limits(fewest=99))["late p99"].verdict == "broken"


def test_promises_kinds_of_a_purgatory_count_together() -> None:
    half = {"operations": 60.0, "minute": at(0)}
    found = stand(half | {"expired": 60.0, "kind": "A"}, half | {"expired": 12.0, "kind": "B"})["share expired"]
    assert (found.verdict, found.now) == ("broken", pytest.approx(0.6))


def test_promises_nothing_expired_nothing_late() -> None:
    found = stand(BROKEN, {"expired": 0.0})["late p99"]
    assert (found.verdict, found.since) == ("kept", at(1))
    assert found.now != found.now  # NaN: there is no value
    assert found.worst == 500


def test_promises_value_at_its_limit_is_kept() -> None:
    assert stand({"expired": 500.0})["share expired"].verdict == "kept"
    assert stand({"expired": 501.0})["share expired"].verdict == "broken"


def test_limits_of_the_model_and_given_ones() -> None:
    of_model = Limits(expected_shares={"fetch": 0.2})
    found = stand({"expired": 320.0}, limits=of_model)["share expired"]
    assert (found.verdict, found.limit, found.source) == ("broken", pytest.approx(0.31), "model: 20.0% expected")
    assert stand(KEPT, limits=Limits(expected_shares={"fetch": 1.0}))["share expired"].limit == 1
    given = Limits(max_expired_share=0.9, expected_shares={"fetch": 0.2})
    assert stand(KEPT, limits=given)["share expired"].source == "given"
    assert stand(KEPT, limits=Limits(expected_shares={"other": 0.2}))["share expired"].source == "default"


@pytest.mark.parametrize(
    "name", ["max_expired_share", "max_lateness_ms", "max_missed_share", "max_dropped_rows", "fewest"]
)
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_limits_that_no_minute_can_break_or_keep_are_refused(name: str, value: float) -> None:
    assert getattr(Limits(**{name: 0.0}), name) == 0  # type: ignore[arg-type]
    with pytest.raises(PurgatoryError, match=f"{name} must be >= 0, got {value:g}"):
        Limits(**{name: value})  # type: ignore[arg-type]


def lost(minute: int, rows: int, what: str = "dropped") -> dict[str, Any]:
    return {"date": NOON.date(), "minute": at(minute), "what": what, "rows": float(rows)}


def test_promises_dropped_rows_are_of_the_fleet() -> None:
    found = stand(KEPT, KEPT, KEPT, lost=[lost(1, 3), lost(1, 4), lost(2, 99, "unknown outcome")])["dropped rows"]
    assert (found.purgatory, found.verdict, found.since, found.worst) == (None, "kept", at(2), 7)
    assert stand(KEPT, KEPT, lost=[lost(1, 3)])["dropped rows"].since == at(1)
    assert stand(KEPT, lost=[lost(0, 3)], limits=Limits(max_dropped_rows=3))["dropped rows"].verdict == "kept"


def test_promises_dropped_in_a_silent_minute_still_count() -> None:
    found = stand(KEPT, lost=[lost(5, 3)])["dropped rows"]
    assert (found.verdict, found.since) == ("broken", at(5))


def test_headline_counts_what_is_broken_and_unknown() -> None:
    def of(*verdicts: Any) -> str:
        return headline([Promise("p", "late p99", verdict, 1.0, "default") for verdict in verdicts])

    assert of("kept", "kept") == "All promises kept"
    assert of("kept", "broken", "broken") == "2 of 3 promises broken"
    assert of("kept", "unknown") == "No promise broken; too few operations to judge 1 of 2"
    assert of("unknown") == "Too few operations to judge any promise"
