"""Refusals: the error answers to polls. Answers 503 are counted by reason."""

from __future__ import annotations

from collections import Counter
from random import randint
from typing import Final

from ..errors import PurgatoryClosedError, PurgatoryFullError
from .exchange import NO_STORE, PLAIN_TEXT, Answer
from .headers import WaitError
from .outages import ReadFailedError
from .places import GroupLimitError, ReplacedError
from .polls import UnreadBodyError
from .sources import GoneError, NotFoundError

#: Exceptions that become answers.
REFUSALS: Final = (
    WaitError,
    ReplacedError,
    GoneError,
    NotFoundError,
    UnreadBodyError,
    ReadFailedError,
    PurgatoryFullError,
    PurgatoryClosedError,
)
#: The status of those that are not 503.
_STATUS: Final = {WaitError: 400, NotFoundError: 404, ReplacedError: 409, GoneError: 410, UnreadBodyError: 413}


class Refusals:
    """Turns exceptions into answers.

    Args: retry_after: the lowest and the highest Retry-After, in whole seconds.
    """

    def __init__(self, retry_after: tuple[int, int]) -> None:
        self._retry_after = retry_after
        self.by_reason: Counter[str] = Counter()

    def answer(self, exc: Exception) -> Answer:
        """Return the answer for *exc*, one of REFUSALS."""
        match exc:
            case GroupLimitError():
                return self._unavailable("group", str(exc))
            case PurgatoryFullError():
                return self._unavailable("full", str(exc))
            case ReadFailedError():
                return self._unavailable("source", str(exc))
            case PurgatoryClosedError():
                # It goes to all polls at once, and a body would take another write for each.
                return self._unavailable("closed", "")
        status = next(status for kind, status in _STATUS.items() if isinstance(exc, kind))
        return Answer(status, str(exc).encode(errors="replace"), [NO_STORE, PLAIN_TEXT])

    def _unavailable(self, reason: str, why: str) -> Answer:
        self.by_reason[reason] += 1
        seconds = randint(*self._retry_after)
        headers = [NO_STORE, (b"retry-after", b"%d" % seconds), (b"refused", reason.encode())]
        if why:
            headers.append(PLAIN_TEXT)
        return Answer(503, why.encode(), headers)
