"""Estimates recover the true parameters, intervals hold them, and a poor fit is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from aiopurgatory.pipeline.workload.arrivals import HOUR, Hour, poisson, rates
from aiopurgatory.pipeline.workload.completion import BINS, Binned, Times, _kaplan_meier, log_normal
from aiopurgatory.pipeline.workload.estimate import Array
from aiopurgatory.pipeline.workload.popularity import _harmonic, popularity


@dataclass
class Sums:
    number: int
    weight: float
    squares: float
    total: float
    total_squares: float


def binned(logs: Array, weights: Array) -> Binned:
    found: dict[int, Sums] = {}
    for number in np.unique(np.floor(logs * BINS)).astype(int).tolist():
        here = np.floor(logs * BINS) == number
        x, w = logs[here], weights[here]
        found[number] = Sums(number, w.sum(), (w**2).sum(), (w * x).sum(), (w * x**2).sum())
    return Binned.of(found.values())


def times_of(logs: Array, limits: Array, weights: Array | None = None, last_try: float = 0.0) -> Times:
    """Censor *logs* at *limits*. A share *last_try* of the completed ones is left-censored."""
    weights = np.ones(len(logs)) if weights is None else weights
    done = logs <= limits
    missed = done & (np.arange(len(logs)) < len(logs) * last_try)
    seen = done & ~missed
    return Times(
        binned(logs[seen], weights[seen]),
        binned(limits[~done], weights[~done]),
        binned(limits[missed], weights[missed]),
    )


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.63])
@pytest.mark.parametrize("limit", [0.5, 1.0, 5.0])
def test_log_normal_recovers_what_was_cut_off_at_the_timeout(sigma: float, limit: float) -> None:
    random = np.random.default_rng(5)
    logs = random.normal(log(20_000), sigma, 200_000)
    found = log_normal(times_of(logs, np.full(len(logs), log(20_000 * limit))))
    assert found is not None
    assert found.p50_ms == pytest.approx(20, rel=0.02)
    assert found.sigma == pytest.approx(sigma, rel=0.02)
    assert found.fits


def test_log_normal_mixed_timeouts_weights_last_tries_recovers() -> None:
    random = np.random.default_rng(6)
    logs = random.normal(log(300_000), 0.8, 300_000)
    limits = random.choice(np.log([100_000, 500_000, 30_000_000]), len(logs))
    keep = (logs > limits) | (random.random(len(logs)) < 0.2)  # of those that completed, a fifth is in the journal
    weights = np.where(logs > limits, 1.0, 5.0)
    found = log_normal(times_of(logs[keep], limits[keep], weights[keep], last_try=0.3))
    assert found is not None
    assert found.p50_ms == pytest.approx(300, rel=0.02)
    assert found.sigma == pytest.approx(0.8, rel=0.02)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 20), min_size=2, max_size=60), st.floats(0.1, 3))
@example([0.0, 0.0, 1.0, 1.0], 1.0)  # each lies one deviation from the mean: nothing pulls at sigma
def test_log_normal_nothing_cut_off_is_mean_and_deviation(logs: list[float], scale: float) -> None:
    found = log_normal(times_of(np.array(logs) * scale, np.full(len(logs), 1e3)))
    assert found is not None
    assert log(found.p50_ms * 1000) == pytest.approx(float(np.mean(logs)) * scale, abs=1e-3)
    assert found.sigma == pytest.approx(float(np.std(logs)) * scale, rel=1e-2, abs=2e-3)


def test_log_normal_of_two_humps_is_said_not_to_fit() -> None:
    logs = np.concatenate([np.full(5_000, log(1_000)), np.random.default_rng(1).normal(log(1e6), 0.2, 5_000)])
    found = log_normal(times_of(logs, np.full(len(logs), 100.0)))
    assert found is not None
    assert not found.fits
    assert found.largest_gap > 0.2


@pytest.mark.parametrize("last_try", [0.1, 0.5, 0.95])
def test_log_normal_with_last_tries_is_said_to_fit(last_try: float) -> None:
    random = np.random.default_rng(7)
    logs = random.normal(log(200_000), 1.0, 200_000)
    limits = random.choice(np.log([100_000, 1_000_000, 30_000_000]), len(logs))
    keep = (logs > limits) | (random.random(len(logs)) < 0.25)  # of those that completed, a quarter is in the journal
    weights = np.where(logs > limits, 1.0, 4.0)
    found = log_normal(times_of(logs[keep], limits[keep], weights[keep], last_try))
    assert found is not None
    assert found.fits
    assert found.largest_gap < 0.03
    for percent, ms in found.seen_ms.items():
        assert ms == pytest.approx(exp(float(np.quantile(logs, percent / 100))) / 1000, rel=0.1)


@pytest.mark.parametrize("last_try", [0.1, 0.5, 0.95])
def test_log_normal_of_two_humps_with_last_tries_does_not_fit(last_try: float) -> None:
    random = np.random.default_rng(8)
    logs = random.normal(np.log(random.choice([1_000, 1_000_000], 20_000)), 0.2)
    found = log_normal(times_of(logs, random.choice(np.log([100_000, 30_000_000]), len(logs)), None, last_try))
    assert found is not None
    assert not found.fits
    assert found.largest_gap > 0.15


def test_log_normal_of_nothing_completed_is_none() -> None:
    assert log_normal(times_of(np.array([5.0, 6.0]), np.array([1.0, 1.0]))) is None


def test_log_normal_all_the_same_time() -> None:
    found = log_normal(times_of(np.full(100, log(5_000)), np.full(100, 100.0)))
    assert found is not None
    assert found.p50_ms == pytest.approx(5)
    assert found.sigma < 0.01


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 640), st.integers(0, 640)), min_size=1, max_size=40))
def test_kaplan_meier_equals_the_textbook(pairs: list[tuple[int, int]]) -> None:
    logs, limits = (np.array(each) / BINS + 0.5 / BINS for each in zip(*pairs, strict=True))
    times = times_of(logs, limits)
    if not len(times.completed.bins):
        return
    survival, edges = _kaplan_meier(times)
    ends, done = np.minimum(logs, limits), logs <= limits
    share = 1.0
    for number, edge, found in zip(times.completed.bins, edges, survival, strict=True):
        here = np.floor(ends * BINS) == number
        share *= 1 - (here & done).sum() / (np.floor(ends * BINS) >= number).sum()
        assert found == pytest.approx(share)
        assert edge == (number + 1) / BINS


def test_kaplan_meier_spreads_what_was_shorter() -> None:
    exact = binned(np.array([10.5, 20.5, 30.5]) / BINS, np.ones(3))

    def survival(*shorter: tuple[int, float], longer: float = 0.0) -> list[float]:
        bounds, weights = np.array(shorter, float).reshape(-1, 2).T
        later = binned(np.array([20.5 / BINS] * bool(longer)), np.array([longer] * bool(longer)))
        times = Times(exact, later, binned(bounds / BINS, weights))
        return [round(float(each), 4) for each in _kaplan_meier(times)[0]]

    assert survival((10, 1.0)) == [0.5, 0.25, 0.0]  # it can only be one of the first
    assert survival((5, 1.0)) == [0.5, 0.25, 0.0]  # it is not known when before that
    assert survival((35, 3.0)) == [0.6667, 0.3333, 0.0]  # it may be any, so that it says nothing
    assert survival((25, 1.0)) == [0.625, 0.25, 0.0]  # half of it each: (1 + 0.5) / 4
    assert survival((25, 2.0), longer=1.0) == [0.6667, 0.3333, 0.0]  # 4 of 6 by then, half of them each; then 1 of 1


def hours_of(counts: Array, weight: float = 1.0, begin: int = 0) -> tuple[list[Hour], int, int]:
    """Begin the journal in the middle of the second before *begin*."""
    found = []
    for number in range(begin // HOUR, (begin + len(counts) - 1) // HOUR + 1):
        first = max(number * HOUR - begin, 0)
        part = counts[first : (number + 1) * HOUR - begin] * weight
        if part.sum() > 0:
            found.append(Hour(number, part.sum(), part.sum() * weight, (part**2).sum()))
    return found, begin - 1, begin + len(counts)


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_poisson_arrivals_are_taken_for_that(weight: float) -> None:
    random = np.random.default_rng(2)
    rate = np.repeat([5.0, 50.0, 0.2], HOUR)[1_800:]  # between hours the rate may change
    found = poisson(*hours_of(random.poisson(rate).astype(float), weight, begin=1_800))
    assert found.fits
    assert found.index == pytest.approx(1, abs=0.05)
    assert found.p is not None
    assert found.p > 0.001


def test_poisson_bursts_and_evenness_are_told_apart() -> None:
    random = np.random.default_rng(3)
    bursts = poisson(*hours_of(random.poisson(2.0, 3_000) * 5.0))
    assert not bursts.fits
    assert bursts.index == pytest.approx(5, rel=0.1)
    even = poisson(*hours_of(np.full(3_000, 10.0)))
    assert not even.fits
    assert even.index == 0


def test_poisson_of_one_second_is_not_known() -> None:
    assert poisson(*hours_of(np.array([7.0]))).fits is None


def test_rates_by_hour_of_the_day_count_silent_hours() -> None:
    counts = np.zeros(30 * HOUR)
    counts[:HOUR] = 2.0
    counts[24 * HOUR : 25 * HOUR] = 4.0
    found = rates(*hours_of(counts))
    assert {hour: rate.per_second for hour, rate in found.items()} == {0: 3.0, **dict.fromkeys(range(1, 24), 0.0)}
    (only,) = rates(*hours_of(np.full(60, 5.0), begin=5 * HOUR + 100)).items()
    assert (only[0], only[1].per_second) == (5, 5.0)


@pytest.mark.parametrize("zipf", [0.5, 1.0, 1.5])
def test_popularity_recovers_the_exponent(zipf: float) -> None:
    shares = np.arange(1, 3_001) ** -zipf
    drawn = np.random.default_rng(4).multinomial(300_000, shares / shares.sum())
    found = popularity(sorted(Counter(drawn[drawn > 0].astype(float).tolist()).items()))
    assert found.zipf == pytest.approx(zipf, rel=0.02)
    assert found.fits
    assert found.hottest == pytest.approx(drawn.max() / 300_000)


def test_popularity_of_equals_is_zero() -> None:
    drawn = np.random.default_rng(4).multinomial(5_000, np.full(100, 0.01))
    found = popularity(sorted(Counter(drawn.astype(float).tolist()).items()))
    assert (found.zipf, found.keys, found.per_key) == (0.0, 100, 50.0)


def test_popularity_of_one_key() -> None:
    found = popularity([(17.0, 1)])
    assert (found.keys, found.zipf, found.hottest, found.fits) == (1, 0.0, 1.0, True)


def test_popularity_of_one_giant_is_said_not_to_fit() -> None:
    found = popularity([(50_000.0, 1), (50.0, 1_000)])
    assert not found.fits


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0, 2.5])
def test_harmonic_equals_the_sum(s: float) -> None:
    assert _harmonic(50_000, s) == pytest.approx(float((np.arange(1, 50_001) ** -s).sum()), rel=1e-8)


def test_percentile_is_that_of_the_distribution() -> None:
    found = log_normal(times_of(np.random.default_rng(1).normal(3, 1, 1_000), np.full(1_000, 100.0)))
    assert found is not None
    assert found.percentile_ms(50) == pytest.approx(found.p50_ms)
    assert found.percentile_ms(84.134) == pytest.approx(found.p50_ms * exp(found.sigma), rel=1e-3)


TRUE_MU, TRUE_SIGMA = log(200_000), 1.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timeouts_ms", "kept", "last_try"),
    [
        ([80], 1.0, 0.0),  # a fifth completes: the median is extrapolated
        ([200], 1.0, 0.0),
        ([100, 30_000], 1.0, 0.3),
        ([100, 30_000], 0.2, 0.0),  # a fifth of the completed is in the journal, each for five
        ([1e9], 0.1, 0.0),
    ],
)
def test_log_normal_intervals_hold_the_truth(timeouts_ms: list[float], kept: float, last_try: float) -> None:
    random = np.random.default_rng(11)
    truth = {"p50_ms": 200.0, "sigma": TRUE_SIGMA, "p99_ms": 200 * exp(TRUE_SIGMA * float(ndtri(0.99)))}
    hits, repeats = Counter[str](), 300
    for _ in range(repeats):
        logs = random.normal(TRUE_MU, TRUE_SIGMA, 600)
        limits = random.choice(np.log(np.array(timeouts_ms) * 1000), len(logs))
        keep = (logs > limits) | (random.random(len(logs)) < kept)
        weights = np.where(logs > limits, 1.0, 1 / kept)
        found = log_normal(times_of(logs[keep], limits[keep], weights[keep], last_try))
        assert found is not None
        for name, value in truth.items():
            low, high = found.intervals[name] or (0.0, 0.0)
            hits[name] += low <= value <= high
    assert all(0.92 <= hits[name] / repeats <= 0.98 for name in truth), hits


def test_log_normal_equal_weights_count_as_effective_number() -> None:
    logs = np.random.default_rng(12).normal(TRUE_MU, TRUE_SIGMA, 1_000)
    limits = np.full(len(logs), TRUE_MU)
    plain, weighted = (log_normal(times_of(logs, limits, np.full(len(logs), each))) for each in (1.0, 7.0))
    assert plain is not None
    assert weighted is not None
    for name, interval in plain.intervals.items():
        assert weighted.intervals[name] == pytest.approx(interval, rel=1e-4)


def test_log_normal_without_enough_has_no_intervals() -> None:
    for logs in (np.array([5.0, 7.0]), np.full(100, 5.0)):
        found = log_normal(times_of(logs, np.full(len(logs), 100.0)))
        assert found is not None
        assert set(found.intervals.values()) == {None}


def test_log_normal_beyond_the_largest_time_is_extrapolated() -> None:
    logs = np.random.default_rng(13).normal(TRUE_MU, TRUE_SIGMA, 5_000)
    found = log_normal(times_of(logs, np.full(len(logs), log(300_000))))
    assert found is not None
    assert found.followed_ms == pytest.approx(300)
    assert [percent for percent in (50, 90, 99) if found.extrapolated(percent)] == [90, 99]
    whole = log_normal(times_of(logs, np.full(len(logs), 100.0)))
    assert whole is not None
    assert not whole.extrapolated(99)


@pytest.mark.slow
@pytest.mark.parametrize(("per_second", "weight"), [(0.01, 1.0), (5.0, 1.0), (5.0, 10.0)])
def test_rates_intervals_hold_the_truth(per_second: float, weight: float) -> None:
    random = np.random.default_rng(14)
    hits, repeats = 0, 500
    for _ in range(repeats):
        counts = random.poisson(per_second / weight, HOUR).astype(float)
        low, high = rates(*hours_of(counts, weight))[0].interval or (0.0, 0.0)
        hits += low <= per_second <= high
    assert 0.92 <= hits / repeats <= 0.98


def test_rates_intervals_of_bursts_are_wider() -> None:
    random = np.random.default_rng(15)
    hits, repeats = 0, 500
    for _ in range(repeats):
        hours = hours_of(random.poisson(0.2, HOUR) * 5.0)
        low, high = rates(*hours, dispersion=poisson(*hours).index or 1.0)[0].interval or (0.0, 0.0)
        hits += low <= 1.0 <= high
    assert 0.92 <= hits / repeats <= 0.98


def test_rates_of_a_silent_hour_have_an_upper_bound() -> None:
    counts = np.concatenate([np.full(HOUR, 1.0), np.zeros(HOUR)])
    found = rates(*hours_of(counts))
    assert found[1].per_second == 0.0
    assert found[1].interval == pytest.approx((0.0, 3.69 / HOUR), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "operations", "zipf", "weight", "most"),
    [
        (50, 1_000, 1.0, 1.0, 0.98),
        (1_000, 10_000, 1.5, 1.0, 0.98),  # half of the keys are not seen
        (1_000, 10_000, 1.0, 4.0, 0.98),
        (1_000, 10_000, 0.5, 1.0, 1.0),  # with many nearly equal ranks, intervals are a tenth too wide
    ],
)
def test_popularity_intervals_hold_the_truth(
    keys: int, operations: int, zipf: float, weight: float, most: float
) -> None:
    random = np.random.default_rng(16)
    shares = np.arange(1, keys + 1) ** -zipf
    hits, repeats = 0, 200
    for _ in range(repeats):
        drawn = random.multinomial(operations, shares / shares.sum()) * weight
        found = popularity(list(Counter(drawn[drawn > 0].tolist()).items()), weight)
        low, high = found.interval or (0.0, 0.0)
        hits += low <= zipf <= high
    assert 0.92 <= hits / repeats <= most


def test_popularity_counts_keys_not_seen_yet() -> None:
    shares = np.arange(1, 50_001) ** -1.0
    drawn = np.random.default_rng(17).multinomial(100_000, shares / shares.sum())
    found = popularity(list(Counter(drawn[drawn > 0].astype(float).tolist()).items()))
    assert found.keys == (drawn > 0).sum() < 25_000
    assert found.exist == pytest.approx(50_000, rel=0.05)
    assert found.zipf == pytest.approx(1.0, abs=0.01)


def test_popularity_of_equals_may_be_a_bit_uneven() -> None:
    drawn = np.random.default_rng(18).multinomial(50_000, np.full(100, 0.01))
    found = popularity(list(Counter(drawn.astype(float).tolist()).items()))
    assert found.zipf == 0.0
    assert found.interval is not None
    assert found.interval[0] == 0.0
    assert 0 < found.interval[1] < 0.05


def test_popularity_that_does_not_fit_has_no_interval() -> None:
    assert popularity([(50_000.0, 1), (50.0, 1_000)]).interval is None
