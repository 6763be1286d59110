"""The settings of a purgatory in a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiopurgatory.arguments import require, require_int, require_seconds, require_settings

NEW: Final = "new"
OLD: Final = "old"
#: The longest timeout for all operations, in seconds: 30 years.
LONGEST_TIMEOUT: Final = 1e9


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a purgatory. The old design has no timing wheel, and needs a purge interval.

    Args:
        design: NEW, the library itself; or OLD, Kafka's design up to 0.8.
        tick_ms: tick of the timing wheel (default: 1); None for the old design.
        wheel_size: buckets per level of the timing wheel (default: 20); None for the old design.
        purge_interval: as for Purgatory (default: 0); at least 1 for the old design.
        timeout_ms: one timeout for every operation; None (default): each keeps its own.

    Raises: TypeError, ValueError: Purgatory refuses the setting, or the old design has none such.
    """

    design: str = NEW
    tick_ms: float | None = 1.0
    wheel_size: int | None = 20
    purge_interval: int = 0
    timeout_ms: float | None = None

    def __post_init__(self) -> None:
        require(self.design in (NEW, OLD), "design", f"{NEW!r} or {OLD!r}", self.design)
        if self.design == NEW:
            tick = self.tick_ms / 1000 if isinstance(self.tick_ms, (int, float)) else self.tick_ms
            require_settings(tick, self.wheel_size, self.purge_interval)
        else:
            require(self.tick_ms is None, "tick of the old purgatory", "None", self.tick_ms)
            require(self.wheel_size is None, "wheel_size of the old purgatory", "None", self.wheel_size)
            require_int("purge_interval of the old purgatory", self.purge_interval, 1)
        if self.timeout_ms is not None:
            require_seconds("timeout", self.timeout_ms / 1000, 0.0, LONGEST_TIMEOUT)

    @property
    def tick(self) -> float:
        """Seconds; 0 for the old design, which has no tick."""
        return (self.tick_ms or 0.0) / 1000
