"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats."""

from ._replication import NotEnoughReplicasError
from .barrier import JoinBarrier
from .feed import Feed, Readable, SourceError, fetch
from .heartbeats import Heartbeats
from .members import Generation, GroupFullError, JoinError
from .replication import Replicas, produce
from .thresholds import Thresholds

__all__ = [
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
