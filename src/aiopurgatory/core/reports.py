"""Reports: every end goes to the observers; failures that nothing retrieved go to the loop's exception handler."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, final

from .loop import Loop
from .observer import Observer
from .operation import Operation, failure_of, is_retrieved, keys_of, lateness, waited
from .outcome import Outcome
from .states import EXPIRED, OUTCOMES


@final
class Reports:
    """Args: observers: told of every operation that ends. warn: called with a line for the log."""

    __slots__ = ("_aged", "_fresh", "_loop", "_turn_budget", "_warn", "_warned", "observers")

    def __init__(
        self, loop: Loop, observers: tuple[Observer, ...], turn_budget: float, warn: Callable[[str], object]
    ) -> None:
        self._loop = loop
        self._turn_budget = turn_budget
        self._warn = warn
        self._warned: set[Any] = set()
        # Failures of this loop iteration, and of earlier ones.
        self._fresh: deque[Operation] = deque()
        self._aged: deque[Operation] = deque()
        self.observers = observers

    def ended(self, op: Operation, outcome: int) -> None:
        """Tell the observers that *op* has ended."""
        now = self._loop.time()
        late: float | None = lateness(op, now) if outcome == EXPIRED else None
        for observer in self.observers:
            try:
                observer.ended(op, as_outcome(outcome), waited(op, now), late)
            except (Exception, CancelledError) as exc:
                self._loop.report(op, exc, "observer raised")

    def tell(self, tell: Callable[[Observer], object]) -> None:
        """Call *tell* with each observer."""
        for observer in self.observers:
            try:
                tell(observer)
            except Exception as exc:
                self._loop.report(None, exc, "observer raised")

    def failed(self, op: Operation, is_open: bool) -> None:
        """Report the failure of *op* in two loop iterations, unless it is retrieved by then; when closed, at once.

        One iteration is not enough: a task created in this one, to await *op*, starts only in the next.
        """
        self._fresh.append(op)
        if not is_open:
            self.failed_at_last()
        elif len(self._fresh) == 1 and not self._aged:
            self._loop.call_soon(self._age, None)

    def failed_at_last(self) -> None:
        """Report all failures now: the loop may not run again (I13)."""
        self._aged.extend(self._fresh)
        self._fresh.clear()
        self._report_aged(inf)

    def missed_trigger(self, op: Operation) -> None:
        """In asyncio's debug mode, warn of a key that is never checked; once per kind of key."""
        if not self._loop.debug:
            return
        key = keys_of(op)[0]
        kind = kind_of(key)
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(
                f"{described(op)} completed only at its deadline: its condition held, but none of its keys had been "
                f"checked; call check_and_complete({described(key)}) when the state behind it changes"
            )

    def _age(self, _: object) -> None:
        try:
            self._report_aged(self._turn_budget)
        finally:  # a handler may raise KeyboardInterrupt: the others are reported even so
            self._aged.extend(self._fresh)
            self._fresh.clear()
            if self._aged:
                self._loop.call_soon(self._age, None)

    def _report_aged(self, budget: float) -> None:
        """Call the loop's exception handler, for *budget* seconds."""
        stop = self._loop.turn_time() + budget
        while self._aged:
            op = self._aged.popleft()
            failure = None if is_retrieved(op) else failure_of(op)
            if failure is not None:
                self._loop.report(op, failure, f"{described(op)} failed and nothing awaits it")
                if self._loop.turn_time() >= stop:
                    break


def as_outcome(state: int) -> Outcome:
    outcome = OUTCOMES[state]
    assert outcome is not None  # never called for a pending one
    return outcome


def described(thing: object) -> str:
    """Return the repr of *thing*; if that raises, since it is the user's code, the name of its class."""
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}>"


def kind_of(key: Any) -> Any:
    """The kind of *key*: its type; for a tuple also its length and the text it begins with."""
    if isinstance(key, tuple) and key and type(key[0]) is str:
        return type(key), len(key), key[0]
    return type(key)
