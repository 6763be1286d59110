"""Fails each test that reports an unexpected error to the event loop's exception handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def reports() -> AsyncIterator[list[BaseException]]:
    """The exceptions that were reported to the loop's exception handler; empty again when the test ends."""
    found: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    assert found == []
