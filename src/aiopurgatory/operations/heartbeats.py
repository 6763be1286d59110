"""Heartbeats: report the members that miss one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..purgatory import Purgatory
from ._heartbeats import BaseHeartbeats

M = TypeVar("M", bound=Hashable)


class Heartbeats(BaseHeartbeats, Generic[M]):
    """The sessions of members that send heartbeats. Reports each member that misses one.

        async with Purgatory("heartbeat") as purgatory:
            missed: list[str] = []
            sessions = Heartbeats(purgatory, "billing", timeout=0.5, on_missed=missed.append)
            sessions.beat("ann")
            sessions.beat("bob")
            await asyncio.sleep(0.3)
            sessions.beat("ann")
            await asyncio.sleep(0.3)
            assert (missed, "ann" in sessions) == (["bob"], True)

    A beat moves the deadline of one operation. Nothing is created, watched or completed for it. ``len()`` counts the
    members that have a session.

    Args:
        purgatory: holds the sessions.
        key: the group's key; the watch keys are ``(key, member)``.
        timeout: seconds without a beat after which a session ends, >= 0. A member may have its own: see beat().
        on_missed: called with a member after its session has ended for a missed beat.
        excused: called with a member after its deadline; return True to extend its session. Use it for a member
            that cannot beat while it waits for an answer (``JoinBarrier.is_waiting``). When that member is answered,
            call beat() for it. None (default): no member is excused.

    Raises:
        TypeError: *timeout* is not a number, *key* is not hashable, or a function is an ``async def``.
        ValueError: *timeout* is negative or NaN.
    """

    # Source: Kafka DelayedHeartbeat; differs: not a new operation per beat.

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

        def beat(self, member: M, *, timeout: float | None = None) -> None: ...

        def stop(self, member: M) -> bool: ...
