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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_stop_signal(callback: Callable[[], object]) -> Callable[[], None]:
    """On SIGINT and SIGTERM, call *callback* on the next iteration of the running loop.

    The server's own handlers, which must be installed already, still run. A signal without a Python handler is left
    alone, and so is every signal in a thread other than the main one.

    Returns: a function that puts the server's handlers back, unless others have been installed since.
    """
    former: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            # Not now: a signal can come in the middle of anything, the purgatory's own work included.
            loop.call_soon_threadsafe(callback)
        former[number](number, frame)

    def restore() -> None:
        for number, handler in former.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)

    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            former[number] = handler
            signal.signal(number, handle)
    return restore
