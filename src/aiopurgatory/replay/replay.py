"""Replays a trace through a purgatory on a virtual clock: the library's own timer and core, not a model of them.

No real time passes. The virtual clock moves from one arrival or completion to the next. On the way it makes the calls
that the purgatory has armed, each at its own time. Each operation is completed directly, as in Kafka's benchmark: a
trace has no checks of shared keys.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

from aiopurgatory.arguments import extra
from aiopurgatory.core.kit import RANGE, AwaitableOperation

from .target import ReplayTarget, Setting

with extra("pipeline"):
    import numpy as np
    import pyarrow as pa

Array = np.ndarray[Any, np.dtype[Any]]

#: Arrivals and completions that become Python objects at a time, at most.
SLICE: Final = 8_192
#: New objects until the next collection of Python's garbage collector.
_YOUNG: Final = 100_000
#: Seconds from the last event to the end of the replay; operations due later stay pending.
PATIENCE: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay."""

    #: Per operation, in order of arrival: the time of its end in us, -1 if it never ended; and whether it expired.
    ended_us: Array
    expired: Array
    #: Of expired operations, from the deadline to the end.
    lateness_us: Array
    #: The purgatory's steps, by name.
    counts: dict[str, int]
    #: Until the last arrival.
    wakeups_in_trace: int
    peak_pending: int
    #: The largest size, without keys and results, of about a hundred moments.
    peak_bytes: int


def replay(trace: pa.Table, setting: Setting) -> Replay:
    """Replay *trace*, with rows in order of arrival, to a purgatory with *setting*.

    Cost: about the CPU time that the purgatory itself needs.
    """
    thresholds = gc.get_threshold()
    # With 100,000 operations pending, repeated collections would take up to half of the time.
    gc.set_threshold(_YOUNG, *thresholds[1:])
    try:
        return asyncio.run(_replay(trace, setting))
    finally:
        gc.set_threshold(*thresholds)


async def _replay(trace: pa.Table, setting: Setting) -> Replay:
    with closing(ReplayTarget(setting)) as target:
        return _Player(_Requests(trace, setting), target).play()


class _Requests:
    """Events in order of time: an arrival and a completion per operation; arrivals first at equal times."""

    def __init__(self, trace: pa.Table, setting: Setting) -> None:
        self.count = trace.num_rows
        self.arrival_us: Array = trace["arrival_us"].to_numpy()
        self.timeout_us: Array = trace["timeout_us"].to_numpy()
        never = trace["completion_us"].is_null().to_numpy()
        completion_us: Array = trace["completion_us"].fill_null(0).to_numpy()
        self.completes_at_us = np.where(never, -1, self.arrival_us + completion_us)
        keys = trace["keys"].combine_chunks()
        self._flat: Array = keys.flatten().to_numpy()
        self._offsets: Array = keys.offsets.to_numpy() - keys.offsets[0].as_py()
        # A later completion finds the operation expired with every setting, so it is left out.
        self.slack = max(setting.tick_ms, 1) / 1000
        self.has_event = ~never & (completion_us <= self.timeout_us + self.slack * 1e6)
        completing = np.flatnonzero(self.has_event)
        moments = np.concatenate([self.arrival_us, self.completes_at_us[completing]])
        order = np.argsort(moments, kind="stable")
        self._moments = moments[order]
        self._numbers = np.concatenate([np.arange(self.count), ~completing])[order]

    def over(self) -> float:
        """Return the end of the replay in seconds. Every operation has ended by then, or never ends."""
        deadlines = (self.arrival_us + self.timeout_us)[self.timeout_us / 1e6 < RANGE]
        last_event = self._moments[-1] / 1e6 if self.count else 0.0
        # Twice, because a sum of floats may be less than the time of the last call by one rounding.
        return min(float(deadlines.max(initial=0)) / 1e6, last_event + PATIENCE) + 2 * self.slack

    def slices(self) -> Iterator[tuple[list[float], list[int], Iterator[tuple[Any, float, float]]]]:
        """Moments in s, numbers (their complement for a completion), and the (keys, timeout, completes at) to come."""
        begun = 0
        size = min(SLICE, len(self._moments) // 100 + 1)
        ends = np.flatnonzero(self._numbers == self.count - 1) + 1  # one ends with the last arrival
        bounds = sorted({*range(0, len(self._moments), size), *ends.tolist(), len(self._moments)})
        for begin, end in pairwise(bounds):
            numbers = self._numbers[begin:end]
            until = begun + int((numbers >= 0).sum())
            yield (self._moments[begin:end] / 1e6).tolist(), numbers.tolist(), self._objects(begun, until)
            begun = until

    def _objects(self, begin: int, until: int) -> Iterator[tuple[tuple[int, ...], float, float]]:
        offsets = self._offsets[begin : until + 1]
        flat = self._flat[offsets[0] : offsets[-1]].tolist()
        keys = [tuple(flat[first:last]) for first, last in pairwise((offsets - offsets[0]).tolist())]
        completes_at = self.completes_at_us[begin:until] / 1e6
        completes_at[self.completes_at_us[begin:until] < 0] = inf
        return zip(keys, (self.timeout_us[begin:until] / 1e6).tolist(), completes_at.tolist(), strict=True)


class _Player:
    """One replay of a trace to one target."""

    def __init__(self, requests: _Requests, target: ReplayTarget) -> None:
        self._requests = requests
        self._target = target
        self._live: list[Any] = [None] * requests.count
        #: When each expired, in seconds; inf: it did not.
        self._expired_at = [inf] * requests.count
        self._wakeups_in_trace = 0

    def play(self) -> Replay:
        make = _operation_class(self._target, self._live, self._expired_at)
        for moments, numbers, requests in self._requests.slices():
            self._play_slice(moments, numbers, requests, make)
            self._target.weigh()
            if numbers[-1] == self._requests.count - 1:
                self._wakeups_in_trace = self._target.counts()["wakeups"]
        self._target.run_to(self._requests.over())
        return self._result()

    def _play_slice(self, moments: list[float], numbers: list[int], requests: Any, make: Any) -> None:
        live, take, run_to = self._live, requests.__next__, self._target.run_to
        park, force_complete = self._target.park, make.force_complete
        for moment, number in zip(moments, numbers, strict=True):
            run_to(moment)
            if number >= 0:
                keys, timeout, completes_at = take()
                op = make(timeout)
                op.completes_at = completes_at
                op.number = number
                park(op, keys)
                live[number] = op
            elif (op := live[~number]) is not None:
                live[~number] = None
                force_complete(op)

    def _result(self) -> Replay:
        requests = self._requests
        expired_at = np.array(self._expired_at)
        expired = expired_at < inf
        ended_us = np.where(requests.has_event, requests.completes_at_us, -1)
        ended_us[expired] = np.round(expired_at[expired] * 1e6)
        lateness_us = (ended_us - requests.arrival_us - requests.timeout_us)[expired]
        return Replay(
            ended_us,
            expired,
            lateness_us,
            self._target.counts(),
            self._wakeups_in_trace,
            _peak(requests.arrival_us, ended_us),
            self._target.peak_bytes,
        )


def _peak(begun_us: Array, ended_us: Array) -> int:
    """The most operations pending at once; an end counts after the beginnings of the same microsecond."""
    ends = np.sort(ended_us[ended_us >= 0])
    return int((np.arange(1, len(begun_us) + 1) - ends.searchsorted(begun_us, side="left")).max(initial=0))


def _operation_class(target: ReplayTarget, live: list[Any], expired_at: list[float]) -> type[AwaitableOperation]:
    """Return the operation class of one replay. Its operations share a closure, not attributes."""

    class Request(AwaitableOperation):
        __slots__ = ("completes_at", "number")
        # Set by the player, because a Python __init__() would be another call per operation.
        completes_at: float
        number: int

        def try_complete(self) -> Any:
            return target.now >= self.completes_at and self.force_complete()

        def on_expiration(self) -> None:
            expired_at[self.number] = target.now
            live[self.number] = None

    return Request
