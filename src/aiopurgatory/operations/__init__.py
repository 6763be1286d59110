"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats, waits for several."""

from ._replication import NotEnoughReplicasError
from .all import DelayedAll
from .feed import Feed, fetch
from .group.barrier import JoinBarrier
from .group.generation import Generation, GroupFullError, JoinError
from .heartbeats import Heartbeats
from .readable import Readable, SourceError
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
