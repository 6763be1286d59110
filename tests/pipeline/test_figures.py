"""Times are printed as people read them."""

from __future__ import annotations

import pytest

from aiopurgatory.pipeline.page.figures import duration


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0, "0 s"),
        (0.25, "0.25 µs"),
        (7, "7 µs"),
        (250_000, "250 ms"),
        (999_949, "1 s"),
        (13_000_000, "13 s"),
        (13_490_000, "13.5 s"),
        (59_990_000, "1 min"),
        (90e6, "1.5 min"),
        (5_400e6, "1.5 h"),
        (86_400e6 * 1234.5, "1,230 d"),
    ],
)
def test_duration_has_three_digits_and_a_unit(microseconds: float, shown: str) -> None:
    assert duration(microseconds) == shown
