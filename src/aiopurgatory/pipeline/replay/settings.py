"""How a purgatory of a replay is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NEW: Final = "new"
OLD: Final = "old"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a purgatory is set. The old one has no timing wheel, and always a purge interval."""

    design: str = NEW
    tick_ms: float | None = 1.0
    wheel_size: int | None = 20
    purge_interval: int = 0
    #: For all operations; None: each has its own.
    timeout_ms: float | None = None
