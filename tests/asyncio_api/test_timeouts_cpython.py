"""CPython's own tests of asyncio.timeout(), of the running Python, on a purgatory's timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Purgatory

suite: Any = pytest.importorskip("test.test_asyncio.test_timeouts", reason="this Python came without its own tests")


class _OnTheWheel:
    """Stands for the module asyncio in the suite."""

    purgatory: Purgatory

    def timeout(self, delay: float | None) -> object:
        return self.purgatory.timeout(delay)

    def timeout_at(self, when: float | None) -> object:
        return self.purgatory.timeout_at(when)

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)


class TestTimeouts(suite.TimeoutTests):  # type: ignore[misc]  # its type is not known
    async def asyncSetUp(self) -> None:
        self.on_the_wheel = _OnTheWheel()
        self.on_the_wheel.purgatory = Purgatory()
        await self.on_the_wheel.purgatory.start()
        self.before, suite.asyncio = suite.asyncio, self.on_the_wheel

    async def asyncTearDown(self) -> None:
        suite.asyncio = self.before
        await self.on_the_wheel.purgatory.aclose()
