"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats, waits for a number."""

from .fetch import DelayedFetch, Feed
from .group import Generation, GroupFullError, JoinBarrier, JoinError
from .heartbeat import Heartbeats
from .in_sync import NotEnoughReplicasError
from .readable import Readable, SourceError
from .replication import Replicas, produce
from .thresholds import ThresholdWatchers
from .watermark import Watermark, WatermarkWait

__all__ = [
    "DelayedFetch",
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
    "ThresholdWatchers",
    "Watermark",
    "WatermarkWait",
    "produce",
]
