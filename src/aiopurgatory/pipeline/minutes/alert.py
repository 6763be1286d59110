"""The alert of the stream: a line when too many or too few operations expire, and one when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiopurgatory.errors import PurgatoryError


@dataclass(frozen=True)
class Band:
    """The normal share of operations that expire.

    Args:
        low, high: a share outside of these bounds begins an alert (default: 0 and 0.5).
        fewest: minutes with fewer operations are ignored (default: 100).
        margin: how far inside the share must be for the alert to end, as a part of the band's width (default: 0.1).
            Raise it if the alert still goes on and off.
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
        """Return the alert at *share*: "high", "low", or "" for none. *before* is the alert so far.

        The margin applies only at the edge that was crossed: a normal share near the other edge ends the alert.
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
class _Reported:
    """The current alert of a purgatory, and the minutes known to be outside the band."""

    newest: datetime
    #: As Band.state() says.
    state: str = ""
    outside: set[datetime] = field(default_factory=set)


class ExpiryAlert:
    """Reports when the share of expirations leaves its band, and when it returns.

    An alert begins when a minute with at least ``fewest`` operations has a share outside of the band. It ends when the
    newest such minute has a share inside the band by the margin or more. So a share that hovers at an edge is reported
    once.

    A minute grows until its rows are too late to count. If late rows take a minute out of the band, it begins an alert,
    but only once: it is remembered for as long as it may grow. Only the newest minute ends an alert. After a restart,
    the alerts of the hours that are read again are repeated.
    """

    def __init__(self, band: Band, watermark: timedelta) -> None:
        """Args: watermark: how far a row may lag behind the newest minute and still count."""
        self._band = band
        self._watermark = watermark
        self._reported: dict[str, _Reported] = {}

    def lines(self, purgatory: str, minute: datetime, operations: float, expired: float) -> list[str]:
        """Return the lines to print about a minute with its counts so far. Minutes of a batch must come in order."""
        if operations < self._band.fewest:
            return []
        reported = self._reported.setdefault(purgatory, _Reported(minute))
        reported.newest = max(reported.newest, minute)
        # This minute and older ones do not grow any more.
        done = reported.newest - self._watermark - timedelta(minutes=1)
        if minute <= done:
            return []
        share = expired / operations
        outside = self._band.state(share, "") != ""
        decides = minute == reported.newest or (outside and minute not in reported.outside)
        reported.outside = {each for each in reported.outside if each > done} | ({minute} if outside else set())
        if not decides:
            return []
        before, reported.state = reported.state, self._band.state(share, reported.state)
        if bool(before) == bool(reported.state):
            return []
        measured = (
            f"{purgatory}: {share:.1%} of {operations:,.0f} operations expired in the minute of {minute:%Y-%m-%d %H:%M}"
        )
        normal = f"{self._band.low:.1%} to {self._band.high:.1%}"
        return [f"ALERT {measured}, normal is {normal}" if reported.state else f"normal again: {measured}"]
