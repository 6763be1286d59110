"""Long polls and server-sent events over HTTP: routes for any ASGI app, or answers for your own handlers.

The module ``aiohttp`` supports aiohttp apps; ``inspector`` is the live page of a purgatory.
"""

from .events import EventRoute
from .exchange import Answer
from .headers import WaitError
from .longpoll import LongPolling, LongPollStatistics
from .outages import ReadFailedError, SourceBusyError
from .places import GroupLimitError, ReplacedError
from .policy import Policy
from .polls import UnreadBodyError
from .route import LongPollRoute
from .signals import close_on_stop
from .sources import AsyncSource, GoneError, NotFoundError, Source

__all__ = [
    "Answer",
    "AsyncSource",
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
