"""Replays a trace through a purgatory on a virtual clock: the library's own timer and core, not a model of them.

Nothing waits. The clock stands at the arrival or the completion that is at hand, and before it moves on to the next
one, whatever the purgatory has armed it for until then runs at its own time. What a trace leaves open is decided here:
an operation is completed as in Kafka's benchmark, by itself and not by a check of a key that others wait under, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from sys import getsizeof
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aiopurgatory.core.moments import RANGE
from aiopurgatory.core.turns import expire_due, purge_some
from aiopurgatory.core.watchers import listed
from aiopurgatory.operation import DelayedOperation
from aiopurgatory.purgatory import Purgatory

from .old_purgatory import OldOperation, OldPurgatory

Array = np.ndarray[Any, np.dtype[Any]]

#: Arrivals and completions that become Python objects at a time, at most.
SLICE: Final = 8_192
#: Seconds after the last event; what is not due by then is left as it is.
PATIENCE: Final = 86_400.0
NEW: Final = "new"
OLD: Final = "old"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a purgatory is set. The old one has no timing wheel, and always a purge interval."""

    design: str = NEW
    tick_ms: float | None = 1.0
    wheel_size: int | None = 20
    purge_interval: int = 0
    #: For all operations; None: each has its own.
    timeout_ms: float | None = None


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
    return asyncio.run(_replay(trace, setting))


async def _replay(trace: pa.Table, setting: Setting) -> Replay:
    requests = _Requests(trace, setting)
    # The new one's tick says when it wakes up; the old one's operations would, each at a time of its own.
    clock = VirtualClock(whole_ms=setting.design == OLD)
    subject = _Old(clock, setting) if setting.design == OLD else _New(clock, setting)
    await subject.start()
    try:
        return _Player(requests, clock, subject).play()
    finally:
        await subject.stop()


class VirtualClock:
    """A Clock that stands still but for run_to(). A purgatory arms one handle at a time (I3), so it holds one.

    Args: whole_ms: wake up at whole milliseconds, as event loops do.
    """

    __slots__ = ("_at", "_callback", "_whole_ms", "_woken", "due", "now")

    def __init__(self, whole_ms: bool = False) -> None:
        self._whole_ms = whole_ms
        self.now = 0.0
        #: When there is something to run; before all time if that is at once.
        self.due = inf
        self._at = inf
        self._callback: Callable[[], object] = int
        self._woken: Callable[[], object] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualClock:
        self._at = max(when, ceil(when * 1e3) / 1e3) if self._whole_ms else when
        self._callback = callback
        if self._woken is None:
            self.due = self._at
        return self

    def cancel(self) -> None:
        self._at = inf
        if self._woken is None:
            self.due = inf

    def wake(self, callback: Callable[[], object]) -> None:
        """Run *callback* before the time moves on."""
        self._woken = callback
        self.due = -inf

    def run_to(self, now: float) -> None:
        """Run what is due by *now*, in order of time."""
        while self.due <= now:
            woken = self._woken
            if woken is not None:
                self._woken = None
                self.due = self._at
                woken()
            else:
                self.now = max(self.now, self.due)
                self.due = self._at = inf
                self._callback()


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
        for begin in range(0, len(self._moments), size):
            numbers = self._numbers[begin : begin + size]
            until = begun + int((numbers >= 0).sum())
            yield (self._moments[begin : begin + size] / 1e6).tolist(), numbers.tolist(), self._objects(begun, until)
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

    def __init__(self, requests: _Requests, clock: VirtualClock, subject: _New | _Old) -> None:
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


class _Simulated(Purgatory):
    """A purgatory whose clock task takes its turns when the virtual clock says so, and not on the loop's next turn."""

    __slots__ = ("_before_purge", "_wake")
    _wake: Callable[[Callable[[], object]], None]
    _before_purge: Callable[[], None]

    def _turn(self) -> bool:
        expire_due(self, inf)
        if self._purge_wanted:
            self._before_purge()
        purge_some(self, inf)
        return False

    def _wake_clock(self) -> None:
        if self._open:
            self._wake(self._take_turn)
        else:
            super()._wake_clock()

    def _take_turn(self) -> None:
        self._turn()
        self._arm_clock()


class _Subject:
    """What is replayed to, and how much it held."""

    operation: Any
    watch: Callable[[Any, tuple[Hashable, ...]], Any]

    def __init__(self) -> None:
        self.peak_listed = 0
        self.peak_bytes = 0
        self._weighed = 0

    def weigh(self) -> None:
        """Take the size, if there is a good deal more than when it was taken last."""
        entries = self.entries()
        self.peak_listed = max(self.peak_listed, entries)
        if entries > self._weighed * 1.02:
            self._weighed = entries
            self.peak_bytes = max(self.peak_bytes, self.size())

    def entries(self) -> int:
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError


class _New(_Subject):
    operation = DelayedOperation

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        super().__init__()
        self._visited = 0
        self._purgatory = _Simulated(
            "simulated",
            tick=(setting.tick_ms or 1.0) / 1000,
            wheel_size=setting.wheel_size or 20,
            purge_interval=setting.purge_interval,
            clock=clock,
        )
        self._purgatory._wake = clock.wake
        self._purgatory._before_purge = self._before_purge
        self.watch = self._purgatory.watch

    async def start(self) -> None:
        await self._purgatory.start()
        await asyncio.sleep(0)  # the clock task goes to sleep

    async def stop(self) -> None:
        await self._purgatory.aclose()

    def entries(self) -> int:
        return self._purgatory.watched

    def counts(self) -> dict[str, int]:
        known = self._purgatory.statistics()
        return {
            "cascades": known.cascaded,
            "wakeups": known.wakeups,
            "heap_operations": self._purgatory._timer.heap_operations,
            "purges": known.purges,
            "purge_visits": self._visited,
        }

    def size(self) -> int:
        watchers, timer = self._purgatory._watchers, self._purgatory._timer
        shared = [entry for entry in watchers._by_key.values() if isinstance(entry, dict)]
        buckets = [bucket for wheel in timer._wheels for bucket in wheel.buckets]
        queue = timer._queue._heap
        ops = {id(op): op for entry in watchers._by_key.values() for op in listed(entry)}
        return (
            sum(map(getsizeof, [watchers._by_key, queue, *queue, *shared, *buckets, *ops.values()]))
            + sum(getsizeof(op._op_number) for op in ops.values() if op._op_number is not None)
            + sum(getsizeof(bucket.expiration) for bucket in buckets if bucket.queued)
        )

    def _before_purge(self) -> None:
        self._visited += self._purgatory.watched


class _Old(_Subject):
    operation = OldOperation

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        super().__init__()
        self._purgatory = OldPurgatory(clock, setting.purge_interval)
        self.watch = self._purgatory.watch

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._purgatory.close()

    def entries(self) -> int:
        return self._purgatory.listed()

    def counts(self) -> dict[str, int]:
        old = self._purgatory
        return {
            "cascades": 0,
            "wakeups": old.wakeups,
            "heap_operations": old.pushed + old.popped,
            "purges": old.purges,
            "purge_visits": old.visited,
        }

    def size(self) -> int:
        watchers, heap = self._purgatory._watchers, self._purgatory._heap
        ops = {id(op): op for waiting in watchers.values() for op in waiting}
        ops.update((id(op), op) for _, _, op in heap)
        parts = [watchers, heap, *watchers.values(), *ops.values()]
        return sum(map(getsizeof, parts)) + sum(sum(map(getsizeof, (entry, *entry[:2]))) for entry in heap)
