"""The common part of the two purgatories of the model test, and the real one of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from aiopurgatory import DelayedOperation, Observer, Outcome, Purgatory, PurgatoryClosedError, PurgatoryError
from aiopurgatory.testing import ManualClock, check_invariants

# All times are multiples of 1/128 s, so that their sums are exact. The first is between two ticks and the steps are
# 1/64 s: on a tick, a timeout of 0 may take no tick or one, and no model could tell.
START = 1 / 128
TICK = 0.25

#: An action on a purgatory: the name of a method, of the purgatory or an operation, and its arguments.
Action: TypeAlias = tuple[Any, ...]
Result: TypeAlias = tuple[int, bool]


class UserError(Exception):
    """The exception of users' code here."""


class Spec(NamedTuple):
    """An operation to be made. Each entry of its script is played once, in the hook that it names, the first first."""

    keys: list[str]
    timeout: float | None
    needs: int
    script: list[tuple[str, list[Action]]]


class Hooks:
    """An operation of either side, as far as users write it: it waits until so much more has been published."""

    def __init__(self, side: Side, spec: Spec) -> None:
        self.side, self.n, self.script = side, len(side.ops), list(spec.script)
        self.needs = side.published + spec.needs
        self.tries = 0
        self.completing = False
        side.ops.append(self)

    def try_complete(self: Any) -> bool:
        self.tries += 1
        self.side.play(("first_try", "second_try", "later_try")[min(self.tries, 3) - 1], self)
        return bool(self.side.published >= self.needs and self.force_complete())

    def on_complete(self: Any) -> Result:
        self.completing = True
        try:
            self.side.play("on_complete", self)
        finally:
            self.completing = False
        return self.n, self.expired

    def on_expiration(self) -> None:
        self.side.play("on_expiration", self)

    def on_cancel(self) -> None:
        self.side.play("on_cancel", self)

    def on_undelivered(self, result: Result) -> None:
        self.side.undelivered[result] += 1


class Side(ABC):
    """One of the two purgatories, and all that has happened there."""

    purgatory: Any

    def __init__(self) -> None:
        self.published = 0
        self.ops: list[Any] = []
        self.waits: list[Any] = []
        self.log: list[tuple[object, ...]] = []
        self.ended: Counter[tuple[object, ...]] = Counter()
        self.undelivered: Counter[Result] = Counter()
        self.reported: Counter[tuple[int, object]] = Counter()

    # The two sides, real and naive, differ in these.
    @abstractmethod
    def new_op(self, spec: Spec) -> Any: ...

    @abstractmethod
    def time(self) -> float: ...

    def check(self) -> None:  # noqa: B027 the naive one has no structures that could be wrong
        """Called inside each hook."""

    def play(self, hook: str, op: Any) -> None:
        self.log.append((hook, op.n, self.time(), self.purgatory.num_delayed, self.purgatory.watched_entries))
        self.check()
        entry = next((entry for entry in op.script if entry[0] == hook), None)
        if entry is not None:
            op.script.remove(entry)
            for action in entry[1]:
                self.act(action, op)

    def act(self, action: Action, inside: Any = None) -> None:
        """Do *action*, in a hook of the operation *inside* or in none, and write down the result."""
        try:
            answer = self.answer(action, inside)
        except (PurgatoryError, ValueError) as exc:
            answer = type(exc)
        self.log.append((action[0], answer))

    def answer(self, action: Action, inside: Any) -> object:
        method, *args = action
        match action:
            case ("raise",):
                raise UserError(f"in a hook of {inside.n}")
            case ("leave", back):
                return self.leave(back, inside)
            case ("watch", spec):
                return self.purgatory.try_complete_else_watch(self.new_op(spec), spec.keys)
            case ("reschedule", back, timeout):
                return self.purgatory.reschedule(self.op(back, inside), timeout)
            case ("cancel_for_key", key):
                return [op.n for op in self.purgatory.cancel_for_key(key)]
            case ("complete_for_key", key):
                return [op.n for op in self.purgatory.complete_for_key(key)]
            case ("publish",):
                self.published += 1
                return None
            case ("fail", back):
                return self.op(back, inside).fail(UserError("told to"))
            case ("force_complete" | "cancel", back):
                return getattr(self.op(back, inside), method)()
        return getattr(self.purgatory, method)(*args)

    def op(self, back: int | None, inside: Any) -> Any:
        """The operation of this hook, or the one that came so many before the last."""
        return inside if back is None else self.ops[-1 - back % len(self.ops)]

    def leave(self, back: int | None, inside: Any) -> object:
        """Cancel an awaiting task.

        Not in a hook if the operation has ended: whether the task has its result by then is up to the event loop.
        """
        if self.waits:
            wait = self.waits[-1 - (back or 0) % len(self.waits)]
            if inside is None or wait.op.outcome is None or wait.op.completing:
                wait.cancel()
        return None

    def state(self) -> object:
        ops = [(op.outcome, op.expired, op.timeout, op.keys, answer_of(op)) for op in self.ops]
        return ops, [wait.answer() for wait in self.waits], self.ended, self.undelivered, self.reported


def answer_of(op: Any) -> object:
    """The result of awaiting *op*, as something that compares equal."""
    try:
        return op.result()
    except (UserError, PurgatoryClosedError, asyncio.CancelledError, asyncio.InvalidStateError) as exc:
        return shown(exc)


def shown(exc: BaseException) -> str:
    return f"UserError {exc}" if isinstance(exc, UserError) else type(exc).__name__


class RealOp(Hooks, DelayedOperation[Result]):
    def __init__(self, side: Side, spec: Spec) -> None:
        DelayedOperation.__init__(self, spec.timeout)
        Hooks.__init__(self, side, spec)


class RealWait:
    """A task that awaits an operation."""

    def __init__(self, op: RealOp) -> None:
        self.op = op
        self.task = asyncio.ensure_future(self.awaited())

    async def awaited(self) -> object:
        try:
            return await self.op
        except (UserError, PurgatoryClosedError, asyncio.CancelledError, RuntimeError) as exc:
            return shown(exc)

    def cancel(self) -> None:
        self.task.cancel()

    def answer(self) -> object:
        return self.task.result() if self.task.done() else None


class Recorder(Observer):
    def __init__(self, side: RealSide) -> None:
        self.side = side

    def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
        self.side.ended[op.n, outcome, waited, op.keys] += 1
        if (lateness is not None) != op.expired or not 0 <= (lateness or 0) <= TICK:
            self.side.broken.append(f"{op} was {lateness} s late")


class RealSide(Side):
    def __init__(self, purge_interval: int, max_pending: int | None) -> None:
        super().__init__()
        self.broken: list[object] = []
        self.clock = ManualClock(START)
        self.purgatory = Purgatory(
            "model",
            tick=TICK,
            wheel_size=4,
            purge_interval=purge_interval,
            max_pending=max_pending,
            turn_budget=1000.0,  # a turn is never cut short, so the order of events is known
            clock=self.clock,
            observers=[Recorder(self)],
        )

    def new_op(self, spec: Spec) -> RealOp:
        return RealOp(self, spec)

    def time(self) -> float:
        return self.clock.time()

    def check(self) -> None:
        try:
            check_invariants(self.purgatory)
        except AssertionError as exc:  # raised in a hook, it would end the operation and no more
            self.broken.append(exc)

    async def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self.report)
        await self.purgatory.start()

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        op = context.get("operation")
        if isinstance(op, RealOp):
            self.reported[op.n, shown(context["exception"])] += 1
        else:
            self.broken.append(context)

    async def step(self, actions: Iterable[Action], seconds: float) -> None:
        for action in actions:
            self.act(action)
        await self.clock.advance(seconds)

    async def wait(self, back: int) -> None:
        self.waits.append(RealWait(self.op(back, None)))
        await self.clock.advance(0)

    async def end(self) -> None:
        self.act(("close",))
        await self.purgatory.aclose()
        await self.clock.advance(1000)
        assert asyncio.all_tasks() == {asyncio.current_task()}
