"""Answers, and the exceptions that become answers. Answers 503 are counted by reason."""

from __future__ import annotations

from collections import Counter
from random import randint
from typing import Final, NamedTuple

from ..errors import GoneError, NotFoundError, PurgatoryClosedError, PurgatoryFullError
from .places import GroupLimitError, ReplacedError
from .poll import UnreadBodyError
from .prefer import WaitError
from .source import ReadFailedError

RawHeader = tuple[bytes, bytes]

NO_STORE: Final = (b"cache-control", b"no-store")
VARY: Final = (b"vary", b"Prefer")
PLAIN_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")


class Answer(NamedTuple):
    """An HTTP answer. Make a response of your framework from it: FastAPI would encode it as a JSON list.

    Attributes:
        status: 200; 304 or 204 for nothing new; 400, 404, 409, 410, 413 or 503 for a refusal; 499: the client has left.
        body: the source's; else a message, or nothing.
        raw_headers: pairs of bytes, names in lower case. Content-Length is not among them.
    """

    status: int
    body: bytes
    raw_headers: list[RawHeader]

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.raw_headers}


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
