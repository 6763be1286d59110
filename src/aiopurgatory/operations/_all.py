"""The compiled half of DelayedAll and produce(): an operation with several conditions, and an answer to each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Hashable
from typing import Any, Final

from mypy_extensions import mypyc_attr

from ..core.kit import AwaitableOperation
from ..operation import wait

#: Returned by _answer_to() while the condition does not hold. (None may be an answer.)
NO_ANSWER: Final = object()


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseAll(AwaitableOperation):
    """Keeps the answers, and the conditions of keys without one. A subclass says what a condition is.

    Args:
        answers: for each key the answer, or the one it has at the deadline.
        conditions: of each key that waits for its answer.
        timeout: as of any operation.
    """

    __slots__ = ("_answers", "_conditions")

    def __init__(self, answers: dict[Hashable, Any], conditions: dict[Hashable, Any], timeout: Any) -> None:
        super().__init__(timeout)
        self._answers: Final = answers
        self._conditions: Final = conditions

    def __await__(self) -> Generator[Any, None, Any]:
        return wait(self)

    @property
    def missing(self) -> tuple[Any, ...]:
        """The keys without an answer. After the deadline: those that got the default."""
        return tuple(self._conditions)

    def try_complete(self) -> bool:
        for key, condition in list(self._conditions.items()):
            answer = self._answer_to(condition)
            if answer is not NO_ANSWER:
                self._answers[key] = answer
                self._conditions.pop(key, None)
        return not self._conditions and self.force_complete()

    def on_complete(self) -> Any:
        return self._answers

    @abstractmethod
    def _answer_to(self, condition: Any) -> Any:
        """Return the answer to *condition*, or NO_ANSWER."""
