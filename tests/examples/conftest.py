"""The modules of the examples, for tests of their parts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest

from .helpers import EXAMPLES


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module
