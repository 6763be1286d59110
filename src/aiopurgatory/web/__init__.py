"""Long polls and server-sent events over HTTP: routes for any ASGI app, or answers for your own handlers.

The module ``aiohttp`` supports aiohttp apps; ``inspector`` is the live page of a purgatory.
"""

from ..errors import GoneError, NotFoundError
from .answer import (
    Answer,
    GroupLimitError,
    ReadFailedError,
    ReplacedError,
    SourceBusyError,
    UnreadBodyError,
    WaitError,
)
from .event_answer import EventAnswer
from .events import EventRoute
from .policy import Policy
from .polling import LongPolling, LongPollStatistics
from .route import LongPollRoute
from .signals import close_on_stop
from .source import AsyncSource, Source

__all__ = [
    "Answer",
    "AsyncSource",
    "EventAnswer",
    "EventRoute",
    "GoneError",
    "GroupLimitError",
    "LongPollRoute",
    "LongPollStatistics",
    "LongPolling",
    "NotFoundError",
    "Policy",
    "ReadFailedError",
    "ReplacedError",
    "Source",
    "SourceBusyError",
    "UnreadBodyError",
    "WaitError",
    "close_on_stop",
]
