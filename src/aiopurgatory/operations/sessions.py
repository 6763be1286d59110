"""The sessions of members that send heartbeats: each is one operation, whose deadline a beat moves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, Final, final

from mypy_extensions import mypyc_attr

from ..arguments import require_plain_function, require_seconds
from ..core.awaiter import AwaitableOperation
from ..core.faults import require_plain
from ..core.operation import is_due, is_pending
from ..core.purgatory import parts_of
from ..operation import wait
from ..purgatory import Purgatory


@final
class DelayedHeartbeat(AwaitableOperation):
    """One member's session: it ends when a beat is missed, and only then. Its result: the member."""

    __slots__ = ("_sessions", "member")

    def __init__(self, sessions: Sessions, member: Hashable) -> None:
        super().__init__(sessions.timeout)
        self._sessions: Final = sessions
        self.member: Final = member

    def __await__(self) -> Generator[Any, None, Any]:
        return wait(self)

    def try_complete(self) -> bool:
        sessions = self._sessions
        if sessions.excused is None or not is_due(self):
            return False
        excused = sessions.excused(self.member)
        require_plain(excused, self, "excused")
        if excused:
            sessions.purgatory.reschedule(self, sessions.timeout)
        return False

    # Not in on_expiration(), whose errors count as answers: an error of the callback is a fault, to be reported.
    def on_complete(self) -> Hashable:
        forget(self._sessions, self)
        require_plain(self._sessions.on_missed(self.member), self, "on_missed")
        return self.member

    def on_cancel(self) -> None:
        forget(self._sessions, self)

    def on_failure(self, exc: BaseException) -> None:
        forget(self._sessions, self)


@mypyc_attr(allow_interpreted_subclasses=True)
class Sessions:
    """The methods of Heartbeats, which adds the type of the member; see there."""

    __slots__ = ("_by_member", "_parking", "excused", "key", "on_missed", "purgatory", "timeout")

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        timeout: Any,
        on_missed: Callable[[Any], object],
        excused: Callable[[Any], Any] | None = None,
    ) -> None:
        require_seconds("timeout", timeout)
        require_plain_function("on_missed", on_missed)
        if excused is not None:
            require_plain_function("excused", excused)
        hash(key)
        self.purgatory: Final = purgatory
        self.key: Final = key
        self.timeout: Final = float(timeout)
        self.on_missed: Final = on_missed
        self.excused: Final = excused
        self._parking: Final = parts_of(purgatory).parking  # a beat through the purgatory's method costs a fifth more
        self._by_member: Final[dict[Hashable, DelayedHeartbeat]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} timeout={self.timeout} members={len(self)}>"

    def __len__(self) -> int:
        return sum([is_pending(session) for session in self._by_member.values()])

    def __contains__(self, member: object) -> bool:
        session = self._by_member.get(member)
        return session is not None and is_pending(session)

    def beat(self, member: Any) -> None:
        """Note that *member* is alive. Its first beat starts its session.

        Raises: TypeError: *member* is not hashable. What watch() of the purgatory raises.
        Cost: O(levels); the first beat, that of watch().
        """
        session = self._by_member.get(member)
        if session is None or not self._parking.reschedule(session, self.timeout):
            session = DelayedHeartbeat(self, member)
            self.purgatory.watch(session, ((self.key, member),))
            self._by_member[member] = session

    def stop(self, member: Any) -> bool:
        """End the session of *member* without a call of on_missed(): it has left on its own.

        Returns: whether it had a session.
        """
        session = self._by_member.get(member)
        return session is not None and session.cancel()


def forget(sessions: Sessions, session: DelayedHeartbeat) -> None:
    """Remove the ended *session*, unless a beat has already begun the next one of its member."""
    if sessions._by_member.get(session.member) is session:
        del sessions._by_member[session.member]
