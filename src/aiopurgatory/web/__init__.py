"""Long polls and server-sent events over HTTP: routes for any ASGI app, or answers for your own handlers.

The module ``aiohttp`` supports aiohttp apps; ``inspector`` is the live page of a purgatory.
"""

from .answer import Answer
from .answering import EventAnswer
from .asgi import RequestScope
from .connected import DisconnectedError, while_connected
from .events import EventRoute
from .middleware import PurgatoryMiddleware
from .policy import Policy
from .polling import LogPolling, LongPolling, LongPollStatistics
from .route import LongPollRoute
from .signals import close_on_stop
from .source import Source

__all__ = [
    "Answer",
    "DisconnectedError",
    "EventAnswer",
    "EventRoute",
    "LogPolling",
    "LongPollRoute",
    "LongPollStatistics",
    "LongPolling",
    "Policy",
    "PurgatoryMiddleware",
    "RequestScope",
    "Source",
    "close_on_stop",
    "while_connected",
]
