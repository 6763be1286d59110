"""The operation that waits until a request's appends to several partitions are acked."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from typing import Any, Final, final

from ..core.awaiter import AwaitableOperation
from ..core.operation import is_pending
from ..operation import wait
from ..purgatory import Purgatory
from .budget import budget, expire_unparked, is_only_try
from .in_sync import InSync, waits_of
from .offsets import Offsets, enter, error_at, has_reached, key_of, leave
from .watermark import as_int


@final
class DelayedProduce(AwaitableOperation):
    """Its result: the error of each partition, or None; see produce().

    A partition that has an answer is not tried again. At the deadline the others get a TimeoutError each.
    """

    __slots__ = ("_entered", "_pending", "_results")

    def __init__(self, required: Mapping[Hashable, object], timeout: Any) -> None:
        super().__init__(budget(timeout))
        if not required:
            raise ValueError("required must name at least one partition, got none")
        self._results: Final[dict[Hashable, Exception | None]] = {}
        self._pending: Final[dict[Hashable, tuple[Offsets, int]]] = {}
        self._entered: list[tuple[Offsets, int]] = []
        for key, need in required.items():
            self._results[key] = None
            if isinstance(need, Exception):
                self._results[key] = need
            else:
                self._pending[key] = checked_need(key, need)

    def __await__(self) -> Generator[Any, None, dict[Any, Exception | None]]:
        return wait(self)

    def try_complete(self) -> bool:
        for key, need in list(self._pending.items()):
            error = error_at(need[0], need[1])
            if error is not None or has_reached(need[0], need[1]):
                self._results[key] = error
                del self._pending[key]
        if not self._pending:
            return self.force_complete()
        return is_only_try(self) and expire_unparked(self)

    def on_complete(self) -> dict[Hashable, Exception | None]:
        self._leave()
        for key, need in self._pending.items():
            self._results[key] = TimeoutError(f"{key!r} was not acked up to {need[1]} after {self.timeout} s")
        self._pending.clear()
        return self._results

    def on_cancel(self) -> None:
        self._leave()

    def on_failure(self, exc: BaseException) -> None:
        self._leave()

    def watch_in(self, purgatory: Purgatory) -> DelayedProduce:
        """Watch it, or complete it if there is nothing to wait for. Returns: itself."""
        for key, need in self._pending.items():
            if need[0].purgatory is not purgatory:
                raise ValueError(f"required must wait in {purgatory!r}, got {key!r} in {need[0].purgatory!r}")
        if not self._pending:
            self.force_complete()
            return self
        purgatory.watch(self, [key_of(need[0], need[1]) for need in self._pending.values()])
        if is_pending(self):
            self._entered = list(self._pending.values())  # not what the tries of watch() have answered
            for need in self._entered:
                enter(need[0], need[1])
        return self

    def _leave(self) -> None:
        entered, self._entered = self._entered, []
        for need in entered:
            leave(need[0], need[1])


def checked_need(partition: object, need: object) -> tuple[Offsets, int]:
    """Check the *need* of *partition*. Returns: its Offsets, and the offset to reach."""
    if not isinstance(need, tuple) or len(need) != 2:
        raise TypeError(f"required[{partition!r}] must be a pair (Replicas, offset) or an error, got {need!r}")
    watchers, offset = need
    if isinstance(watchers, InSync):
        watchers = waits_of(watchers)
    if not isinstance(watchers, Offsets):
        raise TypeError(f"required[{partition!r}] must be Replicas or ThresholdWatchers, got {watchers!r}")
    return watchers, as_int("offset", offset)
