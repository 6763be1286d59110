"""A span for each wait, for OpenTelemetry: pip install "aiopurgatory[otel]" """

from __future__ import annotations

from collections.abc import Hashable
from contextvars import Context
from time import time_ns
from typing import Any, final

from .arguments import extra

with extra("otel"):
    from opentelemetry.context import get_current
    from opentelemetry.trace import Status, StatusCode, TracerProvider, get_tracer

from .core.kit import Observer, Outcome, core_of, failure_of, is_missed, keys_of

__all__ = ["Spans"]


@final
class Spans(Observer):
    """Makes an OpenTelemetry span of each wait: of each operation that a task has awaited, when it ends.

        polls = Purgatory("polls", observers=[Spans()])

    The span begins when the operation was watched. Its parent is the span in which the task waits, such as an HTTP
    request's; of several tasks, the first. Iterations, such as ``follow()``, are no waits.

    Its name is ``wait NAME``, with the purgatory's name. Its attributes, each with the prefix ``aiopurgatory.``:

    - ``purgatory``, ``operation`` (the class) and ``outcome``: as the labels of the metrics
    - ``keys``: the types in each of its keys, such as ``(str, int)``, but never a key
    - ``lateness_seconds``: from the deadline to now, if it expired
    - ``missed_trigger``: true if only the last try at the deadline found that its condition held

    A failed operation sets the status ERROR and ``error.type``. The sampler of the tracer provider decides which spans
    are recorded; it sees all these attributes.

    Args: tracer_provider: makes the spans. None (default): the global one, which may be set later.

    Raises: TypeError: *tracer_provider* is something else, such as a tracer.

    Cost: per operation that ends, 0.5 us if nothing awaited it, 10 us if its span is not sampled, else 40.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise TypeError(f"tracer_provider must be a TracerProvider, got {tracer_provider!r}")
        self._tracer = get_tracer("aiopurgatory", tracer_provider=tracer_provider)

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        """Make the span of *op*, if a task has awaited it."""
        context: Context | None = core_of(purgatory).observers.context()
        if context is None:
            return
        now = time_ns()
        attributes: dict[str, str | float | list[str]] = {
            "aiopurgatory.purgatory": purgatory.name,
            "aiopurgatory.operation": type(op).__qualname__,
            "aiopurgatory.outcome": outcome.value,
            "aiopurgatory.keys": [_kind_of(key) for key in keys_of(op)],
        }
        if lateness is not None:
            attributes["aiopurgatory.lateness_seconds"] = lateness
        if is_missed(op):
            attributes["aiopurgatory.missed_trigger"] = True
        failure = failure_of(op) if outcome is Outcome.FAILED else None
        if failure is not None:
            attributes["error.type"] = type(failure).__qualname__
        span = self._tracer.start_span(
            f"wait {purgatory.name}",
            context.copy().run(get_current),  # a copy: the context itself may belong to the running task
            attributes=attributes,
            start_time=now - int(waited * 1e9),
        )
        if failure is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(now)


def _kind_of(key: Hashable) -> str:
    if isinstance(key, tuple):
        return f"({', '.join(type(item).__name__ for item in key)})"
    return type(key).__name__
