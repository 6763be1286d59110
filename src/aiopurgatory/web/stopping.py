"""Notice that the process is told to stop. Servers give none: they wait for the handlers first, and tell the app after
that (uvicorn #588, hypercorn).
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
    """Have *callback* called in the running loop when SIGINT or SIGTERM comes, before what the server does about it.

    Call it when the server has installed its own handlers: they are chained. A signal that nobody handles, and any
    thread but the main one, is left alone.

    Returns: a function that undoes it.
    """
    chained: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            # Not now: a signal can come in the middle of anything, the purgatory's own work included.
            loop.call_soon_threadsafe(callback)
        chained[number](number, frame)

    def undo() -> None:
        for number, before in chained.items():
            if signal.getsignal(number) is handle:
                _install(number, before)

    for number in _SIGNALS:
        before = signal.getsignal(number)
        if callable(before):
            chained[number] = before
            _install(number, handle)
    return undo


def _install(number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
    signal.signal(number, handler)
    # As loops do for their own handlers, which stay in force under this one: they listen to the wake-up descriptor.
    signal.siginterrupt(number, False)
