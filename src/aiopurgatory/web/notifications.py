"""The notifications of a LongPolling: from any thread, and after ``Policy.linger``."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final, SupportsIndex, final

from ..arguments import require_hashable
from ..core.kit import EVERY_KEY, Core, checked_limit, core_of
from ..errors import PurgatoryClosedError, PurgatoryFullError
from ..handover import Handover
from ..operation import DelayedOperation
from ..purgatory import Purgatory


@final
class Notifications:
    """Checks keys of *purgatory* after *linger* seconds; 0: on the next loop iteration. Belongs to one event loop."""

    def __init__(self, purgatory: Purgatory, linger: float) -> None:
        self._purgatory: Final = purgatory
        self._linger: Final = linger
        self._handover = Handover(core_of(purgatory).turn_budget)

    def notify(self, key: Hashable, limit: SupportsIndex | None = None) -> None:
        """Serve LongPolling.notify()."""
        purgatory = self._purgatory
        if core_of(purgatory).loop.is_foreign_thread():
            raise RuntimeError("notify() must be called in the loop's thread; from here, use notify_threadsafe(key)")
        if not purgatory.is_open:  # not an error: the first poll starts it
            require_hashable("key", key)
            checked_limit(limit)
            return
        if not (self._linger and purgatory.waiting(key) and self._check_later((self, key), key, limit)):
            purgatory.notify(key, limit)

    def notify_all(self) -> None:
        """Serve LongPolling.notify_all()."""
        if not (self._linger and self._purgatory.num_delayed > 0 and self._check_later((self,), EVERY_KEY, None)):
            self._purgatory.notify_all()

    def notify_threadsafe(self, key: Hashable) -> None:
        """Serve LongPolling.notify_threadsafe()."""
        if not self._linger and self._purgatory.is_open:
            self._purgatory.notify_threadsafe(key)
            return
        require_hashable("key", key)  # here, not in the loop
        if self._purgatory.is_open:
            self._handover.put(key, core_of(self._purgatory).loop.running, self.notify)

    def _check_later(self, lingering: Hashable, key: Hashable, limit: SupportsIndex | None) -> bool:
        """Check *key* after the linger. Returns: False if the purgatory is full or closed.

        Args: lingering: the key under which the operation that does so waits.
        """
        most = checked_limit(limit)
        there: list[Any] = self._purgatory.waiting(lingering)
        if there:
            there[0].add(most)
            return True
        core = core_of(self._purgatory)
        with suppress(PurgatoryClosedError, PurgatoryFullError):
            self._purgatory.watch(Linger(core, key, most, self._linger), [lingering])
            core.checks.announce(key)
            return True
        return False


@final
class Linger(DelayedOperation[None]):
    """Checks *key* at its deadline, once for all its polls. A poll with an earlier deadline still expires on time.

    EVERY_KEY stands for every key.
    """

    __slots__ = ("_core", "_key", "_limit")

    def __init__(self, core: Core, key: Hashable, limit: int, timeout: float) -> None:
        super().__init__(timeout)
        self._core, self._key, self._limit = core, key, limit

    def add(self, limit: int) -> None:
        """Answer *limit* more polls."""
        self._limit += limit

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._core.checks.mark_announced(self._key, self._limit)
