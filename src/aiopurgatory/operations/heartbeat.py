"""Reports members that have not been heard of for too long."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..purgatory import Purgatory
from .sessions import Sessions

M = TypeVar("M", bound=Hashable)


class Heartbeats(Sessions, Generic[M]):
    """The sessions of members that beat. A member that misses a beat is reported.

        async with Purgatory("heartbeat") as purgatory:
            missed: list[str] = []
            sessions = Heartbeats(purgatory, "billing", timeout=0.25, on_missed=missed.append)
            sessions.beat("ann")
            sessions.beat("bob")
            await asyncio.sleep(0.15)
            sessions.beat("ann")
            await asyncio.sleep(0.15)
            assert (missed, "ann" in sessions) == (["bob"], True)

    A beat moves the deadline of one operation: nothing is made, watched or completed for it.

    Args:
        purgatory: where the sessions wait.
        key: of the group; the watch keys are ``(key, member)``.
        timeout: seconds without a beat after which a session ends.
        on_missed: called with the member after its session has ended so.
        excused: called with a member whose deadline has passed; return True to extend its session. Such a member may
            be one that waits for an answer (``JoinBarrier.is_waiting``) and cannot beat. Call beat() for it with the
            answer.

    Raises: TypeError: *timeout* is no number, *key* is not hashable, or a function is an ``async def``. ValueError:
        *timeout* is negative or NaN.

    Source: Kafka DelayedHeartbeat; differs: not a new operation per beat.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the same methods, with the type of the member

        def __init__(
            self,
            purgatory: Purgatory,
            key: Hashable,
            *,
            timeout: float,
            on_missed: Callable[[M], object],
            excused: Callable[[M], bool] | None = None,
        ) -> None: ...

        def beat(self, member: M) -> None: ...

        def stop(self, member: M) -> bool: ...
