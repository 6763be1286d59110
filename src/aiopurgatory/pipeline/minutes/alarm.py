"""The alarm of the stream: an alert when too many operations expire, or too few, and a line when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiopurgatory.errors import PurgatoryError


@dataclass(frozen=True)
class Band:
    """The share of operations that normally expire.

    Args:
        low, high: a share outside of them raises the alarm.
        fewest: minutes with fewer operations are ignored.
        margin: how far inside the share must be for the alarm to end, as a part of the band's width (default: 0.1).
            Raise it if the alarm still goes on and off.
    """

    low: float = 0.0
    high: float = 0.5
    fewest: int = 100
    margin: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise PurgatoryError(
                f"expired_share must be two shares from 0 to 1, the lower first, got {self.low} {self.high}"
            )
        if self.fewest < 1:
            raise PurgatoryError(f"fewest must be >= 1, got {self.fewest}")
        if not 0 <= self.margin <= 1:
            raise PurgatoryError(f"margin must be from 0 to 1, got {self.margin}")

    def state(self, share: float, before: str) -> str:
        """Which alarm there is at *share*: "high", "low", or "" for none; *before* says which there was.

        The margin counts at the edge that was left, so that a share that is normal at the other edge ends the alarm.
        """
        if share > self.high:
            return "high"
        if share < self.low:
            return "low"
        margin = self.margin * (self.high - self.low)
        if before == "high" and share > self.high - margin:
            return before
        if before == "low" and share < self.low + margin:
            return before
        return ""


@dataclass(slots=True)
class _Told:
    """What was said of a purgatory: the alarm that lasts, and of which minutes it is known."""

    newest: datetime
    #: As Band.state() says.
    state: str = ""
    outside: set[datetime] = field(default_factory=set)


class Alarm:
    """Says when the share of expirations leaves its band, and when it is back.

    Begin: a minute with at least ``fewest`` operations has a share outside of the band. End: the newest minute with as
    many has a share inside the band, by the margin or more. So a share that hovers at an edge is said once.

    A minute grows until its rows are too late to count. A minute that late rows take out of the band begins an alarm,
    too, but once: it is remembered for as long as it may grow. Only the newest minute ends an alarm. After a restart,
    what there was in the hours at hand is said again.
    """

    def __init__(self, band: Band, watermark: timedelta) -> None:
        """Args: watermark: how far behind the newest minute rows still count."""
        self._band = band
        self._watermark = watermark
        self._told: dict[str, _Told] = {}

    def lines(self, purgatory: str, minute: datetime, operations: float, expired: float) -> list[str]:
        """What there is to say of a minute as it is now. Those of a batch must come in their order."""
        if operations < self._band.fewest:
            return []
        told = self._told.setdefault(purgatory, _Told(minute))
        told.newest = max(told.newest, minute)
        done = told.newest - self._watermark - timedelta(minutes=1)  # this minute and older ones do not grow any more
        if minute <= done:
            return []
        share = expired / operations
        outside = self._band.state(share, "") != ""
        decides = minute == told.newest or (outside and minute not in told.outside)
        told.outside = {each for each in told.outside if each > done} | ({minute} if outside else set())
        if not decides:
            return []
        before, told.state = told.state, self._band.state(share, told.state)
        if bool(before) == bool(told.state):
            return []
        said = (
            f"{purgatory}: {share:.1%} of {operations:,.0f} operations expired in the minute of {minute:%Y-%m-%d %H:%M}"
        )
        normal = f"{self._band.low:.1%} to {self._band.high:.1%}"
        return [f"ALERT {said}, normal is {normal}" if told.state else f"normal again: {said}"]
