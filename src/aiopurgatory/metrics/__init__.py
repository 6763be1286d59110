"""Prometheus metrics: pip install "aiopurgatory[metrics]"

    fetches = Purgatory("fetch", observers=[Metrics()])
    joins = Purgatory("join", observers=[Metrics()])  # the same one

Kafka's own metrics by other names: PurgatorySize is aiopurgatory_watched_entries, NumDelayedOperations (before:
NumDelayedRequests) is aiopurgatory_pending_operations, and ExpiresPerSec is
``rate(aiopurgatory_operations_total{outcome="expired"}[1m])``.

Labels are bounded: the purgatory's name, the outcome, the operation's class, and why a poll was refused; never a key.
"""

from ..arguments import extra

with extra("metrics"):
    from .collector import Metrics

__all__ = ["Metrics"]
