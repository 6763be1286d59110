"""The state of an operation as a number: one byte of it, and quick to compare."""

from __future__ import annotations

from typing import Final

from .outcome import Outcome

PENDING: Final = 0
COMPLETED: Final = 1
EXPIRED: Final = 2
CANCELLED: Final = 3
FAILED: Final = 4
OUTCOMES: Final[tuple[Outcome | None, ...]] = (
    None,
    Outcome.COMPLETED,
    Outcome.EXPIRED,
    Outcome.CANCELLED,
    Outcome.FAILED,
)
