"""Sources, and polls of them without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiopurgatory import GoneError, Purgatory
from aiopurgatory.testing import check_invariants
from aiopurgatory.web import Answer, LongPolling, Policy

#: With exact deadlines.
POLICY = Policy(jitter=0.0, margin=0.0, max_wait=30.0)
KNOWN = {"if-none-match": '"0"'}


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


class Database:
    """Each resource is a number. A call sees the state at its beginning, and answers when it is let."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.calls: list[tuple[str, ...]] = []
        self.under_way = self.most_under_way = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def version(self, resource: str) -> str:
        return str(await self._call("version", resource))

    async def read(self, resource: str, since: str | None, version: str) -> bytes:
        await self._call("read", resource)
        if since == "old":
            raise GoneError("old is gone")
        return f"{resource} {since} {version}".encode()

    async def _call(self, what: str, resource: str) -> int:
        self.calls.append((what, resource))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        seen = self.values.get(resource, 0)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if resource == "broken":
                raise OSError("the database is away")
        finally:
            self.under_way -= 1
        return seen

    def reads_of(self, resource: str) -> int:
        return self.calls.count(("version", resource))


class Given:
    """Returns a given result, or raises it."""

    def __init__(self, version: Any = "1", body: Any = b"body") -> None:
        self.given = version
        self.body = body

    def version(self, resource: Any) -> Any:
        return returned(self.given)

    def read(self, resource: Any, since: str | None, version: str) -> Any:
        return returned(self.body)


class AsyncGiven(Given):
    async def version(self, resource: Any) -> Any:
        return returned(self.given)

    async def read(self, resource: Any, since: str | None, version: str) -> Any:
        return returned(self.body)


def returned(given: Any) -> Any:
    if isinstance(given, BaseException):
        raise given
    return given


class Polls:
    """Polls of one LongPolling, and a publisher."""

    def __init__(self, purgatory: Purgatory, source: Any, **settings: Any) -> None:
        """Args: settings: of the LongPolling, or of the policy."""
        options = {name: settings.pop(name) for name in {"max_reads", "max_body_bytes"} & settings.keys()}
        self.source = source
        self.purgatory = purgatory
        policy = Policy(**{"jitter": 0.0, "margin": 0.0, "max_wait": 30.0, **settings})
        self.polling = LongPolling[str](purgatory, source, policy=policy, **options)

    def start(self, resource: str = "n", known: str | None = '"0"', **more: Any) -> asyncio.Task[Answer]:
        headers = {} if known is None else {"if-none-match": known}
        headers |= {"prefer": f"wait={more.pop('wait')}"} if "wait" in more else {}
        return asyncio.create_task(self.polling.answer(resource, headers, **more))

    async def park(self, *args: Any, **more: Any) -> asyncio.Task[Answer]:
        """A poll that has begun."""
        poll = self.start(*args, **more)
        await settle()
        return poll

    async def now(self, resource: str = "n", known: str | None = '"0"', **more: Any) -> Answer:
        """The answer to a poll that must not wait."""
        async with asyncio.timeout(10):
            return await self.start(resource, known, **more)

    def publish(self, resource: str = "n") -> None:
        self.source.values[resource] = self.source.values.get(resource, 0) + 1
        self.polling.notify(resource)


async def ask(purgatory: Purgatory, source: Any, **headers: str) -> Answer:
    """The answer to a poll that must not wait."""
    async with asyncio.timeout(5):
        return await LongPolling[str](purgatory, source, policy=POLICY).answer("n", headers)


def check_empty(polling: LongPolling[Any]) -> None:
    """Nothing waits, and nobody has a place."""
    purgatory, found = polling.purgatory, polling.statistics()
    assert (purgatory.num_delayed, purgatory.watched_entries) == (0, 0)
    assert (found.streams, found.clients, found.groups) == (0, 0, 0)
    check_invariants(purgatory)


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(15):
        while not holds():  # noqa: ASYNC110 no event announces it
            await asyncio.sleep(0.002)
