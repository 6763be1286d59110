"""Failures of a source's awaited reads: their answers to polls, and their log messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, final

from ..clock import cancellations
from ..errors import GoneError, NotFoundError
from .answer import ReadFailedError

logger = logging.getLogger("aiopurgatory")

#: Seconds between two tracebacks of a source that goes on failing.
LOG_EVERY = 60.0
#: The exceptions that web frameworks turn into answers. Names, since a framework may not be installed.
_ANSWERS: Final = {"HTTPException", "Http404", "PermissionDenied"}
_FRAMEWORKS: Final = {"aiohttp", "django", "litestar", "starlette", "werkzeug"}


@final
class Outages:
    """Logs the first failure of an outage with its traceback, then one a minute, and the number of them at the end."""

    def __init__(self) -> None:
        self._failed = 0
        self._is_logged = False
        self._next = 0.0

    async def watch(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Await *read()*. Raises: ReadFailedError: it failed; an answer such as GoneError is no failure."""
        try:
            found = await read()
        except (Exception, asyncio.CancelledError) as exc:  # a closed pool may raise CancelledError
            is_wanted = not cancellations()  # otherwise no poll waits for it, and it fails since it ends
            if is_answer(exc) or (isinstance(exc, asyncio.CancelledError) and not is_wanted):
                raise
            if is_wanted:
                self._has_failed(exc)
            raise ReadFailedError("the source could not be read") from exc
        if self._failed:
            self._has_answered()
        return found

    def _has_failed(self, exc: BaseException) -> None:
        self._failed += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + LOG_EVERY
            self._is_logged = True
            logger.error(
                "a source could not be read; its polls are answered with 503; failed calls so far: %d",
                self._failed,
                exc_info=exc,
            )

    def _has_answered(self) -> None:
        if self._is_logged:  # a source that fails now and then logs two lines a minute
            logger.warning("a source can be read again; failed calls: %d", self._failed)
            self._is_logged = False
            self._failed = 0


def is_answer(exc: BaseException) -> bool:
    """Is *exc* an answer to the client, and no failure of the source? Clients of databases raise status codes, too."""
    return isinstance(exc, (GoneError, NotFoundError)) or any(
        base.__name__ in _ANSWERS and base.__module__.partition(".")[0] in _FRAMEWORKS for base in type(exc).__mro__
    )
