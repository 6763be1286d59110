"""The alert is printed when the share of expirations leaves its band, and when it is back for certain."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.minutes.alert import Band, ExpiryAlert

from .journals import NOON

MINUTE = timedelta(minutes=1)
WATERMARK = 10 * MINUTE


def lines_of(alert: ExpiryAlert, *shares: tuple[int, float]) -> list[str]:
    """Return the lines of a batch, shortened. In each minute after noon, a share of 100 operations expired."""
    lines = [alert.lines("fetch", NOON + minute * MINUTE, 100, 100 * share) for minute, share in shares]
    return [re.sub(r"^(ALERT|normal again).* (\d+:\d+)\b.*", r"\1 \2", line) for each in lines for line in each]


def test_alert_speaks_only_when_the_band_is_left_or_entered() -> None:
    alert = ExpiryAlert(Band(0.1, 0.5, fewest=10), WATERMARK)
    shares = [0.3, 0.6, 0.9, 0.5, 0.1, 0.0, 0.2]
    lines = [alert.lines("fetch", NOON + n * MINUTE, 100, 100 * share) for n, share in enumerate(shares)]
    assert [len(each) for each in lines] == [0, 1, 0, 0, 1, 1, 1]
    assert lines[1][0].startswith("ALERT fetch: 60.0%")
    assert lines[4][0].startswith("normal again: fetch: 10.0%")
    assert alert.lines("fetch", NOON + 6 * MINUTE, 9, 9) == []  # too few to say anything
    assert len(alert.lines("produce", NOON, 10, 10)) == 1


def test_alert_minute_completed_late_is_looked_at_again() -> None:
    alert = ExpiryAlert(Band(fewest=10), WATERMARK)
    assert alert.lines("fetch", NOON, 9, 9) == []  # most of it is still to come
    assert lines_of(alert, (1, 0.2)) == []
    assert lines_of(alert, (0, 0.9), (1, 0.2)) == ["ALERT 12:00", "normal again 12:01"]
    assert lines_of(alert, (0, 0.8), (1, 0.3)) == []
    assert lines_of(alert, (0, 0.4), (1, 0.9)) == ["ALERT 12:01"]
    assert lines_of(alert, (0, 0.9), (1, 0.9)) == []


def test_alert_while_it_lasts_no_minute_is_said_twice() -> None:
    alert = ExpiryAlert(Band(), WATERMARK)
    assert lines_of(alert, (0, 0.1), (1, 0.9), (2, 0.9)) == ["ALERT 12:01"]
    assert lines_of(alert, (0, 0.9), (1, 0.1), (2, 0.9)) == []  # older ones neither add to it nor end it
    assert lines_of(alert, (3, 0.1)) == ["normal again 12:03"]
    assert lines_of(alert, (0, 0.9), (1, 0.9), (2, 0.9), (3, 0.1)) == []


def test_alert_newest_minute_to_and_fro_last_line_is_true() -> None:
    alert = ExpiryAlert(Band(), WATERMARK)
    assert lines_of(alert, (0, 0.9), (0, 0.1), (0, 0.9)) == [
        "ALERT 12:00",
        "normal again 12:00",
        "ALERT 12:00",
    ]


def test_alert_minute_older_than_late_says_nothing() -> None:
    alert = ExpiryAlert(Band(), WATERMARK)
    assert lines_of(alert, (11, 0.1), (0, 0.9), (1, 0.9)) == ["ALERT 12:01"]


def test_alert_after_restart_ends_where_it_was() -> None:
    hour = [(0, 0.9), (1, 0.1), (2, 0.9), (3, 0.9)]
    lines = ["ALERT 12:00", "normal again 12:01", "ALERT 12:02"]
    alert = ExpiryAlert(Band(), WATERMARK)
    assert lines_of(alert, *hour) == lines
    again = ExpiryAlert(Band(), WATERMARK)
    assert lines_of(again, *hour) == lines
    assert lines_of(again, *hour, (4, 0.1)) == ["normal again 12:04"]


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.4), (-0.1, 0.5), (0.0, 1.1), (float("nan"), 1.0)])
def test_band_bad_shares_refused(low: float, high: float) -> None:
    with pytest.raises(PurgatoryError, match=r"expired_share must be two shares from 0 to 1, the lower first, got"):
        Band(low, high)


@pytest.mark.parametrize(("low", "high", "edge"), [(0.0, 0.5, 0.5), (0.2, 1.0, 0.2), (0.1, 0.5, 0.1)])
def test_alert_share_hovers_at_an_edge_said_once(low: float, high: float, edge: float) -> None:
    alert = ExpiryAlert(Band(low, high), WATERMARK)
    hovering = [(n, edge + (0.02 if n % 2 else -0.02)) for n in range(60)]
    lines = lines_of(alert, *hovering, (60, 0.3), (61, 0.3))
    assert [line.split(" ")[0] for line in lines] == ["ALERT", "normal"]
    assert lines[1] == "normal again 13:00"


def test_alert_growing_minute_hovers_said_once() -> None:
    alert = ExpiryAlert(Band(0.0, 0.5), WATERMARK)
    assert lines_of(alert, *((0, 0.5 + (0.01 if n % 2 else -0.01)) for n in range(20))) == ["ALERT 12:00"]


def test_alert_margin_none_ends_at_the_edge() -> None:
    alert = ExpiryAlert(Band(0.0, 0.5, margin=0.0), WATERMARK)
    assert lines_of(alert, (0, 0.51), (1, 0.5), (2, 0.51)) == ["ALERT 12:00", "normal again 12:01", "ALERT 12:02"]


def test_alert_share_jumps_over_the_band_lasts() -> None:
    alert = ExpiryAlert(Band(0.2, 0.6), WATERMARK)
    assert lines_of(alert, (0, 0.9), (1, 0.1), (2, 0.22)) == ["ALERT 12:00"]  # it hovers at the other edge now
    assert lines_of(alert, (3, 0.58)) == ["normal again 12:03"]


def test_alert_fewest_counts_a_minute_by_itself() -> None:
    alert = ExpiryAlert(Band(fewest=50), WATERMARK)
    assert alert.lines("fetch", NOON, 49, 49) == []
    assert len(alert.lines("fetch", NOON, 50, 50)) == 1
    assert alert.lines("fetch", NOON + MINUTE, 49, 0) == []  # nor does it end the alert
    assert len(alert.lines("fetch", NOON + MINUTE, 50, 0)) == 1


@pytest.mark.parametrize("settings", [{"fewest": 0}, {"margin": -0.1}, {"margin": 1.1}])
def test_band_bad_settings_refused(settings: dict[str, float]) -> None:
    with pytest.raises(PurgatoryError, match=f"{next(iter(settings))} must be"):
        Band(**settings)  # type: ignore[arg-type]
