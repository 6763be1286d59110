"""The settings of a purgatory in a replay."""

from __future__ import annotations

from dataclasses import dataclass

from aiopurgatory.arguments import require_settings


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a purgatory.

    Args:
        tick_ms: tick of the timing wheel (default: 1).
        wheel_size: buckets per level of the timing wheel (default: 20).
        purge_interval: as for Purgatory (default: 0).

    Raises: TypeError, ValueError: Purgatory refuses the setting.
    """

    tick_ms: float = 1.0
    wheel_size: int = 20
    purge_interval: int = 0

    def __post_init__(self) -> None:
        tick = self.tick if isinstance(self.tick_ms, (int, float)) else self.tick_ms
        require_settings(tick, self.wheel_size, self.purge_interval)

    @property
    def tick(self) -> float:
        """The tick in seconds."""
        return self.tick_ms / 1000
