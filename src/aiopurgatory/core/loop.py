"""The event loop as the core sees it: time, thread, calls on the next iteration, and the exception handler.

All of it is passed in: of asyncio, only an exception is imported.
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Callable
from typing import Any, final

from .nanoseconds import floor_ns


@final
class Loop:
    """Args: name: the purgatory's name, for messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: The loop itself; None before the first start.
        self.running: Any = None
        #: The purgatory was closed: the loop concerns it no more.
        self.is_left = False
        self._is_forked = False
        #: A finished Future of the loop.
        self.done: Any = None
        #: Seconds: the purgatory's clock, and the real time that iterations are measured with.
        self.time: Callable[[], float] = float
        self.turn_time: Callable[[], float] = float
        self._call_exception_handler: Callable[[dict[str, object]], object] = dict
        self._is_running: Callable[[], bool] = bool
        self._get_ident: Callable[[], int] = int
        self._ident = 0
        self._current_loop: Callable[[], object] = int
        self._by_ident = False
        self._notes_thread = False
        #: Returns the running task of a loop, or None.
        self.current_task: Any = None

    def enter(
        self,
        running: Any,
        time: Callable[[], float],
        turn_time: Callable[[], float],
        get_ident: Callable[[], int],
        current_loop: Callable[[], object],
        by_ident: bool,
        current_task: Any,
    ) -> None:
        """Attach to the loop *running* in this thread.

        Args:
            get_ident: returns the number of the calling thread.
            current_loop: returns the loop running in the calling thread.
            by_ident: whether get_ident() is quicker.
            current_task: returns the running task of the loop passed to it, or None.
        """
        self.done = running.create_future()
        self.done.set_result(None)
        self.running = running
        self.is_left = False
        self.time = time
        self.turn_time = turn_time
        self._call_exception_handler = running.call_exception_handler
        self._is_running = running.is_running
        self._get_ident = get_ident
        self._ident = get_ident()
        self._current_loop = current_loop
        self._by_ident = by_ident
        #: asyncio's own loops note their thread. That is quicker than is_running(), a function in Python.
        self._notes_thread = by_ident and hasattr(running, "_thread_id")
        self.current_task = current_task

    def leave_to_parent(self) -> None:
        """In the child of a fork, nobody is inside this loop, and every call is refused (I15)."""
        self._is_forked = True
        self._by_ident = self._notes_thread = False
        self._current_loop = int
        self._is_running = lambda: True

    def now(self) -> int:
        """The time in nanoseconds."""
        return floor_ns(self.time())

    def is_here(self) -> bool:
        """Is the caller inside this loop? (I15)"""
        # A loop that runs, and was entered in this thread, is the one running here. Asking asyncio costs a system call
        # on Python 3.11: a sixth of a whole operation.
        if self._notes_thread:
            thread: int | None = self.running._thread_id
            return thread is not None and thread == self._get_ident()
        if self._by_ident and self._get_ident() == self._ident:
            return self._is_running()
        if self._current_loop() is not self.running:
            return False
        self.note_thread()
        return True

    def note_thread(self) -> None:
        """Called in the loop: note its thread. A loop may go on in another one than before."""
        if self._by_ident:
            self._ident = self._get_ident()

    def is_foreign_thread(self) -> bool:
        """Does the loop run in another thread than the caller's?"""
        return not self.is_here() and self._is_running()

    def check_thread(self) -> None:
        """Refuse a call from another thread: the loop might not notice it until it next wakes, seconds later (I15)."""
        if not self.is_here() and self._is_running():
            raise RuntimeError(self.wrong_thread())

    def wrong_thread(self) -> str:
        if self._is_forked:
            return f"purgatory {self.name!r} was started before a fork; start another one in this process"
        return (
            f"purgatory {self.name!r} belongs to another event loop, in another thread; from here, use "
            "notify_threadsafe(key), or loop.call_soon_threadsafe() with any other method; to wait here, make a "
            "purgatory for this loop, and join both by a LocalBus"
        )

    def call_soon(self, callback: Any, argument: object, context: Any = None) -> None:
        """Call *callback* on the next iteration; do nothing if the loop is closed."""
        try:
            self.running.call_soon(callback, argument, context=context)
        except RuntimeError:
            if not self.running.is_closed():
                raise

    def report(self, op: object, exc: BaseException, message: str) -> None:
        """Pass *exc*, which no caller can receive, to the loop's exception handler."""
        self._call_exception_handler({"message": f"aiopurgatory: {message}", "exception": exc, "operation": op})

    def guarded(self, look: Callable[..., Any], *arguments: object) -> Any:
        """Return ``look(*arguments)``, which compares keys. None: it raised, and that is reported.

        A key's ``__eq__`` is the user's code: it must end neither a check nor the clock task (I11).
        """
        try:
            return look(*arguments)
        except (Exception, CancelledError) as exc:
            self.report(None, exc, "a key cannot be compared")
            return None
