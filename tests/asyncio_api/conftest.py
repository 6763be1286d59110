"""Fixtures: an operation or an asyncio.Future, and a remote table."""

from __future__ import annotations

import pytest

from .parts import KINDS, Kind, Table


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """An operation in one run, an asyncio.Future in the other."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def table() -> Table:
    return Table()
