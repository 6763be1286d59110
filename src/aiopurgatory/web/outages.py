"""Failures of awaited reads: their answers to polls, and their log messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, final

from ..clock import cancellations
from ..errors import GoneError, NotFoundError
from .answer import ReadFailedError

logger = logging.getLogger("aiopurgatory")

#: Seconds between two messages about a source that goes on failing.
LOG_EVERY = 60.0
#: The exceptions that web frameworks turn into answers. Names, since a framework may not be installed.
_ANSWERS: Final = {"HTTPException", "Http404", "PermissionDenied"}
_FRAMEWORKS: Final = {"aiohttp", "django", "litestar", "starlette", "werkzeug"}


@final
class Outages:
    """Logs failures to read *what*: the first with its traceback, then one a minute, with their number."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failed = 0
        self._next = -inf

    async def watch(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Await *read()*. Raises: ReadFailedError: it failed; an answer such as GoneError is no failure."""
        try:
            return await read()
        except (Exception, asyncio.CancelledError) as exc:  # a closed pool may raise CancelledError
            is_wanted = not cancellations()  # otherwise no poll waits for it, and it fails since it ends
            if is_answer(exc) or (isinstance(exc, asyncio.CancelledError) and not is_wanted):
                raise
            if is_wanted:
                self.note(exc)
            raise ReadFailedError("the source could not be read") from exc

    def note(self, exc: BaseException) -> None:
        """Log *exc*, if it is time."""
        self._failed += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + LOG_EVERY
            text = "%s cannot be read, and clients are answered 503: %r; failed calls so far: %d"
            logger.error(text, self._what, exc, self._failed, exc_info=exc)


def is_answer(exc: BaseException) -> bool:
    """Is *exc* an answer to the client, and no failure of the source? Clients of databases raise status codes, too."""
    return isinstance(exc, (GoneError, NotFoundError)) or any(
        base.__name__ in _ANSWERS and base.__module__.partition(".")[0] in _FRAMEWORKS for base in type(exc).__mro__
    )
