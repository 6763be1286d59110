"""Adapt Kafka's old purgatory, with the same operation as ours."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from aiopurgatory.clock import LoopClock
from aiopurgatory.pipeline.replay.old_purgatory import OldOperation, OldPurgatory

from .base import Tally, request_class

Request = request_class(OldOperation)


class Old:
    def __init__(self, purge_interval: int = 1_000) -> None:
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
