"""Estimates recover the true parameters, and a poor fit is named."""

from __future__ import annotations

from collections import Counter
from math import exp, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiopurgatory.pipeline.estimates import (
    STEEPEST,
    Array,
    Binned,
    LogNormal,
    _harmonic,
    _kaplan_meier,
    log_normal,
    popularity,
)
from aiopurgatory.pipeline.tables import ERROR, GROWTH

#: The width of a bucket of times, as a logarithm.
WIDTH = log(GROWTH)


def binned(logs: Array, weights: Array) -> Binned:
    bins, place = np.unique(np.ceil(logs / WIDTH).astype(int), return_inverse=True)
    return Binned(bins, np.bincount(place, weights, len(bins)))


def parts_of(logs: Array, limits: Array, weights: Array | None = None) -> tuple[Binned, Binned]:
    """Censor *logs* at *limits*."""
    weights = np.ones(len(logs)) if weights is None else weights
    done = logs <= limits
    return binned(logs[done], weights[done]), binned(limits[~done], weights[~done])


def estimated(logs: Array, limits: Array, weights: Array | None = None) -> LogNormal:
    found = log_normal(*parts_of(logs, limits, weights))
    assert found is not None
    return found


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.63])
@pytest.mark.parametrize("limit", [0.5, 1.0, 5.0])
def test_log_normal_recovers_what_was_cut_off_at_the_timeout(sigma: float, limit: float) -> None:
    random = np.random.default_rng(5)
    logs = random.normal(log(20_000), sigma, 200_000)
    found = estimated(logs, np.full(len(logs), log(20_000 * limit)))
    # Where only one in a hundred completes, it counts that limits are known to half a bucket.
    near = 0.1 if (sigma, limit) == (0.3, 0.5) else 0.02
    assert found.p50_ms == pytest.approx(20, rel=near)
    assert found.sigma == pytest.approx(sigma, rel=near)
    assert found.fits


def test_log_normal_of_mixed_timeouts_and_weights_recovers() -> None:
    random = np.random.default_rng(6)
    logs = random.normal(log(300_000), 0.8, 300_000)
    limits = random.choice(np.log([100_000, 500_000, 30_000_000]), len(logs))
    keep = (logs > limits) | (random.random(len(logs)) < 0.2)  # of those that completed, a fifth is in the journal
    weights = np.where(logs > limits, 1.0, 5.0)
    found = estimated(logs[keep], limits[keep], weights[keep])
    assert found.p50_ms == pytest.approx(300, rel=0.02)
    assert found.sigma == pytest.approx(0.8, rel=0.02)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 20), min_size=2, max_size=60), st.floats(0.1, 3))
@example([0.0, 0.0, 1.0, 1.0], 1.0)  # each lies one deviation from the mean: nothing pulls at sigma
def test_log_normal_nothing_cut_off_is_mean_and_deviation(logs: list[float], scale: float) -> None:
    middles = (np.ceil(np.array(logs) * scale / WIDTH) - 0.5) * WIDTH
    found = estimated(middles, np.full(len(logs), 1e3))
    assert log(found.p50_ms * 1000) == pytest.approx(middles.mean(), abs=1e-3)
    assert found.sigma == pytest.approx(middles.std(), rel=1e-2, abs=WIDTH)


def test_log_normal_of_two_humps_is_said_not_to_fit() -> None:
    logs = np.concatenate([np.full(5_000, log(1_000)), np.random.default_rng(1).normal(log(1e6), 0.2, 5_000)])
    found = estimated(logs, np.full(len(logs), 100.0))
    assert not found.fits
    assert abs(found.gap_seen - found.gap_model) > 0.2


def test_log_normal_of_nothing_completed_is_none() -> None:
    assert log_normal(*parts_of(np.array([5.0, 6.0]), np.array([1.0, 1.0]))) is None


def test_log_normal_all_the_same_time() -> None:
    found = estimated(np.full(100, log(5_000)), np.full(100, 100.0))
    assert found.p50_ms == pytest.approx(5, rel=ERROR)
    assert found.sigma < 0.01


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 640), st.integers(0, 640)), min_size=1, max_size=40))
def test_kaplan_meier_equals_the_textbook(pairs: list[tuple[int, int]]) -> None:
    logs, limits = ((np.array(each) - 0.5) * WIDTH for each in zip(*pairs, strict=True))
    completed, longer = parts_of(logs, limits)
    if not len(completed.bins):
        return
    ends, done = np.minimum(logs, limits), logs <= limits
    share = 1.0
    for number, found in zip(completed.bins, _kaplan_meier(completed, longer), strict=True):
        here = np.ceil(ends / WIDTH) == number
        share *= 1 - (here & done).sum() / (np.ceil(ends / WIDTH) >= number).sum()
        assert found == pytest.approx(share)


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
    assert (found.zipf, found.keys) == (0.0, 100)


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
    found = estimated(np.random.default_rng(1).normal(3, 1, 1_000), np.full(1_000, 100.0))
    assert found.percentile_ms(50) == pytest.approx(found.p50_ms)
    assert found.percentile_ms(84.134) == pytest.approx(found.p50_ms * exp(found.sigma), rel=1e-3)


TRUE_MU, TRUE_SIGMA = log(200_000), 1.2


def test_log_normal_beyond_the_largest_time_is_extrapolated() -> None:
    logs = np.random.default_rng(13).normal(TRUE_MU, TRUE_SIGMA, 5_000)
    found = estimated(logs, np.full(len(logs), log(300_000)))
    assert found.followed_ms == pytest.approx(300, rel=ERROR)
    assert [percent for percent in (50, 90, 99) if found.extrapolated(percent)] == [90, 99]
    whole = estimated(logs, np.full(len(logs), 100.0))
    assert not whole.extrapolated(99)


@pytest.mark.parametrize("counts", [[(1.0, 3)], [(3.0, 1)], [(1.0, 1), (2.0, 1)], [(1.0, 1), (1e6, 1)]])
def test_popularity_of_a_rare_kind_is_estimated(counts: list[tuple[float, int]]) -> None:
    found = popularity(counts)
    assert 0 <= found.zipf <= STEEPEST
    assert found.keys == sum(keys for _, keys in counts)
