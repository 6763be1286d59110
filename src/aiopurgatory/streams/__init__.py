"""Event streams: runs and topics that any number of listeners follow, from any process, each event once, in order.

RedisLog is in ``aiopurgatory.streams.redis``, PostgresLog in ``aiopurgatory.streams.postgres``.
"""

from .event import EndedError, Event, StoreDownError, StoreError, TopicExistsError
from .follow import Follow
from .log import EventLog, LogStatistics
from .memory import MemoryLog
from .run import Run
from .store import Change, Commit, Page, Store

__all__ = [
    "Change",
    "Commit",
    "EndedError",
    "Event",
    "EventLog",
    "Follow",
    "LogStatistics",
    "MemoryLog",
    "Page",
    "Run",
    "Store",
    "StoreDownError",
    "StoreError",
    "TopicExistsError",
]
