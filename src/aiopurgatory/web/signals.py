"""Stop signals: the first notice that the server is stopping. Servers tell the app only after all handlers have ended
(uvicorn #588, hypercorn).
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextvars import Context
from inspect import ismethod
from types import FrameType
from typing import Any
from weakref import WeakMethod

from ..clock import running_loop
from ..purgatory import Purgatory

#: Not SIGQUIT: many handlers of that only dump the stacks, and the server goes on.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: How uvicorn cancels its requests when its graceful timeout is over. Other servers say nothing when they do.
SERVER_STOPS = ("Task cancelled, timeout graceful shutdown exceeded",)

#: Seconds after which handlers that a server has installed meanwhile are found: some do that after the app has started.
AGAIN = (0.05, 0.5, 5.0, 25.0, 125.0)

_Handler = Callable[[int, FrameType | None], Any]


#: What to call, each in its loop, after a stop signal. Methods are not kept alive: what is gone needs no close().
_callbacks: list[tuple[asyncio.AbstractEventLoop, Callable[[], Callable[[], object] | None]]] = []


def on_stop_signal(callback: Callable[[], object]) -> None:
    """Call *callback* on the running loop's next iteration after a stop signal, unless the loop is closed.

    The server's own handlers still run, whether they are installed before this or in the next two minutes. Signals
    that nobody handles are left alone. Outside the main thread, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    _put_ahead()
    loop = asyncio.get_running_loop()
    _callbacks[:] = [(other, ref) for other, ref in _callbacks if ref() is not None and not other.is_closed()]
    if (loop, callback) not in [(other, ref()) for other, ref in _callbacks]:
        _callbacks.append((loop, WeakMethod(callback) if ismethod(callback) else lambda: callback))
        for seconds in AGAIN:
            loop.call_later(seconds, _put_ahead, context=Context())


def _put_ahead() -> None:
    """Put our handler ahead of the present ones."""
    for number in STOP_SIGNALS:
        handler = signal.getsignal(number)
        # Python's own handler of SIGINT ends the loop by KeyboardInterrupt. asyncio.run() replaces no other.
        if callable(handler) and handler is not signal.default_int_handler and not isinstance(handler, _Ahead):
            _put_ahead_of(number, handler)


def close_on_stop(purgatory: Purgatory) -> None:
    """Close *purgatory* when the process gets SIGINT or SIGTERM, as a LongPolling does by itself.

        @asynccontextmanager
        async def lifespan(app):
            async with purgatory:
                close_on_stop(purgatory)
                yield

    Use it if handlers of your own await operations of *purgatory*: servers wait for handlers before they tell the app
    to stop. The handlers get PurgatoryClosedError, on the next loop iteration after the signal. The server's own
    signal handlers still run. Where SIGINT has Python's own handler, that ends the loop, as ever. A second call does
    nothing.

    Call it in the running loop, in a lifespan or in a handler. The server may install its signal handlers later. In a
    thread other than the main one, it does nothing: close the purgatory yourself.

    Raises:
        TypeError: *purgatory* is no Purgatory.
        RuntimeError: no event loop is running.
    """
    require_purgatory(purgatory)
    running_loop()
    on_stop_signal(purgatory.close)


def require_purgatory(purgatory: object) -> None:
    """Raise TypeError unless *purgatory* is one."""
    if not isinstance(purgatory, Purgatory):
        hint = "a LongPolling opens and closes by itself, and of a log pass log.purgatory"
        raise TypeError(f"purgatory must be a Purgatory, got {purgatory!r}; {hint}")


def _put_ahead_of(number: int, former: _Handler) -> None:
    # asyncio.run() handles SIGINT by a partial with its main task. When that ends, asyncio.run() puts back the handler
    # before its own, but only if its own is in place. If not, the next asyncio.run() would not handle SIGINT.
    main_task: Any = getattr(former, "keywords", {}).get("main_task")
    is_run = isinstance(main_task, asyncio.Future)
    if is_run and main_task.done():
        return
    ahead = _Ahead(former)
    signal.signal(number, ahead)
    if is_run:

        def put_back(_: object) -> None:
            if signal.getsignal(number) is ahead:
                signal.signal(number, former)

        main_task.add_done_callback(put_back, context=Context())  # not of the request which opens a LongPolling


class _Ahead:
    """Our handler, which runs before the server's. A server that ends restores the handlers it found."""

    def __init__(self, former: _Handler) -> None:
        self._former = former

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for loop, ref in _callbacks:
            callback = ref()
            if callback is not None and not loop.is_closed():
                # Not at once: a signal can interrupt anything, the purgatory's own work included. In an empty context:
                # it interrupts one request, and the callback ends all.
                loop.call_soon_threadsafe(callback, context=Context())
        self._former(number, frame)
