"""Fixtures for the tests of the ready-made operations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Thresholds
from aiopurgatory.testing import ManualClock


@pytest.fixture
def log(purgatory: Purgatory) -> Thresholds:
    return Thresholds(purgatory, "log")


@pytest.fixture
async def full(clock: ManualClock) -> AsyncIterator[Purgatory]:
    """A purgatory in which nothing more can park."""
    async with Purgatory("full", clock=clock, max_pending=1) as purgatory:
        Thresholds(purgatory, "log").reached(1, timeout=None)
        yield purgatory
