"""The operations of long polls, and their clients' disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeAlias, final

from ..core.kit import AwaitedWait, Core
from ..operation import DelayedOperation
from .asgi import Listen
from .prefer import K, PollRequest

#: Seconds a poll waits, at most, before the listener for its client's disconnect starts.
LISTEN_AFTER = 0.05


#: The slots of a ClientOperation. Each class of places has them itself: one base of a class can have slots.
SLOTS: Final = ("_stop", "client", "group", "left", "resource")


class ClientOperation(DelayedOperation[None], Generic[K]):
    """The place of a client: a poll, or an event stream. It can listen for the client's disconnect."""

    __slots__ = ()

    def place(self, request: PollRequest[K]) -> None:
        """Set what places are told apart by."""
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
    """Waits until *version* returns something else than *known*.

    It does not read the body, which is read when the answer is written. So a check of many polls is short, and the body
    covers events between the check and the answer.
    """

    __slots__ = (*SLOTS, "_known", "_version")

    def __init__(self, request: PollRequest[K], timeout: float | None, version: Callable[[K], str], known: str) -> None:
        super().__init__(timeout)
        self.place(request)
        self._version, self._known = version, known

    def try_complete(self) -> bool:
        return self._version(self.resource) != self._known and self.force_complete()


@final
class LogPoll(ClientOperation[str]):
    """Waits until *try_to_end*, which gets this, has ended it."""

    __slots__ = (*SLOTS, "_try_to_end")

    def __init__(self, request: PollRequest[str], timeout: float | None, try_to_end: Callable[[LogPoll], bool]) -> None:
        super().__init__(timeout)
        self.place(request)
        self._try_to_end = try_to_end

    def try_complete(self) -> bool:
        return self._try_to_end(self)


@final
class ReadPoll(AwaitedWait, ClientOperation[K]):
    """Waits until a read finds something new. Args: hurry: called when its time is up."""

    __slots__ = (*SLOTS, "_hurry")

    def __init__(self, core: Core, request: PollRequest[K], timeout: float | None, hurry: Callable[[], object]) -> None:
        super().__init__(timeout)
        self.place(request)
        self._hurry = hurry
        self.begin_reads(core, False)

    def try_complete(self) -> bool:
        if self.is_due:
            self._hurry()
        return super().try_complete()


#: The operations with which a poll has waited.
Parked: TypeAlias = list[ClientOperation[Any]]


class Newcomers:
    """Polls without a listener yet: those answered within half of LISTEN_AFTER never need one.

    Listening takes a tenth of a poll's CPU time. In return, a disconnect is noticed up to LISTEN_AFTER later.

    One timer serves all. At each call, polls that were there at the call before get listeners. (If all of them did, so
    would polls that have just come: on a busy server, a third of the polls answered at once.)
    """

    __slots__ = ("_older", "_polls", "_timer")

    def __init__(self) -> None:
        #: Polls since the timer's last call, and polls that were there at that call.
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
        # In an empty context: the timer sets the next one, so the first poll's would live on.
        self._timer = asyncio.get_running_loop().call_later(LISTEN_AFTER / 2, self._listen, context=Context())

    def _listen(self) -> None:
        older, self._older, self._polls, self._timer = self._older, self._polls, {}, None
        if self._older:
            self._call_later()
        for poll, (listen, context) in older.items():
            context.run(poll.listen, listen)  # a middleware's receive() may use variables of its request
