"""A model is checked when it is made and read."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

from aiopurgatory.pipeline.model import FEW, MANY, ModelError, enough, read_model, to_json


def test_read_model_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(to_json([FEW, replace(MANY, timeouts_ms=((5.0, 0.5), (None, 0.5)))]), encoding="utf-8")
    assert read_model(path) == [FEW, replace(MANY, timeouts_ms=((5.0, 0.5), (None, 0.5)))]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1, "workloads": []}', '{"version": 2, "workloads": [{"kind": "x"}]}'],
)
def test_read_model_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"model\.json is not a model"):
        read_model(path)


@pytest.mark.parametrize(
    "change",
    [
        {"arrivals_per_second": (1.0,)},
        {"arrivals_per_second": (0.0,) * 24},
        {"arrivals_per_second": (nan,) * 24},
        {"arrivals_per_second": (None,) * 24},
        {"completion_ms": ()},
        {"completion_ms": None},
        {"completion_ms": (-1.0,)},
        {"completion_ms": (1.0, nan)},
        {"completion_ms": "20"},
        {"timeouts_ms": ()},
        {"timeouts_ms": ((-1.0, 1.0),)},
        {"timeouts_ms": ((nan, 1.0),)},
        {"timeouts_ms": None},
        {"timeouts_ms": (5.0,)},
        {"timeouts_ms": ((5.0, nan),)},
        {"key_ranks": ()},
        {"key_ranks": (0.0,)},
        {"key_ranks": (1.0, 2.0)},
        {"key_ranks": (0.0, 2.0, 2.0)},
        {"key_ranks": (0.0, float("inf"))},
        {"key_counts": ((1.5, 1.0),)},
        {"key_counts": ((1, 0.5),)},
        {"first_hour": 24},
    ],
)
def test_workload_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(change))} must be"):
        replace(FEW, **change)


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 20_000),  # 200 ms at most: a few hundred are enough
        ({"completion_ms": (0.0, None), "timeouts_ms": ((1_000.0, 0.5), (10_000.0, 0.5))}, 80_000),  # 10 s at 2,000/s
        ({"completion_ms": (0.0, 5_000.0), "timeouts_ms": ((None, 1.0),)}, 40_000),
        ({"completion_ms": (0.0, None), "timeouts_ms": ((None, 1.0),)}, 100_000),
    ],
)
def test_enough_is_four_times_the_longest_wait(changes: dict[str, Any], rows: int) -> None:
    assert enough([replace(FEW, arrivals_per_second=(2_000.0,) * 24, **changes)]) == rows
