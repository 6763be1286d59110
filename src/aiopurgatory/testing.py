"""For tests of code that waits: time that moves when told to, and a check of everything a purgatory promises itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from weakref import WeakSet

from .core.endings import is_parked
from .core.operation import Operation
from .core.watchers import listed
from .purgatory import Purgatory
from .timer.delay_queue import NEVER
from .timer.ring import Bucket, Entry

#: Turns of the loop that advance() gives to whoever was woken, and to those whom they wake in turn.
SETTLE_TURNS = 10


class ManualClock:
    """A Clock that stands still but for advance().

        clock = ManualClock()
        async with Purgatory(clock=clock) as purgatory:
            op = purgatory.watch(MyOperation(timeout=30.0), ["key"])
            await clock.advance(30.0)
            assert op.expired

    Its boundary is the real one: what is due at an instant runs when that instant has come, not before and not after.

    Args: start: seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)
        self._handles: list[tuple[float, int, _ManualHandle]] = []
        self._order = count()
        self._purgatories: WeakSet[Purgatory] = WeakSet()

    def __repr__(self) -> str:
        return f"<ManualClock {self._now} s>"

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> _ManualHandle:
        handle = _ManualHandle(callback)
        heappush(self._handles, (when, next(self._order), handle))
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, Purgatory):
            self._purgatories.add(owner)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(self._fire)
        return handle

    async def advance(self, seconds: float) -> None:
        """Move the time on by *seconds*, stopping at every expiration on the way.

        Returns when everything due has run, and tasks that it woke have had a few turns of the loop.

        Raises: ValueError: *seconds* is negative or NaN.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must be >= 0, got {seconds!r}")
        target = self._now + seconds
        await self._settle()
        while self._handles and self._handles[0][0] <= target:
            self._now = max(self._now, self._handles[0][0])
            self._fire()
            await self._settle()
        self._now = target

    def _fire(self) -> None:
        while self._handles and self._handles[0][0] <= self._now:
            callback = heappop(self._handles)[2].callback
            if callback is not None:
                callback()

    async def _settle(self) -> None:
        quiet = 0
        while quiet < SETTLE_TURNS:
            await asyncio.sleep(0)
            asleep = all(purgatory._is_idle() for purgatory in self._purgatories)
            quiet = quiet + 1 if asleep else 0


class _ManualHandle:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


def check_invariants(purgatory: Purgatory) -> None:
    """Check every structure of *purgatory* against every other. Legal at any point, inside hooks, too.

    The others of the invariants I1 to I15 are about what happens, not about what is there: the tests hold those.

    Raises: AssertionError: names the invariant that does not hold: I1, I3, I4, I5, I6, I9 or I13.
    Cost: a walk over everything.
    """
    timed = _check_timer(purgatory)
    pending, listed_under = _check_watchers(purgatory)
    _expect(len(pending) == purgatory._pending, "I5", f"{len(pending)} pending, the gauge says {purgatory._pending}")
    for op in pending.values():
        _expect(is_parked(op) and op._op_owner is purgatory, "I5", f"{op!r} is listed but not parked here")
        _expect(len(set(op.keys)) == len(op.keys) > 0, "I6", f"{op!r} has the keys {op.keys!r}")
        for key in op.keys:
            _expect((key, id(op)) in listed_under, "I6", f"{op!r} does not wait under {key!r}")
        # Asked once more at its deadline, it is out of the timer already.
        _expect(op._op_due or (id(op) in timed) == (op.timeout is not None), "I6", f"{op!r} and the timer disagree")
    _expect(timed <= pending.keys(), "I6", "the timer holds operations that wait under no key")
    _check_sleep(purgatory)
    if purgatory._closed:
        _expect(not pending and purgatory.watched == 0, "I13", "closed, and something is pending")
        _expect(purgatory._handle is None, "I13", "closed, and a handle is armed")


def _check_timer(purgatory: Purgatory) -> set[int]:
    """I1, I3: every bucket holds what belongs there and is queued for its time. Returns: the ids of what is in it."""
    timer = purgatory._timer
    found: set[int] = set()
    earliest: list[int] = []
    queued = [bucket for _, _, bucket in timer._queue._heap]
    _expect(len(set(map(id, queued))) == len(queued), "I3", "a bucket is queued twice")
    for expiration, level, bucket in timer._queue._heap:
        _expect(expiration == bucket.expiration and level == bucket.level, "I3", "a queued bucket changed its time")
        _expect(bucket.queued and expiration >= timer.now, "I3", "a queued bucket is past or not marked")
    for wheel in timer._wheels:
        _expect(wheel.start <= timer.now < wheel.start + wheel.tick, "I9", f"level {wheel.level} is not at the time")
        for bucket in wheel.buckets:
            _expect(bucket.queued == (bucket in queued), "I3", "a bucket is marked queued and is not, or is and is not")
            for task in _ring(bucket):
                fits = bucket.expiration - (wheel.tick if wheel.level == 0 else 0)
                _expect(bucket.queued, "I3", "a bucket with tasks is not queued")
                _expect(
                    fits < task._ring_deadline <= fits + wheel.tick,
                    "I1",
                    f"deadline {task._ring_deadline} in a wrong bucket",
                )
                _expect(task._ring_bucket is bucket, "I5", "a task is counted by another bucket")
                found.add(id(task))
                earliest.append(bucket.expiration)
    for bucket in (timer._due, timer._cascading):
        for task in _ring(bucket):
            found.add(id(task))
            earliest.append(timer.now)
    _expect(len(found) == len(timer), "I5", f"the timer counts {len(timer)} tasks and holds {len(found)}")
    _expect(len(found) == sum(timer.pending_by_level()), "I5", "the buckets count more tasks, or fewer")
    _expect(
        timer.next_expiration() == min(earliest, default=None), "I3", "next_expiration() is not the earliest bucket"
    )
    return found


def _ring(bucket: Bucket) -> Iterator[Entry]:
    task = bucket._ring_next
    before: Entry = bucket
    while task is not bucket:
        assert task is not None
        _expect(task._ring_prev is before, "I6", "a bucket's ring is broken")
        yield task
        before, task = task, task._ring_next
    _expect(bucket._ring_prev is before, "I6", "a bucket's ring is broken")


def _check_watchers(purgatory: Purgatory) -> tuple[dict[int, Operation], set[tuple[Hashable, int]]]:
    """I6: keys have watchers, watchers have not ended. Returns: what is pending by id, and every (key, id)."""
    watchers = purgatory._watchers
    pending: dict[int, Operation] = {}
    listed_under: set[tuple[Hashable, int]] = set()
    for key, entry in watchers._by_key.items():
        ops = listed(entry)
        _expect(len(ops) > 0, "I6", f"key {key!r} has no watchers")
        if isinstance(entry, dict):
            _expect([op._op_number for op in ops] == list(entry), "I6", f"entries of {key!r} do not go by number")
        for op in ops:
            listed_under.add((key, id(op)))
            if not op.done():
                pending[id(op)] = op
            else:
                _expect(purgatory._purge_interval > 0, "I6", f"{op!r} has ended and is listed under {key!r}")
    entries = len(listed_under)
    _expect(entries == watchers.entries, "I6", f"{entries} watch entries, the gauge says {watchers.entries}")
    return pending, listed_under


def _check_sleep(purgatory: Purgatory) -> None:
    """I3, I4: a clock that sleeps wakes in time for the earliest non-empty bucket, and has a handle to do so."""
    if not (purgatory._open and purgatory._is_idle()):
        return
    due = purgatory._timer.next_expiration()
    armed = purgatory._handle is not None
    _expect(armed or due is None, "I4", "operations wait for a deadline and no handle is armed")
    _expect(due is None or purgatory._armed <= due, "I4", f"armed for {purgatory._armed}, due at {due}")
    _expect(armed == (purgatory._armed < NEVER), "I3", "armed without a handle, or a handle without being armed")


def _expect(holds: bool, invariant: str, what: str) -> None:
    if not holds:
        raise AssertionError(f"{invariant}: {what}")
