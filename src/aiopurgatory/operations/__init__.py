"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats."""

from .barrier import DelayedJoin, Generation, JoinBarrier, JoinError
from .fetch import DelayedFetch, Source, SourceError, Topic
from .heartbeat import DelayedHeartbeat, Heartbeats
from .replication import DelayedProduce, NotEnoughReplicasError, Replicas, produce
from .thresholds import ThresholdWait, ThresholdWatchers

__all__ = [
    "DelayedFetch",
    "DelayedHeartbeat",
    "DelayedJoin",
    "DelayedProduce",
    "Generation",
    "Heartbeats",
    "JoinBarrier",
    "JoinError",
    "NotEnoughReplicasError",
    "Replicas",
    "Source",
    "SourceError",
    "ThresholdWait",
    "ThresholdWatchers",
    "Topic",
    "produce",
]
