"""One operation with several conditions, and an answer to each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..arguments import described, require_not_coroutine, require_plain_function
from ._all import NO_ANSWER, BaseAll

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class DelayedAll(BaseAll, Generic[K, T]):
    """Waits until each of several conditions has held. Its result: the answer for each key, a dict.

        async with Purgatory("topics") as purgatory:
            leaders: dict[str, int] = {}
            conditions = {name: functools.partial(leaders.get, name) for name in ("orders", "payments")}
            op = purgatory.watch(DelayedAll(conditions, 0.1, default="timed out"), keys=conditions)
            leaders["orders"] = 7
            assert purgatory.check_and_complete("orders") == 0  # one answer is missing
            assert op.missing == ("payments",)
            assert await op == {"orders": 7, "payments": "timed out"}

    Use it for a request that names several things and has an answer for each: topics to create, partitions to move.
    A condition is a function that returns its answer, or None while there is none. A key that has its answer keeps it:
    its condition is not called again. At the deadline the others get *default*, and the answers are returned as they
    are. So a slow one does not hide the others. ``missing`` names those without an answer.

    Watch it like any operation, under as many keys as you need. Here each condition has a watch key of its own.

    To raise an error at the deadline instead, override on_expiration(). To return another answer for each of
    ``missing``, override on_complete().

    Args:
        conditions: for each key a plain function without parameters.
        timeout: seconds from the moment it is watched; None for no deadline. 0 or less: it expires on a later loop
            iteration, as any operation.
        default: the answer at the deadline for each key without one.

    Raises:
        TypeError: *conditions* is no mapping, a condition is an ``async def`` or no function, or *timeout* no number.
        ValueError: *conditions* is empty, or *timeout* is NaN.

    An exception that a condition raises fails the whole operation. Return it instead, if it is the answer for a key.

    Cost: a try calls the conditions of all keys without an answer.
    Source: Kafka DelayedElectLeader and DelayedDeleteTopics; differs: the conditions are functions, so one class serves
    all of them.
    """

    __slots__ = ()

    def __init__(self, conditions: Mapping[K, Callable[[], T | None]], timeout: float | None, *, default: T) -> None:
        if not isinstance(conditions, Mapping):
            raise TypeError(f"conditions must be a mapping, got {described(conditions)}")
        if not conditions:
            raise ValueError("conditions must name at least one key, got none")
        for key, condition in conditions.items():
            require_plain_function(f"conditions[{described(key)}]", condition)
        super().__init__(dict.fromkeys(conditions, default), dict(conditions.items()), timeout)

    def _answer_to(self, condition: Callable[[], T | None]) -> T | object:
        answer = condition()
        require_not_coroutine("each of conditions", answer)
        return NO_ANSWER if answer is None else answer

    if TYPE_CHECKING:  # the same methods, with the types of keys and answers

        @property
        def missing(self) -> tuple[K, ...]: ...

        def on_complete(self) -> dict[K, T]: ...

        def on_undelivered(self, result: dict[K, T]) -> None: ...

        def result(self) -> dict[K, T]: ...

        def __await__(self) -> Generator[Any, None, dict[K, T]]: ...
