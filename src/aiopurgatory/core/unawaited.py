"""Failures that nothing awaits go to the loop's exception handler, so that none is lost."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final, final

from ..arguments import described
from .endings import Failure
from .loop import Loop
from .operation import Operation


@final
class Unawaited:
    """Args: turn_budget: seconds that reports may take of one loop iteration."""

    def __init__(self, loop: Loop, turn_budget: float) -> None:
        self._loop: Final = loop
        self._turn_budget: Final = turn_budget
        #: Failures, and how many of them are of earlier loop iterations.
        self._failed: deque[Operation] = deque()
        self._aged = 0

    def add(self, op: Operation, is_open: bool) -> None:
        """Report the failure of *op* in two loop iterations, unless it is retrieved by then; when closed, at once.

        One iteration is not enough: a task created in this one, to await *op*, starts only in the next.
        """
        self._failed.append(op)
        if not is_open:
            self.report_all()
        elif len(self._failed) == 1:
            self._loop.call_soon(self._age, None)

    def report_all(self) -> None:
        """Report all failures now: the loop may not run again (I13)."""
        self._aged = len(self._failed)
        self._report_aged(inf)

    def _age(self, _: object) -> None:
        try:
            self._report_aged(self._turn_budget)
        finally:  # a handler may raise KeyboardInterrupt: the others are reported even so
            self._aged = len(self._failed)
            if self._aged > 0:
                self._loop.call_soon(self._age, None)

    def _report_aged(self, budget: float) -> None:
        """Call the loop's exception handler, for *budget* seconds."""
        stop = self._loop.turn_time() + budget
        while self._aged > 0:
            self._aged -= 1
            op = self._failed.popleft()
            if not op._op_retrieved:
                failure: Failure = op._op_result
                self._loop.report(op, failure.exc, f"{described(op)} failed and nothing awaits it")
                if self._loop.turn_time() >= stop:
                    break
