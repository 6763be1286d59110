"""Waiting for a condition, without knowing when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str) -> None:
    """Raises: AssertionError: *condition* does not come true."""
    try:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within 10 s: {what}") from None
