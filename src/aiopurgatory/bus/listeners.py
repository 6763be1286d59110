"""Callbacks under keys: a target without a purgatory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextvars import Context
from time import perf_counter
from typing import Final, TypeAlias, final

from ..arguments import described, require_plain_function, require_seconds
from ..clock import running_loop
from ..core.kit import checked_keys

Callback: TypeAlias = Callable[[Hashable], object]

#: Stands for every key among the marked ones.
_EVERY_KEY: Final = object()


class Listeners:
    """A target of a bus that calls functions.

        listeners = Listeners()
        async with RedisBus(url, [listeners]):
            remove = listeners.add(print, [("orders", 7)])
            ...  # prints ('orders', 7) each time any process publishes that key
            remove()

    A call says only that the state behind the key may have changed. After a gap, each callback is called with all of
    its keys. Add first, then read the state: so no change is missed in between.

    Calls are made in the event loop, on its next iteration. Repeated marks of a key are merged. An exception of a
    callback goes to the event loop's exception handler, and affects no other callback.

    Args: turn_budget: seconds per loop iteration for calls (default 0.005); the rest waits for the next one.
    Raises: TypeError, ValueError: *turn_budget* is not a number of seconds above 0.
    """

    def __init__(self, *, turn_budget: float = 0.005) -> None:
        require_seconds("turn_budget", turn_budget, 1e-6)
        self._turn_budget: Final = turn_budget
        #: By key: its listeners, in the order in which they were added.
        self._by_key: dict[Hashable, dict[_Listener, None]] = {}
        self._count = 0
        #: The keys to be walked, oldest first.
        self._marked: dict[Hashable, None] = {}
        #: Of a walk of every key: the keys still to come, the next one last.
        self._keys: list[Hashable] = []
        #: The key that is being walked, and its listeners still to be called, the next one last.
        self._key: Hashable = None
        self._coming: list[_Listener] = []
        #: The loop that is going to call _work().
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        """The number of callbacks added and not removed."""
        return self._count

    def __repr__(self) -> str:
        return f"<{type(self).__name__} callbacks={self._count} keys={len(self._by_key)}>"

    def add(self, callback: Callback, keys: Iterable[Hashable]) -> Callable[[], None]:
        """Call *callback* with each of *keys* that is published, until it is removed.

        Args:
            callback: a plain function. It is called with one key, and must not block. Added twice, it is called twice.
            keys: listen to these, such as ``[("orders", 7)]``. Repeated keys count once.

        Returns: a function that removes it. Afterwards it is not called any more. A second call does nothing.

        Raises:
            TypeError: *callback* is not a plain function, or *keys* is a single str or bytes, or a key is unhashable.
            ValueError: *keys* is empty.

        Cost: O(1) per key.
        """
        require_plain_function("callback", callback)
        listener = _Listener(callback, checked_keys(keys))
        for place, key in enumerate(listener.keys):
            try:
                self._by_key.setdefault(key, {})[listener] = None
            except BaseException:  # of comparing the key
                listener.keys = listener.keys[:place]
                self._drop(listener)
                raise
        self._count += 1

        def remove() -> None:
            if listener.callback is not None:
                self._count -= 1
                self._drop(listener)

        return remove

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        """Call all callbacks of *key*, soon, whatever the *limit*.

        Raises: RuntimeError: no event loop runs in this thread.
        """
        if key in self._by_key:
            self._mark(key)

    def notify_all(self) -> None:
        """Call each callback with each of its keys, soon. Raises: RuntimeError: no event loop runs in this thread."""
        if self._by_key:
            self._mark(_EVERY_KEY)

    def _drop(self, listener: _Listener) -> None:
        listener.callback = None
        for key in listener.keys:
            among = self._by_key.get(key)
            if among is not None:
                among.pop(listener, None)
                if not among:
                    del self._by_key[key]
        listener.keys = ()

    def _mark(self, key: Hashable) -> None:
        loop = running_loop()
        self._marked[key] = None
        if self._loop is not loop:
            self._work_soon(loop)

    def _work_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = None
        loop.call_soon(self._work, loop, context=Context())  # not that of whoever marks the first key
        self._loop = loop  # now that it is true: a signal handler may raise in between

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call for up to the turn budget. The rest waits for the next iteration (I8)."""
        stop = perf_counter() + self._turn_budget
        has_more = True
        try:
            while (has_more := self._step(loop)) and perf_counter() < stop:
                pass
        finally:  # even after a KeyboardInterrupt
            if self._loop is loop:
                if has_more:
                    self._work_soon(loop)
                else:
                    self._loop = None

    def _step(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Call the next listener, or find the next ones. Returns: False if there was nothing to do."""
        if self._coming:
            callback = self._coming.pop().callback
            if callback is not None:  # not removed meanwhile
                try:
                    callback(self._key)
                except (Exception, asyncio.CancelledError) as exc:
                    message = f"aiopurgatory: a listener raised: {described(callback)}"
                    loop.call_exception_handler({"message": message, "exception": exc})
        elif self._keys:
            self._walk(self._keys.pop())
        elif self._marked:
            # Unmarked before it is walked: marked again meanwhile, it is walked once more.
            key = next(iter(self._marked))
            del self._marked[key]
            if key is _EVERY_KEY:
                self._keys = list(self._by_key)
                self._keys.reverse()
            else:
                self._walk(key)
        else:
            self._key = None
            return False
        return True

    def _walk(self, key: Hashable) -> None:
        self._key, self._coming = key, list(self._by_key.get(key, ()))
        self._coming.reverse()


@final
class _Listener:
    """Args: callback: None once it is removed."""

    __slots__ = ("callback", "keys")

    def __init__(self, callback: Callback, keys: tuple[Hashable, ...]) -> None:
        self.callback: Callback | None = callback
        self.keys = keys
