"""Answers, and the exceptions that become answers. Answers 503 are counted by reason, and failed reads are logged."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from math import inf
from random import randint
from typing import Any, Final, NamedTuple, final

from ..clock import cancellations
from ..errors import GoneError, NotFoundError, PurgatoryClosedError, PurgatoryError, PurgatoryFullError

logger = logging.getLogger("aiopurgatory")

RawHeader = tuple[bytes, bytes]

NO_STORE: Final = (b"cache-control", b"no-store")
VARY: Final = (b"vary", b"Prefer")
PLAIN_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
#: The most characters of a version in a header. Proxies and servers limit its length, often to 8,000 bytes or less.
MAX_VERSION: Final = 1_000
_VERSION = re.compile(r"[!#-~]+(?<!-gzip)(?<!;gzip)(?<!-br)(?<!;br)(?<!-deflate)(?<!;deflate)(?<!-zstd)(?<!;zstd)")
#: Statuses of answers without a body.
NO_BODY: Final = frozenset({204, 304})

#: Seconds between two messages about a source that goes on failing.
LOG_EVERY = 60.0
#: The exceptions that web frameworks turn into answers. Names, since a framework may not be installed.
_ANSWERS: Final = {"HTTPException", "Http404", "PermissionDenied"}
_FRAMEWORKS: Final = {"aiohttp", "django", "litestar", "starlette", "werkzeug"}


class Answer(NamedTuple):
    """An HTTP answer. Make a response of your framework from it: FastAPI would encode it as a JSON list.

    Attributes:
        status: 200; 304 or 204 for nothing new; 400, 401, 404, 409, 410, 413 or 503 for a refusal; 499: the client has
            left.
        body: the source's; else a message, or nothing.
        raw_headers: pairs of bytes, names in lower case. Content-Length is not among them.
        version: the source's version, or the id of the log's last event; empty: a refusal, or none yet.
    """

    status: int
    body: bytes
    raw_headers: list[RawHeader]
    version: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return as_text(self.raw_headers)


def as_text(raw_headers: Iterable[RawHeader]) -> dict[str, str]:
    """Return headers as text."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}


def etag(version: str) -> RawHeader:
    """Return the header with which the client resumes from *version*."""
    return (b"etag", b'"%b"' % tag_of(version).encode())


def resume_from(after: str | None) -> list[RawHeader]:
    """Return the header with which a client goes on from *after*; none if that is None, or no header may have it."""
    return [] if after is None or not is_entity_tag(tag_of(after)) else [etag(after)]


@lru_cache(1_000)
def is_entity_tag(version: str) -> bool:
    """Whether *version* can be an ETag that clients send back unchanged."""
    return _VERSION.fullmatch(version) is not None


def tag_of(version: str) -> str:
    """Return the entity tag of *version*: a digest if it is long, as for many resources."""
    return version if len(version) <= MAX_VERSION else sha256(version.encode()).hexdigest()


class RequestError(PurgatoryError):
    """The request has no valid wait, or a function of the route cannot read it. (An invalid Prefer is ignored.)"""


class ReplacedError(PurgatoryError):
    """A newer request of the same client replaced this one.

    On one connection, the newer request waits for the older one (tuwunel #386).
    """


class DisconnectedError(PurgatoryError):
    """The client has disconnected, as during a while_connected() block.

    In Starlette and FastAPI, it is also one of their ``HTTPException``, so they answer it with status 499, and log
    nothing. In Litestar, its status is enough for that. In plain ASGI, catch it and return: nobody reads an answer.

    With a middleware, a disconnect is not noticed behind a body of more than 64 KiB. If nobody reads that for 10 s,
    this is raised, with status 413.
    """

    headers: None = None  # which Starlette reads

    def __init__(self, status_code: int = 499, detail: str = "the client has disconnected") -> None:
        Exception.__init__(self, detail)
        self.status_code = status_code
        self.detail = detail


class UnreadBodyError(PurgatoryError):
    """The body is too long, or a middleware keeps it and nobody reads it: no disconnect is noticed behind it."""


class ExpiredError(PurgatoryError):
    """The client's login has ended before its stream begins."""


class GroupLimitError(PurgatoryFullError):
    """The group has ``Policy.max_per_group`` polls and streams already."""


class ReadFailedError(PurgatoryError):
    """A source whose methods are ``async def``, or a log, raised an exception, or did not answer in time."""


class SourceBusyError(ReadFailedError):
    """No read could begin in time: ``max_reads`` calls are under way."""


#: The statuses of refusals, or the reasons of those with status 503. A subclass comes before its base.
_REFUSALS: Final[dict[type[Exception], int | str]] = {
    RequestError: 400,
    ExpiredError: 401,
    NotFoundError: 404,
    ReplacedError: 409,
    GoneError: 410,
    UnreadBodyError: 413,
    DisconnectedError: 499,
    GroupLimitError: "group",
    PurgatoryFullError: "full",
    ReadFailedError: "source",
    PurgatoryClosedError: "closed",
}
#: Exceptions that become answers.
REFUSALS: Final = tuple(_REFUSALS)
#: Refusals that a handler may raise.
_OF_HANDLERS: Final = (DisconnectedError, PurgatoryClosedError, PurgatoryFullError)


class Refusals:
    """Turns exceptions into answers.

    Args: retry_after: the lowest and the highest Retry-After, in whole seconds; default (1, 3).
    """

    def __init__(self, retry_after: tuple[int, int] = (1, 3)) -> None:
        self._retry_after = retry_after
        self.by_reason: Counter[str] = Counter()

    def answer(self, exc: Exception) -> Answer:
        """Return the answer for *exc*, one of REFUSALS."""
        found = next(found for kind, found in _REFUSALS.items() if isinstance(exc, kind))
        text = str(exc).encode(errors="replace")
        if isinstance(found, int):
            status = exc.status_code if isinstance(exc, DisconnectedError) else found
            return Answer(status, text, [NO_STORE, PLAIN_TEXT, *resume_from(getattr(exc, "after", None))])
        self.by_reason[found] += 1
        headers = [NO_STORE, (b"retry-after", b"%d" % randint(*self._retry_after)), (b"refused", found.encode())]
        if found == "closed":
            # No body: this goes to all polls at once, and a body would take another write for each. On a connection
            # that stays open, a client that comes again at once can keep its server from stopping.
            return Answer(503, b"", [*headers, (b"connection", b"close")])
        return Answer(503, text, [*headers, PLAIN_TEXT])

    def answer_handler(self, exc: Exception | asyncio.CancelledError) -> Answer | None:
        """Return the answer for *exc*, which has left a handler, maybe in a group; None: it is none of ours.

        A CancelledError is that of its wait, as by cancel_for_key(), if nobody has cancelled the handler's task.
        """
        if isinstance(exc, asyncio.CancelledError):
            exc = PurgatoryClosedError("a wait of the handler was cancelled")
        while isinstance(exc, ExceptionGroup) and exc.split(_OF_HANDLERS)[1] is None:
            exc = exc.exceptions[0]
        return self.answer(exc) if isinstance(exc, _OF_HANDLERS) else None


@final
class Outages:
    """Logs failures to read *what*: the first with its traceback, then one a minute, with their number."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failed = 0
        self._next = -inf

    async def watch(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Await *read()*. Raises: ReadFailedError: it failed; an answer such as GoneError is no failure.

        If its task was cancelled, no poll waits for it any more, and it fails for that reason.
        """
        try:
            return await read()
        except (Exception, asyncio.CancelledError) as exc:  # a closed pool may raise CancelledError
            if is_answer(exc) or cancellations():
                raise
            raise self.failed(exc) from exc

    def failed(self, exc: BaseException) -> ReadFailedError:
        """Log *exc*, if it is time. Returns: what clients are told: not where the server is."""
        self._failed += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + LOG_EVERY
            text = "%s cannot be read, and clients are answered 503: %r; failed calls so far: %d"
            logger.error(text, self._what, exc, self._failed, exc_info=exc)
        return ReadFailedError("the source could not be read")


def is_answer(exc: BaseException) -> bool:
    """Is *exc* an answer to the client, and no failure of the source? Clients of databases also raise status codes."""
    return isinstance(exc, (GoneError, NotFoundError)) or any(
        base.__name__ in _ANSWERS and base.__module__.partition(".")[0] in _FRAMEWORKS for base in type(exc).__mro__
    )
