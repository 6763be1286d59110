"""Who has not been heard of for too long."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .arguments import require_seconds

M = TypeVar("M", bound=Hashable)


class DelayedHeartbeat(DelayedOperation[M]):
    """One member's session: it ends when a beat is missed, and only then. Its result: the member."""

    __slots__ = ("_heartbeats", "member")

    def __init__(self, heartbeats: Heartbeats[M], member: M) -> None:
        super().__init__(heartbeats.timeout)
        self._heartbeats = heartbeats
        self.member = member

    def try_complete(self) -> bool:
        try:
            excused = self._heartbeats.excused(self.member)
        except BaseException:  # it ends the session, and is reported
            self._heartbeats._forget(self)
            raise
        if excused:
            self._heartbeats.purgatory.reschedule(self, self._heartbeats.timeout)
        return False

    # Not in on_expiration(), whose errors are taken for answers: one of the callback's is a fault, to be reported.
    def on_complete(self) -> M:
        self._heartbeats._forget(self)
        self._heartbeats.on_missed(self.member)
        return self.member

    def on_cancel(self) -> None:
        self._heartbeats._forget(self)


class Heartbeats(Generic[M]):
    """The sessions of members that beat; who misses a beat is reported.

        async with Purgatory("heartbeat") as purgatory:
            missed: list[str] = []
            sessions = Heartbeats(purgatory, "billing", timeout=0.05, on_missed=missed.append)
            sessions.beat("ann")
            sessions.beat("bob")
            await asyncio.sleep(0.03)
            sessions.beat("ann")
            await asyncio.sleep(0.03)
            assert (missed, "ann" in sessions) == (["bob"], True)

    A beat moves the deadline of one operation: nothing is made, watched or completed for it.

    Args:
        purgatory: where the sessions wait.
        key: of the group; the watch keys are ``(key, member)``.
        timeout: seconds without a beat.
        on_missed: called with the member, whose session is over by then.
        excused: asked for a member at its deadline; if true, its session goes on as if it had beaten: one who waits
            for an answer (``JoinBarrier.is_waiting``) does not beat. Call beat() for it with the answer.

    Source: Kafka DelayedHeartbeat; differs: not a new operation per beat.
    """

    __slots__ = ("_sessions", "excused", "key", "on_missed", "purgatory", "timeout")

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        timeout: float,
        on_missed: Callable[[M], object],
        excused: Callable[[M], bool] | None = None,
    ) -> None:
        require_seconds("timeout", timeout)
        hash(key)
        self.purgatory = purgatory
        self.key = key
        self.timeout = timeout
        self.on_missed = on_missed
        self.excused = excused or _never
        self._sessions: dict[M, DelayedHeartbeat[M]] = {}

    def __repr__(self) -> str:
        return f"<Heartbeats {self.key!r} timeout={self.timeout} members={len(self)}>"

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, member: object) -> bool:
        return member in self._sessions

    def beat(self, member: M) -> None:
        """*member* is alive; its first beat begins its session. Raises: whatever watch() does. Cost: O(levels)."""
        session = self._sessions.get(member)
        if session is None or not self.purgatory.reschedule(session, self.timeout):
            session = self.purgatory.watch(DelayedHeartbeat(self, member), [(self.key, member)])
            if not session.done():  # excused() did not raise
                self._sessions[member] = session

    def stop(self, member: M) -> bool:
        """*member* has left of its own accord: end its session, and tell nobody. Returns: whether it had one."""
        session = self._sessions.get(member)
        return session is not None and session.cancel()

    def _forget(self, session: DelayedHeartbeat[M]) -> None:
        self._sessions.pop(session.member, None)


def _never(member: object) -> bool:
    return False
