"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats, waits for several."""

from ._replication import NotEnoughReplicasError
from .all import DelayedAll
from .barrier import JoinBarrier
from .feed import Feed, Readable, SourceError, fetch
from .heartbeats import Heartbeats
from .joins import Generation, GroupFullError, JoinError
from .replication import Replicas, produce
from .thresholds import Thresholds

__all__ = [
    "DelayedAll",
    "Feed",
    "Generation",
    "GroupFullError",
    "Heartbeats",
    "JoinBarrier",
    "JoinError",
    "NotEnoughReplicasError",
    "Readable",
    "Replicas",
    "SourceError",
    "Thresholds",
    "fetch",
    "produce",
]
