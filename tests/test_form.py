"""The form that is tested is the one that was asked for: a stale compiled module beside an edited source wins."""

import os
from pathlib import Path

import pytest

import aiopurgatory
from aiopurgatory.core import core
from aiopurgatory.operations import thresholds
from aiopurgatory.timer import timer


def test_form_is_the_one_asked_for() -> None:
    wanted = os.environ.get("AIOPURGATORY_FORM")
    assert wanted in (None, "compiled" if aiopurgatory.COMPILED else "interpreted")


def test_compiled_tells_the_truth() -> None:
    for module in (core, timer, thresholds):
        assert (Path(str(module.__file__)).suffix == ".so") is aiopurgatory.COMPILED


@pytest.mark.parametrize("name", ["aiopurgatory.journal.rows", "aiopurgatory.metrics.histograms"])
def test_observers_have_the_form_of_the_core(name: str) -> None:
    module = pytest.importorskip(name, exc_type=ImportError)
    assert (Path(str(module.__file__)).suffix == ".so") is aiopurgatory.COMPILED
