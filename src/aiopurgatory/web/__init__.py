"""Long polls over HTTP: a route for any ASGI app, or an answer for a handler of your own.

``aiohttp`` has what aiohttp needs, ``inspector`` the live page of a purgatory.
"""

from .longpoll import Answer, LongPolling, LongPollStatistics
from .policy import Policy
from .route import LongPollRoute
from .sources import GoneError, Source

__all__ = [
    "Answer",
    "GoneError",
    "LongPollRoute",
    "LongPollStatistics",
    "LongPolling",
    "Policy",
    "Source",
]
