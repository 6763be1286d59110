"""Notifications that wait a little, so that one answer covers several events."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, SupportsIndex, final

from ..core.kit import checked_limit, core_of
from ..errors import PurgatoryFullError
from ..operation import DelayedOperation
from ..purgatory import Purgatory


@final
class Linger(DelayedOperation[None]):
    """Notifies *key* at its deadline. A poll with an earlier deadline expires on time."""

    __slots__ = ("_key", "_purgatory", "limit")

    def __init__(self, purgatory: Purgatory, key: Hashable, limit: int, seconds: float) -> None:
        super().__init__(seconds)
        self._purgatory, self._key, self.limit = purgatory, key, limit

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        core_of(self._purgatory).checks.coming.discard(self._key)
        self._purgatory.notify(self._key, self.limit)


def notify_after(seconds: float, purgatory: Purgatory, key: Hashable, limit: SupportsIndex | None) -> None:
    """Notify *key* once for all calls within *seconds*, at their end.

    At once if nothing waits under it, or the purgatory is full.
    """
    lingering: list[Any] = purgatory.waiting((Linger, key))
    if lingering:
        lingering[0].limit += checked_limit(limit)
        return
    if purgatory.waiting(key):
        wait = Linger(purgatory, key, checked_limit(limit), seconds)
        with suppress(PurgatoryFullError):
            purgatory.watch(wait, [(Linger, key)])
            core_of(purgatory).checks.coming.add(key)
            return
    purgatory.notify(key, limit)
