from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from aiopurgatory.web.inspector import snapshot


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every 20 ms."""
    monkeypatch.setattr(snapshot, "REFRESH", 0.02)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """A browser is slow, and its pages do not depend on the loop."""
    return {"asyncio": asyncio.new_event_loop} if "test_page" in item.nodeid else None
