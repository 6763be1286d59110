"""Traces follow their model, and the same seed gives the same trace."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aiopurgatory.cli import main
from aiopurgatory.pipeline.generate import chosen, generate_table
from aiopurgatory.pipeline.workload.model import (
    FEW,
    MANY,
    ModelError,
    Workload,
    enough,
    expired_share,
    near,
    of_seed,
    read_model,
    write_model,
)
from aiopurgatory.pipeline.workload.trace import NO_TIMEOUT_US, TraceError, read_trace

MIXED = replace(
    FEW,
    purgatory="fetch",
    kind="mixed",
    arrivals_per_second=(10.0,) * 8 + (0.0,) * 8 + (30.0,) * 8,
    timeouts_ms=((200.0, 0.25), (None, 0.75)),
    key_counts=((1, 0.5), (4, 0.5)),
    key_space=1_000,
    zipf=1.0,
    at_once=0.2,
    first_hour=7,
)
NEVER = replace(MIXED, kind="never", p50_ms=None, at_once=0.0, zipf=0.0, first_hour=0, arrivals_per_second=(5.0,) * 24)


@pytest.mark.parametrize(("workload", "p50_ms", "share"), [(FEW, 20, 0.078), (MANY, 200, 0.5)], ids=["few", "many"])
def test_generate_has_the_percentiles_asked_for(workload: Workload, p50_ms: float, share: float) -> None:
    table = generate_table([workload], 100_000, rate=50_000)
    completion = table["completion_us"].to_numpy() / 1000
    p75_ms = exp(log(p50_ms) + workload.sigma * NormalDist().inv_cdf(0.75))
    assert np.percentile(completion, 50) == pytest.approx(p50_ms, rel=0.03)
    assert np.percentile(completion, 75) == pytest.approx(p75_ms, rel=0.03)
    assert (completion >= 200).mean() == pytest.approx(share, abs=0.015)
    gaps = np.diff(table["arrival_us"].to_numpy())
    assert gaps.mean() == pytest.approx(20, rel=0.02)
    assert gaps.std() == pytest.approx(20, rel=0.05)  # exponential: as large as the mean


def test_generate_counts_vary_as_of_a_poisson_process() -> None:
    arrivals = generate_table([FEW], 1_000_000, rate=1e6)["arrival_us"].to_numpy()
    counts = np.bincount(arrivals // 10_000)[:-1]  # some 100 windows of 10,000 each
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.5)


def test_expired_share_is_that_of_a_generated_trace() -> None:
    for workload in (
        FEW,
        MANY,
        MIXED,
        NEVER,
        replace(MANY, sigma=0.0),
        replace(FEW, timeouts_ms=((0.0, 0.5), (50.0, 0.5))),
    ):
        table = generate_table([workload], 100_000)
        timeouts = table["timeout_us"].to_numpy()
        completion = table["completion_us"].fill_null(NO_TIMEOUT_US).to_numpy()
        expired = (timeouts < NO_TIMEOUT_US) & (completion >= timeouts)
        assert expired_share(workload) == pytest.approx(expired.mean(), abs=0.006), workload


def test_generate_keys_are_distinct_and_in_range() -> None:
    table = generate_table([of_seed("x", 20, 60, keys_each=5, key_space=10)], 5_000)
    keys = np.array(table["keys"].to_pylist())
    assert keys.shape == (5_000, 5)
    assert set(keys.ravel()) == set(range(10))
    assert all(len(set(row)) == 5 for row in keys)


def test_generate_more_keys_each_than_there_are_takes_others() -> None:
    for row in generate_table([of_seed("x", 20, 60, keys_each=3, key_space=1)], 100)["keys"].to_pylist():
        assert row[0] == 0
        assert len(set(row)) == 3


def test_generate_mixture_follows_hours_shares_and_popularity() -> None:
    table = generate_table([MIXED, NEVER], 210_000)
    hours = table["arrival_us"].to_numpy() // 3_600_000_000
    per_hour = np.bincount(hours, minlength=9)[:9] / 3600  # from 7 to 16 o'clock
    assert per_hour[0] == pytest.approx(15, rel=0.03)
    assert per_hour[1:8] == pytest.approx([5] * 7, rel=0.05)  # nobody but NEVER, from 8 to 16
    completion = table["completion_us"]
    assert completion.filter(pa.array((hours >= 1) & (hours <= 8))).null_count == ((hours >= 1) & (hours <= 8)).sum()
    first = completion.filter(pa.array(hours == 0))
    assert first.null_count / len(first) == pytest.approx(1 / 3, abs=0.015)
    of_mixed = first.drop_null().to_numpy()
    assert (of_mixed == 0).mean() == pytest.approx(0.2, abs=0.015)
    assert (table["timeout_us"].to_numpy() == NO_TIMEOUT_US).mean() == pytest.approx(0.75, abs=0.015)
    counts = np.array([len(keys) for keys in table["keys"].to_pylist()])
    assert (counts == 1).mean() == pytest.approx(0.5, abs=0.015)
    mixed_keys = table.filter(completion.is_valid())["keys"]
    firsts = np.array([keys[0] for keys in mixed_keys.to_pylist()])
    assert (firsts == 0).mean() / (firsts == 9).mean() == pytest.approx(10, rel=0.15)


def test_generate_same_seed_same_trace() -> None:
    assert generate_table([MANY], 1_000, seed=7).equals(generate_table([MANY], 1_000, seed=7))
    assert not generate_table([MANY], 1_000, seed=7).equals(generate_table([MANY], 1_000, seed=8))


def test_generate_latencies_do_not_depend_on_the_rate() -> None:
    slow, quick = (generate_table([MANY], 1_000, rate=rate) for rate in (1e3, 1e5))
    assert slow["completion_us"].equals(quick["completion_us"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "count must be from 1 to 22,988,505, as requests have up to 3 keys, got 0"),
        ({"rate": -1.0}, "rate must be > 0"),
        ({"rate": 0.0}, "rate must be > 0"),
        ({"count": 500_000_000}, "count must be from 1 to"),
        ({"count": 1_000_000, "workloads": (replace(FEW, key_counts=((1, 0.9), (5_000, 0.1))),)}, "up to 5,000 keys"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_generate_argument_out_of_range_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        generate_table(**{"workloads": (FEW,), "count": 1, "seed": 1, **change})


def test_command_generate_is_the_trace_of_one_purgatory(tmp_path: Path) -> None:
    write_model([MIXED, NEVER, FEW], tmp_path / "model.json")
    workloads = chosen(read_model(tmp_path / "model.json"), "fetch")
    assert workloads == [MIXED, NEVER]
    for count in (3_000, 2_000):  # the second replaces the first
        options = ["--model", str(tmp_path / "model.json"), "--purgatory", "fetch", "--rows", str(count), "--seed", "3"]
        assert main(["pipeline", "generate", *options, str(tmp_path)]) == 0
        assert read_trace(str(tmp_path / "trace")).equals(generate_table(workloads, count, seed=3))
    assert len(list((tmp_path / "trace").iterdir())) == 1


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 20_000),  # 60 ms at most: a few hundred are enough
        ({"p50_ms": 5_000.0, "timeouts_ms": ((1_000.0, 0.5), (10_000.0, 0.5))}, 80_000),  # four times 10 s at 2,000/s
        ({"p50_ms": 2_000.0, "sigma": 0.5, "timeouts_ms": ((None, 1.0),)}, 75_383),  # four times the time of 99.9 %
        ({"p50_ms": None, "timeouts_ms": ((None, 1.0),)}, 100_000),
    ],
)
def test_enough_is_four_times_the_longest_wait(changes: dict[str, Any], rows: int) -> None:
    assert enough([replace(FEW, arrivals_per_second=(2_000.0,) * 24, **changes)]) == rows


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"p50_ms": 20.5, "evidence": {"operations": 7}, "findings": ("other words",)}, True),
        ({"p50_ms": 22.0}, False),
        ({"p50_ms": None}, False),
        ({"arrivals_per_second": (10.0,) * 23 + (12.0,)}, False),
        ({"timeouts_ms": ((200.0, 0.252), (None, 0.748))}, True),
        ({"timeouts_ms": ((300.0, 0.25), (None, 0.75))}, False),
        ({"key_counts": ((1, 1.0),)}, False),
        ({"key_space": 1_040}, True),
        ({"zipf": 1.1}, False),
        ({"first_hour": 8}, False),
    ],
)
def test_near_is_any_number_a_twentieth_off(changes: dict[str, Any], expected: bool) -> None:
    model = replace(MIXED, arrivals_per_second=(10.0,) * 24)
    assert near([model, NEVER], [replace(model, **changes), NEVER]) is expected
    assert not near([model], [model, NEVER])


def test_chosen_of_unknown_purgatory_is_refused() -> None:
    with pytest.raises(ModelError, match=r"must be one that the model knows \(seed\), got 'fetch'"):
        chosen([FEW, MANY], "fetch")


def test_generate_without_a_source_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", "generate", "out"])
    assert "one of the arguments --model --workload is required" in capsys.readouterr().err
