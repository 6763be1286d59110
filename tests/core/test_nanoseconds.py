"""Seconds as nanoseconds: exact for decimals of nine digits, and rounded to the safe side for any other float (I1)."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from aiopurgatory.core.nanoseconds import NS, RANGE, ceil_ns, floor_ns, ns_to_seconds

DAYS_97 = 2**23


@given(st.integers(0, DAYS_97 * NS))
def test_decimal_of_nine_digits_is_that_nanosecond(ns: int) -> None:
    assert (floor_ns(ns / NS), ceil_ns(ns / NS)) == (ns, ns)


@given(st.floats(0, 4e9) | st.floats(0, 1e-6) | st.floats(DAYS_97 - 1, DAYS_97 + 1))
@example(0.034999999999999996)  # the product is too high
def test_any_float_lies_between_floor_and_ceil(seconds: float) -> None:
    low, high = floor_ns(seconds), ceil_ns(seconds)
    assert 0 <= high - low <= 1
    if low == high:  # the decimal that it is nearest to, or itself
        assert low / NS == seconds
    else:
        assert low < Fraction(seconds) * NS < high


@given(st.integers(0, int(RANGE) * NS))
def test_ns_to_seconds_is_a_time_at_which_it_is_reached(ns: int) -> None:
    assert floor_ns(ns_to_seconds(ns)) >= ns
