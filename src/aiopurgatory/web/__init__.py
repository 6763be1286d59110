"""Long polls and server-sent events over HTTP: routes for any ASGI app, or answers for your own handlers.

The module ``aiohttp`` supports aiohttp apps; ``inspector`` is the live page of a purgatory.
"""

from .events import EventRoute
from .exchange import Answer
from .longpoll import LongPolling, LongPollStatistics
from .policy import Policy
from .route import LongPollRoute
from .signals import close_on_stop
from .sources import AsyncSource, GoneError, NotFoundError, Source

__all__ = [
    "Answer",
    "AsyncSource",
    "EventRoute",
    "GoneError",
    "LongPollRoute",
    "LongPollStatistics",
    "LongPolling",
    "NotFoundError",
    "Policy",
    "Source",
    "close_on_stop",
]
