"""Fails each test that reports an unexpected error to the event loop's exception handler."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_is_reported(reports: list[BaseException]) -> None:
    """Each test, also one that does not ask for the reports."""
