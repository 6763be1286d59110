"""Wait for messages beside the app: in a task or, where that is known to do, with less than one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Protocol, cast

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

#: Where the ``receive()`` of uvicorn and that of hypercorn (a queue's ``get()``) are defined.
_PLAIN = ("uvicorn.protocols.", "asyncio.queues")


class Listener(Protocol):
    """Nothing is heard after cancel()."""

    def cancel(self) -> object: ...


def listen(receive: Receive, heard: Callable[[Message | None], bool]) -> Listener:
    """Call *receive* again and again, and *heard* with each message, until it returns False. None: *receive* raised.

    *heard* may be called before this returns.
    """
    if getattr(receive, "__module__", "").startswith(_PLAIN):
        return _Stepped(cast("Callable[[], Coroutine[Any, Any, Message]]", receive), heard)
    return asyncio.ensure_future(_listen(receive, heard))


async def _listen(receive: Receive, heard: Callable[[Message | None], bool]) -> None:
    message: Message | None = None
    go_on = True
    while go_on:
        try:
            message = await receive()
        except Exception:
            message = None  # the app gets that when it asks for a message
        go_on = heard(message)


class _Stepped:
    """Runs *receive* in callbacks: against a task, a parked poll takes some 10 % less time and memory in all.

    It does what a task does, but there is no ``current_task()``: for coroutines that are known to need none, and wait
    for futures alone.
    """

    __slots__ = ("_coroutine", "_heard", "_receive")

    def __init__(
        self, receive: Callable[[], Coroutine[Any, Any, Message]], heard: Callable[[Message | None], bool]
    ) -> None:
        self._receive = receive
        self._heard = heard
        self._coroutine: Coroutine[Any, Any, Message] | None = receive()
        self._step()

    def cancel(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()
            self._coroutine = None

    def _step(self, _: object = None) -> None:
        while self._coroutine is not None:
            try:
                future = self._coroutine.send(None)
            except StopIteration as stop:
                self._next(stop.value)
            except Exception:
                self._next(None)  # as above
            else:
                future._asyncio_future_blocking = False
                future.add_done_callback(self._step)
                return

    def _next(self, message: Message | None) -> None:
        self._coroutine = None
        if self._heard(message):
            self._coroutine = self._receive()
