"""Adapt aiopurgatory itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from aiopurgatory import DelayedOperation, Purgatory

from .base import Tally, Tasks, request_class

Request = request_class(DelayedOperation)


class Ours:
    """Operations that are not awaited: they answer from on_complete(), as Kafka's do."""

    def __init__(self, **settings: Any) -> None:
        self.tally = Tally()
        self.purgatory = Purgatory(**settings)
        self.complete = Request.force_complete
        self.check = self.purgatory.check_and_complete

    async def start(self) -> None:
        await self.purgatory.start()

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        return self.purgatory.watch(Request(timeout, deadline, completes_at, payload, self.tally), keys)

    def pending(self) -> int:
        return self.purgatory.num_delayed

    async def stop(self) -> None:
        await self.purgatory.aclose()


class OursAwaited(Ours):
    """The same, each awaited in a task of its own, as in a web handler."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.tasks = Tasks()

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        op = Request(timeout, deadline, completes_at, payload, self.tally)
        self.tasks.start(self._handle(op, keys))
        return op

    async def _handle(self, op: Any, keys: tuple[Hashable, ...]) -> None:
        await self.purgatory.watch(op, keys)

    def pending(self) -> int:
        return len(self.tasks)

    async def stop(self) -> None:
        await self.tasks.stop()
        await super().stop()


class Plain(DelayedOperation[None]):
    """An operation without attributes of its own."""

    __slots__ = ()
    ready = False

    def try_complete(self) -> bool:
        return Plain.ready and self.force_complete()


class Bare(Ours):
    """The library with as little as possible around it. A check of its first key completes a request."""

    def __init__(self, soon: bool = False) -> None:
        super().__init__()
        if soon:
            self.check = self.purgatory.notify  # type: ignore[assignment]
        self.complete = self._complete

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        return self.purgatory.watch(Plain(timeout), keys)

    def _complete(self, op: Plain) -> None:
        Plain.ready = True
        self.purgatory.check_and_complete(op.keys[0])
        Plain.ready = False


class AwaitedSoon(OursAwaited):
    def __init__(self) -> None:
        super().__init__()
        self.check = self.purgatory.notify  # type: ignore[assignment]
