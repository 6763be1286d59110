"""The promises of a purgatory, kept with lists that are searched each time: no wheel, no clock task, no event loop."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable

from aiopurgatory import Outcome, PurgatoryClosedError, PurgatoryFullError

from .sides import START, TICK, Action, Hooks, RealSide, Side, Spec, UserError, answer_of, shown


class NaiveOp(Hooks):
    def __init__(self, side: Side, spec: Spec) -> None:
        super().__init__(side, spec)
        self.timeout = spec.timeout
        self.keys: tuple[str, ...] = ()
        self.outcome: Outcome | None = None
        self.value: object = None
        self.owner: NaivePurgatory | None = None
        self.watched_at: float | None = None
        self.due: float | None = None
        self.last_try = False
        self.trying = False
        self.waits: list[NaiveWait] = []
        self.ended_first = False  # before the clock was woken

    @property
    def expired(self) -> bool:
        return self.outcome is Outcome.EXPIRED

    def result(self) -> object:
        if self.outcome is None:
            raise asyncio.InvalidStateError
        if self.outcome is Outcome.CANCELLED:
            raise asyncio.CancelledError
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def ends_when_tried(self) -> bool:
        self.trying = True
        try:
            self.try_complete()
        except UserError as exc:
            if not self.fail(exc):
                self.side.reported[self.n, shown(exc)] += 1
        self.trying = False
        return self.outcome is not None

    def force_complete(self) -> bool:
        return self.outcome is None and self.complete(Outcome.COMPLETED)

    def complete(self, outcome: Outcome) -> bool:
        self.end(outcome)
        return self.settle_completed(outcome)

    def settle_completed(self, outcome: Outcome) -> bool:
        try:
            value: object = self.on_complete()
        except UserError as exc:
            return self.settle(Outcome.FAILED, exc)
        if outcome is Outcome.EXPIRED:
            try:
                self.on_expiration()
            except UserError as exc:
                value = exc
        return self.settle(outcome, value)

    def fail(self, exc: Exception) -> bool:
        if self.outcome is not None:
            return False
        self.end(Outcome.FAILED)
        return self.settle(Outcome.FAILED, exc)

    def cancel(self) -> bool:
        if self.outcome is not None:
            return False
        self.end(Outcome.CANCELLED)
        self.settle_cancelled()
        return True

    def settle_cancelled(self) -> None:
        self.settle(Outcome.CANCELLED, None)
        try:
            self.on_cancel()
        except UserError as exc:
            if self.owner is not None:
                self.side.reported[self.n, shown(exc)] += 1

    def end(self, outcome: Outcome) -> None:
        self.outcome, self.due = outcome, None
        if self.owner is not None and self in self.owner.pending:
            self.owner.let_go(self)

    def settle(self, outcome: Outcome, value: object) -> bool:
        self.outcome, self.value = outcome, value
        if self.owner is not None:
            self.ended_first = not self.owner.woken
            self.owner.ended[outcome] += 1
            waited = 0.0 if self.watched_at is None else self.owner.now - self.watched_at
            self.side.ended[self.n, outcome, waited, self.keys] += 1
            if not self.waits:
                self.report_failure()
        self.kept_keys, self.keys = self.keys, ()
        return True

    def report_failure(self) -> None:
        if self.outcome is Outcome.FAILED and not isinstance(self.value, PurgatoryClosedError):
            self.side.reported[self.n, answer_of(self)] += 1

    def deliver(self) -> None:
        """Its awaiting tasks have their turn."""
        if self.outcome is None or not self.waits:
            return
        for wait in self.waits:
            wait.got = "CancelledError" if wait.left else answer_of(self)
        if all(wait.left for wait in self.waits):
            self.report_failure()
            if isinstance(self.value, tuple):
                self.on_undelivered(self.value)
                assert self.owner is not None
                for key in self.kept_keys:
                    self.owner.notify(key, 1)
        self.waits = []


class NaiveWait:
    def __init__(self, op: NaiveOp) -> None:
        self.op = op
        self.left = False
        self.got: object = None
        if op.outcome is None and op.owner is None:
            self.got = "RuntimeError"
        else:
            op.waits.append(self)

    def cancel(self) -> None:
        if self.got is None and not self.op.cancel():
            self.left = True

    def answer(self) -> object:
        return self.got


class NaivePurgatory:
    def __init__(self, side: NaiveSide, purge_interval: int, max_pending: int | None) -> None:
        self.side, self.purge_interval, self.max_pending = side, purge_interval, max_pending
        self.now = START
        self.open = True
        self.expiring = self.expire_again = False
        self.pending: list[NaiveOp] = []
        self.under: dict[str, list[NaiveOp]] = {}
        self.ended: Counter[Outcome] = Counter()
        self.nested: list[str | None] = []  # None: every key
        self.walking = False
        self.soon: dict[str, float] = {}
        self.estimated_total = 0
        self.purge_wanted = False
        self.purges = 0
        self.woken = False  # the clock is to work: the tasks of what ends from now on have their turn after it

    @property
    def num_delayed(self) -> int:
        return len(self.pending)

    @property
    def watched_entries(self) -> int:
        return sum(map(len, self.under.values()))

    # in and out

    def try_complete_else_watch(self, op: NaiveOp, keys: list[str]) -> bool:
        if not self.open:
            raise PurgatoryClosedError
        op.owner, op.keys = self, tuple(dict.fromkeys(keys))
        if op.ends_when_tried():
            return True
        full = self.max_pending is not None and len(self.pending) >= self.max_pending
        if full or not self.open:
            op.owner, op.keys = None, ()
            raise PurgatoryFullError if full else PurgatoryClosedError
        self.pending.append(op)
        for key in op.keys:
            self.under.setdefault(key, []).append(op)
        self.estimated_total += 1
        self.consider_purge()
        op.watched_at = self.now
        self.arm(op)
        return op.ends_when_tried()

    def arm(self, op: NaiveOp) -> None:
        op.due = None
        if op.timeout is not None:
            op.due = TICK * max(math.ceil((self.now + op.timeout) / TICK), math.floor(self.now / TICK) + 1)

    def let_go(self, op: NaiveOp) -> None:
        self.pending.remove(op)
        if op.outcome is Outcome.CANCELLED or not self.purge_interval:
            for key in op.keys:
                self.drop(op, key)
        self.consider_purge()

    def drop(self, op: NaiveOp, key: str) -> int:
        waiting = self.under.get(key, [])
        if op not in waiting:
            return 0
        waiting.remove(op)
        if not waiting:
            del self.under[key]
        return 1

    # checks

    def check_and_complete(self, key: str) -> int:
        return self.check(key, self.under[key]) if key in self.under else 0

    def check_all(self) -> int:
        return self.check(None, self.every_pending()) if self.pending else 0

    def check(self, key: str | None, ops: list[NaiveOp]) -> int:
        if self.walking:
            if key not in self.nested:
                self.nested.append(key)
            return 0
        self.walking = True
        ended = self.try_each(key, ops)
        while self.nested:
            key = self.nested.pop(0)
            self.try_each(key, self.every_pending() if key is None else self.under.get(key, []))
        self.walking = False
        return ended

    def try_each(self, key: str | None, ops: list[NaiveOp]) -> int:
        ended = 0
        for op in list(ops):
            if op.outcome is None and op.trying:
                self.notify(op.keys[0] if key is None else key)
            elif op.outcome is None:
                op.ends_when_tried()
                ended += op.outcome in (Outcome.COMPLETED, Outcome.FAILED)
            if op.outcome is not None and key is not None:
                self.drop(op, key)
        return ended

    def every_pending(self) -> list[NaiveOp]:
        """The pending operations, key by key, each once.

        Which comes first matters: one that is being tried and one whose try ends it, in the same check of everything.
        """
        return list(dict.fromkeys(op for ops in self.under.values() for op in ops if op.outcome is None))

    def notify(self, key: str, limit: float = math.inf) -> None:
        if key in self.under:
            self.soon[key] = self.soon.get(key, 0) + limit
            self.woken = True

    # time

    def advance(self, seconds: float) -> None:
        target = self.now + seconds
        self.turn()
        while (due := min((op.due for op in self.pending if op.due is not None), default=math.inf)) <= target:
            self.now = due
            self.turn()
        self.now = target

    def turn(self) -> None:
        for op in self.side.ops:
            if op.ended_first:
                op.deliver()
        while due := [op for op in self.pending if op.due is not None and op.due <= self.now]:
            self.expire(self.side.next_tried(due))
        while self.soon:
            key = next(iter(self.soon))
            limit = self.soon.pop(key)
            for op in list(self.under.get(key, [])):
                keys = op.keys
                if (
                    op.outcome is None or limit == math.inf
                ):  # a call passes over the ended, and leaves them to the purge
                    self.check(key, [op])
                limit -= op.outcome is Outcome.COMPLETED and len(keys) == 1  # the ended have no keys
                if limit == 0:
                    break
        if self.purge_wanted:
            self.purge()
        for op in self.side.ops:
            op.deliver()
        self.woken = False
        if self.soon:  # something was put back
            self.turn()

    def expire(self, op: NaiveOp) -> bool:
        op.due, op.last_try = None, True
        if op.ends_when_tried():
            return True
        return op.last_try and op.complete(Outcome.EXPIRED)

    def expire_all(self) -> int:
        self.expire_again = True
        if self.expiring:
            return 0
        self.expiring, ended = True, 0
        while self.expire_again:
            self.expire_again = False
            for op in self.every_pending():
                if op.outcome is None and not op.last_try:  # in its last try further up, it expires then
                    ended += self.expire(op)
        self.expiring = False
        return ended

    def reschedule(self, op: NaiveOp, timeout: float | None) -> bool:
        if op.outcome is not None:
            return False
        if op.owner is not self:
            raise ValueError
        op.timeout, op.last_try = timeout, False
        if op in self.pending:
            self.arm(op)
        return True

    # the rest

    def cancel_for_key(self, key: str) -> list[NaiveOp]:
        ops = [op for op in self.under.get(key, []) if op.outcome is None]
        for op in ops:
            op.end(Outcome.CANCELLED)
        for op in ops:
            op.settle_cancelled()
        return ops

    def complete_for_key(self, key: str) -> list[NaiveOp]:
        ops = [op for op in self.under.get(key, []) if op.outcome is None]
        for op in ops:
            op.end(Outcome.COMPLETED)
        for op in ops:
            op.settle_completed(Outcome.COMPLETED)
        return ops

    def consider_purge(self) -> None:
        if self.estimated_total - len(self.pending) > self.purge_interval > 0:
            self.estimated_total = len(self.pending)
            self.purge_wanted = self.woken = True

    def purge(self) -> int:
        self.purges += 1
        self.purge_wanted = False
        self.estimated_total = len(self.pending)
        stale = [(op, key) for key, ops in self.under.items() for op in ops if op.outcome is not None]
        return sum(self.drop(op, key) for op, key in stale)

    def close(self) -> None:
        self.open = False
        for op in list(self.pending):
            op.fail(PurgatoryClosedError())
        self.under.clear()
        self.nested.clear()
        self.soon.clear()
        self.purge_wanted = False


class NaiveSide(Side):
    """Which of several operations that are due is tried next, it learns from the real side."""

    def __init__(self, purge_interval: int, max_pending: int | None, real: RealSide) -> None:
        super().__init__()
        self.purgatory: NaivePurgatory = NaivePurgatory(self, purge_interval, max_pending)
        self.real = real

    def new_op(self, spec: Spec) -> NaiveOp:
        return NaiveOp(self, spec)

    def time(self) -> float:
        return self.purgatory.now

    def next_tried(self, ops: list[NaiveOp]) -> NaiveOp:
        entry = next(iter(self.real.log[len(self.log) :]), ("",))
        return next((op for op in ops if str(entry[0]).endswith("_try") and entry[1] == op.n), ops[0])

    def step(self, actions: Iterable[Action], seconds: float) -> None:
        for action in actions:
            self.act(action)
        self.purgatory.advance(seconds)

    def wait(self, back: int) -> None:
        self.waits.append(NaiveWait(self.op(back, None)))
        self.purgatory.advance(0)

    def end(self) -> None:
        self.step([("close",)], 1000)
