"""Replays a trace through a purgatory on a virtual clock: the library's own timer and core, not a model of them.

Nothing waits. The clock stands at the arrival or the completion that is at hand, and before it moves on to the next
one, whatever the purgatory has armed it for until then runs at its own time. What a trace leaves open is decided here:
an operation is completed as in Kafka's benchmark, by itself and not by a check of a key that others wait under, too.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aiopurgatory.core.nanoseconds import RANGE

from .designs import New, Old, VirtualClock
from .settings import OLD, Setting

Array = np.ndarray[Any, np.dtype[Any]]

#: Arrivals and completions that become Python objects at a time, at most.
SLICE: Final = 8_192
#: New objects after which Python's collector looks at them.
_YOUNG: Final = 100_000
#: Seconds after the last event; what is not due by then is left as it is.
PATIENCE: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of a trace."""

    #: Per operation, in order of arrival: its end in us, -1 if nothing ended it, and whether it expired.
    ended_us: Array
    expired: Array
    #: Of those that expired, from deadline to end.
    lateness_us: Array
    #: What the purgatory did, by name.
    counts: dict[str, int]
    #: Until the last arrival.
    wakeups_in_trace: int
    peak_pending: int
    #: Entries under keys, and in the old one's heap, those of ended operations, too; and bytes of all that it held, but
    #: for what the operations carry. The most of some hundred moments.
    peak_listed: int
    peak_bytes: int


def replay(trace: pa.Table, setting: Setting) -> Replay:
    """Play *trace*, whose rows are in order of arrival, to a purgatory set like *setting*.

    Cost: about as many seconds as the purgatory itself needs for it.
    """
    thresholds = gc.get_threshold()
    # Of a hundred thousand operations that live on, looking through them again and again is up to half of the work.
    gc.set_threshold(_YOUNG, *thresholds[1:])
    try:
        return asyncio.run(_replay(trace, setting))
    finally:
        gc.set_threshold(*thresholds)


async def _replay(trace: pa.Table, setting: Setting) -> Replay:
    requests = _Requests(trace, setting)
    # The new one's tick says when it wakes up; the old one's operations would, each at a time of its own.
    clock = VirtualClock(whole_ms=setting.design == OLD)
    subject = Old(clock, setting) if setting.design == OLD else New(clock, setting)
    await subject.start()
    try:
        return _Player(requests, clock, subject).play()
    finally:
        await subject.stop()


class _Requests:
    """The trace as it is played: two events per operation, in order of time, an arrival first where they coincide."""

    def __init__(self, trace: pa.Table, setting: Setting) -> None:
        self.count = trace.num_rows
        self.arrival_us: Array = trace["arrival_us"].to_numpy()
        self.timeout_us: Array = trace["timeout_us"].to_numpy()
        if setting.timeout_ms is not None:
            self.timeout_us = np.full(self.count, round(setting.timeout_ms * 1000))
        never = trace["completion_us"].is_null().to_numpy()
        completion_us: Array = trace["completion_us"].fill_null(0).to_numpy()
        self.completes_at_us = np.where(never, -1, self.arrival_us + completion_us)
        keys = trace["keys"].combine_chunks()
        self._flat: Array = keys.flatten().to_numpy()
        self._offsets: Array = keys.offsets.to_numpy() - keys.offsets[0].as_py()
        # Later than that, it has expired whatever the setting: an event that would find nobody is none.
        self.slack = max(setting.tick_ms or 0, 1) / 1000
        self.has_event = ~never & (completion_us <= self.timeout_us + self.slack * 1e6)
        completing = np.flatnonzero(self.has_event)
        moments = np.concatenate([self.arrival_us, self.completes_at_us[completing]])
        order = np.argsort(moments, kind="stable")
        self._moments = moments[order]
        self._numbers = np.concatenate([np.arange(self.count), ~completing])[order]

    def over(self) -> float:
        """The moment by which everything has ended that ends at all."""
        deadlines = (self.arrival_us + self.timeout_us)[self.timeout_us / 1e6 < RANGE]
        last_event = self._moments[-1] / 1e6 if self.count else 0.0
        return min(float(deadlines.max(initial=0)) / 1e6, last_event + PATIENCE) + self.slack

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
    """One run."""

    def __init__(self, requests: _Requests, clock: VirtualClock, subject: New | Old) -> None:
        self._requests = requests
        self._clock = clock
        self._subject = subject
        self._live: list[Any] = [None] * requests.count
        self._expired: list[int] = []
        self._expired_at: list[float] = []
        self._wakeups_in_trace = 0

    def play(self) -> Replay:
        make = _operation_class(self._subject.operation, self._clock, self._note_expired)
        for moments, numbers, requests in self._requests.slices():
            self._play_slice(moments, numbers, requests, make)
            self._subject.weigh()
            if numbers[-1] == self._requests.count - 1:
                self._wakeups_in_trace = self._subject.counts()["wakeups"]
        self._clock.run_to(self._requests.over())
        return self._result()

    def _play_slice(self, moments: list[float], numbers: list[int], requests: Any, make: Any) -> None:
        clock, live, take = self._clock, self._live, requests.__next__
        watch, force_complete = self._subject.watch, make.force_complete
        for moment, number in zip(moments, numbers, strict=True):
            if clock.due <= moment:
                clock.run_to(moment)
            clock.now = moment
            if number >= 0:
                keys, timeout, completes_at = take()
                op = make(timeout)
                op.completes_at = completes_at
                op.number = number
                live[number] = watch(op, keys)
            else:
                op = live[~number]
                if op is not None:
                    live[~number] = None
                    force_complete(op)

    def _note_expired(self, number: int) -> None:
        self._expired.append(number)
        self._expired_at.append(self._clock.now)
        self._live[number] = None

    def _result(self) -> Replay:
        requests = self._requests
        ended_us = np.where(requests.has_event, requests.completes_at_us, -1)
        numbers = np.array(self._expired, np.int64)
        expired_us = np.round(np.array(self._expired_at) * 1e6).astype(np.int64)
        ended_us[numbers] = expired_us
        expired = np.zeros(requests.count, bool)
        expired[numbers] = True
        lateness_us = expired_us - requests.arrival_us[numbers] - requests.timeout_us[numbers]
        return Replay(
            ended_us,
            expired,
            lateness_us,
            self._subject.counts(),
            self._wakeups_in_trace,
            _peak(requests.arrival_us, ended_us),
            self._subject.peak_listed,
            self._subject.peak_bytes,
        )


def _peak(begun_us: Array, ended_us: Array) -> int:
    """Most at once; an end counts after the beginnings of the same moment."""
    ends = np.sort(ended_us[ended_us >= 0])
    return int((np.arange(1, len(begun_us) + 1) - ends.searchsorted(begun_us, side="left")).max(initial=0))


def _operation_class(base: Any, clock: VirtualClock, note_expired: Callable[[int], None]) -> Any:
    """The operation of Kafka's benchmark for one run: what a million of them share is no attribute of each."""

    class Request(base):  # type: ignore[misc]
        __slots__ = ("completes_at", "number")

        def try_complete(self) -> Any:
            return clock.now >= self.completes_at and self.force_complete()

        def on_expiration(self) -> None:
            note_expired(self.number)

    return Request
