"""Waits of the bus's tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from aiopurgatory import Observer


async def until(condition: Callable[[], object], within: float = 10.0) -> float:
    """Returns: seconds until *condition* held. Raises: AssertionError: it did not."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < within, f"not within {within} s"
        await asyncio.sleep(0.002)
    return time.monotonic() - start


class Recorder:
    """A target that notes its notifications."""

    def __init__(self) -> None:
        self.keys: list[Hashable] = []
        self.limits: list[int | None] = []
        self.everything = 0

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        self.keys.append(key)
        self.limits.append(limit)

    def notify_all(self) -> None:
        self.everything += 1


class Told(Observer):
    """Notes what opened and closed. Args: fails: whether each call raises."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.what = fails, list[str]()

    def note(self, what: str) -> None:
        self.what.append(what)
        if self.fails:
            raise LookupError("broken")

    def opened(self, what: object) -> None:
        self.note("opened")

    def closed(self, what: object) -> None:
        self.note("closed")
