"""Adapt Kafka's old purgatory, with the same operation as ours, and compiled if ours is. See old_purgatory.py."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import aiopurgatory
from aiopurgatory.clock import LoopClock

from . import old_purgatory
from .base import Tally, request_class
from .old_purgatory import OldOperation, OldPurgatory

Request = request_class(OldOperation)


class Old:
    """Raises: RuntimeError: one of both is compiled, and the other is not."""

    def __init__(self, purge_interval: int = 1_000) -> None:
        if old_purgatory.__file__.endswith(".py") == aiopurgatory.COMPILED:
            raise RuntimeError("the library is compiled, and the old purgatory is not, or the reverse: see build/peers")
        self.tally = Tally()
        self.complete = Request.force_complete
        self._purge_interval = purge_interval
        self._made = 0

    async def start(self) -> None:
        self.purgatory = OldPurgatory(LoopClock(), self._purge_interval)
        self.check = self.purgatory.check

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        op = Request(timeout, deadline, completes_at, payload, self.tally)
        self._made += 1
        self.purgatory.watch(op, keys)
        return op

    def pending(self) -> int:
        return self._made - self.tally.ended

    async def stop(self) -> None:
        self._made = self.tally.ended
        self.purgatory.close()
