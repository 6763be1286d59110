"""Stop signals: the first notice that the server stops. Servers tell the app only after all handlers have ended
(uvicorn #588, hypercorn).
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

#: gunicorn stops its workers by SIGQUIT when it is to be quick. Windows has none.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT") if hasattr(signal, name)]

_Handler = Callable[[int, FrameType | None], Any]


def on_stop_signal(callback: Callable[[], object]) -> None:
    """On a stop signal, call *callback* on the next iteration of the running loop, as long as that is open.

    The server's own handlers, which must be installed already, still run. A signal without a Python handler is left
    alone, and so is every signal in a thread other than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Ahead):
            handler = _Ahead(handler)
            signal.signal(number, handler)
        if isinstance(handler, _Ahead):
            handler.add(loop, callback)


class _Ahead:
    """A handler of ours ahead of the server's. A server that ends puts back what was there before its own."""

    def __init__(self, former: _Handler) -> None:
        self._former = former
        self._callbacks: list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = []

    def add(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._callbacks = [(other, one) for other, one in self._callbacks if not other.is_closed()]
        self._callbacks.append((loop, callback))

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for loop, callback in self._callbacks:
            if not loop.is_closed():
                # Not now: a signal can come in the middle of anything, the purgatory's own work included.
                loop.call_soon_threadsafe(callback)
        self._former(number, frame)
