"""The operations of long polls, and their clients' disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from math import inf
from typing import Any, Generic, TypeAlias, final

from ..core.kit import Core, StandingWait
from ..operation import DelayedOperation
from .asgi import Listen
from .prefer import K, PollRequest

#: Seconds a poll waits, at most, before the listener for its client's disconnect starts.
LISTEN_AFTER = 0.05


class ClientOperation(StandingWait, DelayedOperation[None], Generic[K]):
    """The place of a client: a poll, or an event stream. It can listen for the client's disconnect.

    Args: stall, has_news: of a stream, see StandingWait.
    """

    __slots__ = ("_stop", "client", "group", "left", "resource")

    def __init__(
        self,
        core: Core,
        request: PollRequest[K],
        timeout: float | None,
        stall: float = inf,
        has_news: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(core, timeout, stall == inf, False, inf, stall, has_news)  # keywords would take a dict
        self.resource, self.client, self.group = request.resource, request.client, request.group
        #: Whether the client has disconnected.
        self.left = False
        self._stop: Callable[[], object] | None = None

    def listen(self, listen: Listen) -> None:
        """Cancel this when the client disconnects, until stop_listening()."""
        self._stop = listen(self._ended)

    def stop_listening(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None  # it refers to this: cut the cycle, so that no poll needs the garbage collector

    def leave(self) -> None:
        """Cancel this, because the client has disconnected."""
        self.left = True
        self.cancel()

    def _ended(self, error: Exception | None) -> None:
        if error is None:
            self.leave()
        else:
            self.fail(error)


@final
class LongPoll(ClientOperation[K]):
    """Waits until *version* returns something else than *known*, or else until *condition* holds.

    It does not read the body, which is read when the answer is written. So a check of many polls is short, and the body
    covers events between the check and the answer.

    Args: condition: gets this at each check, and at the deadline. Returns: whether it has ended this.
    """

    __slots__ = ("_condition", "_known", "_version")

    def __init__(
        self,
        core: Core,
        request: PollRequest[K],
        timeout: float | None,
        version: Callable[[K], str] | None = None,
        known: str = "",
        condition: Callable[[LongPoll[K]], bool] | None = None,
    ) -> None:
        super().__init__(core, request, timeout)
        self._version, self._known, self._condition = version, known, condition

    def try_complete(self) -> bool:
        version, condition = self._version, self._condition
        if version is not None:
            return version(self.resource) != self._known and self.force_complete()
        return condition is not None and condition(self)


#: The operations with which a poll has waited.
Parked: TypeAlias = list[LongPoll[Any]]


class Newcomers:
    """Polls without a listener yet: those answered within half of LISTEN_AFTER never need one.

    Listening takes a tenth of a poll's CPU time. In return, a disconnect is noticed up to LISTEN_AFTER later.

    One timer serves all. At each call, those that were there at the call before get listeners. (If all of them did, so
    would polls that have just come: on a busy server, a third of those that are answered at once.)
    """

    __slots__ = ("_older", "_polls", "_timer")

    def __init__(self) -> None:
        #: Polls since the timer's last call, and those that were there at that call.
        self._polls: dict[ClientOperation[Any], tuple[Listen, Context]] = {}
        self._older: dict[ClientOperation[Any], tuple[Listen, Context]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, poll: ClientOperation[Any], listen: Listen) -> None:
        self._polls[poll] = listen, copy_context()
        if self._timer is None:
            self._call_later()

    def remove(self, poll: ClientOperation[Any]) -> None:
        if self._polls.pop(poll, None) is None:
            self._older.pop(poll, None)

    def _call_later(self) -> None:
        # In an empty context: the timer sets the next one, so that of the first poll would live on.
        self._timer = asyncio.get_running_loop().call_later(LISTEN_AFTER / 2, self._listen, context=Context())

    def _listen(self) -> None:
        older, self._older, self._polls, self._timer = self._older, self._polls, {}, None
        if self._older:
            self._call_later()
        for poll, (listen, context) in older.items():
            context.run(poll.listen, listen)  # a middleware's receive() may use variables of its request
