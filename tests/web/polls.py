"""A source that counts, and polls of it without a server."""

from __future__ import annotations

import asyncio
from typing import Any

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.web import Answer, LongPolling, Policy


class Counters:
    """Each resource is a number that goes up."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.reads: list[tuple[str, str | None, str]] = []

    def version(self, resource: str) -> str:
        if resource == "broken":
            raise LookupError("no such counter")
        if self.values.get(resource, 0) < 0:
            raise GoneError(f"{resource} was compacted")
        return "a b" if resource == "spaced" else str(self.values.get(resource, 0))

    def read(self, resource: str, since: str | None, version: str) -> bytes:
        self.reads.append((resource, since, version))
        if since == "old":
            raise GoneError("old is gone")
        return f"{resource} {since} {version}".encode()


class Polls:
    """Polls of one LongPolling, and a publisher."""

    def __init__(self, purgatory: Purgatory, counters: Counters, **policy: Any) -> None:
        self.counters = counters
        self.policy = Policy(**{"jitter": 0.0, "margin": 0.0, "max_wait": 30.0, **policy})
        self.polling = LongPolling(purgatory, counters, policy=self.policy)

    def start(self, resource: str = "n", known: str | None = '"0"', **more: Any) -> asyncio.Task[Answer]:
        headers = {} if known is None else {"if-none-match": known}
        headers |= {"prefer": f"wait={more.pop('wait')}"} if "wait" in more else {}
        return asyncio.create_task(self.polling.answer(resource, headers, **more))

    async def now(self, resource: str = "n", known: str | None = '"0"', **more: Any) -> Answer:
        """The answer to a poll that must not wait."""
        async with asyncio.timeout(1):
            return await self.start(resource, known, **more)

    def publish(self, resource: str = "n") -> None:
        self.counters.values[resource] = self.counters.values.get(resource, 0) + 1
        self.polling.notify(resource)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
