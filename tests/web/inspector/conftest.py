from __future__ import annotations

import pytest

from aiopurgatory.web.inspector import view


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every 20 ms."""
    monkeypatch.setattr(view, "REFRESH", 0.02)
