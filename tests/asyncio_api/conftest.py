"""Fixtures: an operation or an asyncio.Future, and the reported errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from .parts import KINDS, Kind, Table


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """An operation in one run, an asyncio.Future in the other."""
    kind: Kind = request.param
    return kind


@pytest.fixture
async def reports() -> AsyncIterator[list[BaseException]]:
    """The exceptions reported to the loop's exception handler. A test that expects some clears the list."""
    found: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    assert found == []


@pytest.fixture
def table() -> Table:
    return Table()
