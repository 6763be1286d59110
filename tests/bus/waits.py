"""Waits of the bus's tests."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Self, TypeAlias

from aiopurgatory import Observer
from aiopurgatory.bus.engine import Hear, Link, Lost

NewLoop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop}
with suppress(ImportError):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


async def until(condition: Callable[[], object], within: float = 10.0) -> float:
    """Returns: seconds until *condition* held. Raises: AssertionError: it did not."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < within, f"not within {within} s"
        await asyncio.sleep(0.002)
    return time.monotonic() - start


async def said_by_child(say: Callable[[], object]) -> str:
    """Fork. Returns: what *say* returns in the child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(say()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    await asyncio.to_thread(os.waitpid, child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


class OwnLink(Link):
    """An engine that is its own link."""

    hear: Hear
    lost: Lost

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> Self:
        self.hear, self.lost = hear, lost
        return self

    async def send(self, messages: list[str]) -> None:
        """No echo."""

    def abort(self) -> None:
        pass

    def explain(self, exc: Exception) -> str:
        return f"what is wrong: {exc!r}"


class Recorder:
    """A target that notes its notifications. Args: called: after each is noted."""

    def __init__(self, called: Callable[[], object] = lambda: None) -> None:
        self.keys: list[Hashable] = []
        self.limits: list[int | None] = []
        self.everything = 0
        self.called = called

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        self.keys.append(key)
        self.limits.append(limit)
        self.called()

    def notify_all(self) -> None:
        self.everything += 1
        self.called()


class Told(Observer):
    """Notes what opened and closed. Args: error: what each call raises; None: nothing."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.of = error, list[tuple[str, object]]()

    @property
    def what(self) -> list[str]:
        """Without the objects."""
        return [call for call, _ in self.of]

    def note(self, call: str, what: object) -> None:
        self.of.append((call, what))
        if self.error is not None:
            raise self.error

    def opened(self, what: object) -> None:
        self.note("opened", what)

    def closed(self, what: object) -> None:
        self.note("closed", what)
