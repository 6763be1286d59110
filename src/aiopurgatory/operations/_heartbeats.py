"""The compiled half of Heartbeats: each session is one operation, and a beat moves its deadline."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, Final, final

from mypy_extensions import mypyc_attr

from ..arguments import described, require_plain_function, require_seconds
from ..core.kit import AwaitableOperation, Outcome, core_of, is_pending, require_plain, seconds_of
from ..delayed_operation import wait
from ..purgatory import Purgatory
from .thresholds import Collection


@final
class DelayedHeartbeat(AwaitableOperation):
    """One member's session: it ends when a beat is missed, and only then. Its result: the member."""

    __slots__ = ("_heartbeats", "member")

    def __init__(self, heartbeats: BaseHeartbeats, member: Hashable, seconds: float) -> None:
        super().__init__(seconds)
        self._heartbeats: Final = heartbeats
        self.member: Final = member

    def __await__(self) -> Generator[Any, None, Any]:
        return wait(self)

    def try_complete(self) -> bool:
        heartbeats = self._heartbeats
        if heartbeats._excused is None or not self.is_due:
            return False
        excused = heartbeats._excused(self.member)
        require_plain(excused, self, "excused")
        if excused:
            heartbeats._purgatory.reschedule(self, seconds_of(self))
        return False

    # Not in on_expiration(): its errors count as answers, but an error of the callback is a fault to report.
    def on_complete(self) -> Hashable:
        require_plain(self._heartbeats._on_missed(self.member), self, "on_missed")
        return self.member

    def on_end(self, outcome: Outcome) -> None:
        sessions = self._heartbeats._sessions
        if sessions.get(self.member) is self:  # else a beat has already begun the next session
            del sessions[self.member]


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseHeartbeats(Collection):
    """The methods of Heartbeats, which adds the type of the member; see Heartbeats."""

    __slots__ = ("_core", "_excused", "_on_missed", "_sessions", "_timeout")

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        timeout: Any,
        on_missed: Callable[[Any], object],
        excused: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(purgatory, key)
        require_plain_function("on_missed", on_missed)
        if excused is not None:
            require_plain_function("excused", excused)
        self._timeout: Final = float(require_seconds("timeout", timeout))
        self._on_missed: Final = on_missed
        self._excused: Final = excused
        self._core: Final = core_of(purgatory)  # a beat through the purgatory's method costs a fifth more
        self._sessions: Final[dict[Hashable, DelayedHeartbeat]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {described(self._key)} timeout={self._timeout} members={len(self)}>"

    def __len__(self) -> int:
        return sum([is_pending(session) for session in self._sessions.values()])

    def __contains__(self, member: object) -> bool:
        session = self._sessions.get(member)
        return session is not None and is_pending(session)

    @property
    def timeout(self) -> float:
        """Seconds without a beat after which a session ends, unless its member was given others."""
        return self._timeout

    def beat(self, member: Any, *, timeout: Any = None) -> None:
        """Note that *member* is alive. Its first beat starts its session.

        Args: timeout: seconds; the timeout of this member from now on. None (default): as before.

        Raises:
            TypeError: *member* is not hashable, or *timeout* is not a number.
            ValueError: *timeout* is negative or NaN.
            Exception: raised by watch() of the purgatory.

        Cost: O(levels); the first beat, as watch().
        """
        session = self._sessions.get(member)
        seconds = self._timeout if session is None else seconds_of(session)
        if timeout is not None:
            seconds = float(require_seconds("timeout", timeout))
        if session is None or not self._core.reschedule(session, seconds):
            session = DelayedHeartbeat(self, member, seconds)
            self._purgatory.watch(session, ((self._key, member),))
            self._sessions[member] = session

    def stop(self, member: Any) -> bool:
        """End the session of *member* without a call of on_missed(): it has left on its own.

        Returns: whether it had a session.
        """
        session = self._sessions.get(member)
        return session is not None and session.cancel()
