from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import check_invariants
from aiopurgatory.web.inspector import Inspector, snapshot

from .helpers import serve


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every 20 ms."""
    monkeypatch.setattr(snapshot, "REFRESH", 0.02)


@pytest.fixture
def options() -> dict[str, Any]:
    """Of ``purgatory``."""
    return {}


@pytest.fixture
def show_keys() -> bool:
    return True


@pytest.fixture
async def purgatory(options: dict[str, Any]) -> AsyncIterator[Purgatory]:
    async with Purgatory("shown", **options) as purgatory:
        yield purgatory
        check_invariants(purgatory)


@pytest.fixture
def inspector(purgatory: Purgatory, show_keys: bool) -> Inspector:
    return Inspector([purgatory], show_keys=show_keys)


@pytest.fixture
async def port(inspector: Inspector) -> AsyncIterator[int]:
    """Where the inspector is."""
    async with serve(inspector) as port:
        yield port
