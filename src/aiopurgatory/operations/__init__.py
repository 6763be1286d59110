"""Ready-made operations: long-poll fetch, acks=all produce, join-group barrier, heartbeats, waits for several."""

from .all import DelayedAll
from .compiled.replication import NotEnoughReplicasError
from .compiled.watermark import Watermark, WatermarkWait
from .feed import Feed, fetch
from .group import Generation, GroupFullError, JoinBarrier, JoinError
from .heartbeat import Heartbeats
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
    "Watermark",
    "WatermarkWait",
    "fetch",
    "produce",
]
