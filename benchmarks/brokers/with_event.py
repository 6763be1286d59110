"""The broker of examples/broker, but its requests wait as one would write it without this library.

Each waiting request has a task, and an asyncio.Event in a set of every partition that it waits for. A change of a
partition sets all Events of its set, and each request then checks its own condition. asyncio.timeout() ends the wait.
(One task for each connection, with asyncio's streams, takes as much CPU time.)

Everything else is the same in both: logs, the replicas' offsets, the sessions of followers, and groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.answers import Key
from broker.errors import KafkaError
from broker.fetches import Fetched
from broker.replication import Partition, Read, View, What
from broker.server import Broker

from aiopurgatory.operations import Replicas, SourceError

Waiters = set[asyncio.Event]


async def wait_until(is_met: Callable[[], bool], waiters: Iterable[Waiters], timeout: float) -> None:
    """Wait until *is_met*, which is called now and when an Event in one of *waiters* is set, or for *timeout* s."""
    if is_met() or timeout <= 0:
        return
    event = asyncio.Event()
    for each in waiters:
        each.add(event)
    try:
        async with asyncio.timeout(timeout):
            while True:
                await event.wait()
                event.clear()
                if is_met():
                    return
    except TimeoutError:
        pass
    finally:
        for each in waiters:
            each.discard(event)


class EventPartition(Partition):
    """A partition that knows which requests wait for it."""

    def __init__(self, *args: Any) -> None:
        self.waiters: dict[What, Waiters] = {"end": set(), "committed": set()}
        super().__init__(*args)

    def tell(self, what: What) -> None:
        for event in self.waiters[what]:
            event.set()

    async def read(self, what: What, offset: int, max_bytes: int, timeout: float) -> Read | SourceError:
        view = View(self, what, max_bytes)
        try:
            await wait_until(lambda: view.readable(offset) > 0, [self.waiters[what]], timeout)
            return view.read(offset, max_bytes)
        except SourceError as error:
            return error.with_traceback(None)

    def _drop(self, follower: int) -> None:
        super()._drop(follower)
        self.tell("committed")  # too few may be in sync now, of which producers are to know


class EventBroker(Broker):
    """A broker of such partitions."""

    def make_partition(self, topic: str, number: int) -> EventPartition:
        return EventPartition(self.fetches, self.acks, topic, number, self.settings.partition)

    async def close(self) -> None:
        self.connections.stop_listening()
        for partition in [each for parts in self.topics.values() for each in parts]:
            partition.tell("committed")
        await super().close()

    async def acked(
        self, required: Mapping[Key, tuple[Replicas[int], int] | Exception], timeout: float
    ) -> dict[Key, Exception | None]:
        answers: dict[Key, Exception | None] = {}
        pending: dict[Key, tuple[Replicas[int], int]] = {}
        for key, need in required.items():
            if isinstance(need, Exception):
                answers[key] = need
            else:
                pending[key] = need

        def is_met() -> bool:
            for key, (replicas, offset) in list(pending.items()):
                error = replicas.error_for(offset)
                if error is not None or replicas.high_watermark >= offset:
                    answers[key] = error
                    del pending[key]
            return not pending or self.connections.is_stopping

        await wait_until(is_met, self._waiters(pending), timeout)
        for key in pending:
            answers[key] = TimeoutError()
        return {key: answers[key] for key in required}

    async def read(self, fetched: Fetched, min_bytes: int, timeout: float) -> Fetched:
        waiters = self._waiters(fetched.partitions)
        await wait_until(lambda: fetched.has(min_bytes) or self.connections.is_stopping, waiters, timeout)
        return fetched

    def _waiters(self, keys: Iterable[Key]) -> list[Waiters]:
        """Those of the partitions that there are; a request for others does not wait."""
        found = []
        for key in keys:
            try:
                partition = self.partition(*key)
            except KafkaError:
                continue
            assert isinstance(partition, EventPartition)
            found.append(partition.waiters["committed"])
        return found
