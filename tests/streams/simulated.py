"""A server in memory that knows the truth, and stores on it that lose messages as a network does."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from aiopurgatory.streams import Run, StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.store import Change, Commit, Notify, Page
from aiopurgatory.streams.topic_state import END

#: The faults of a commit, and of its wake-up.
FAULTS = ("reply lost", "not made", "wake-up lost")


class SimulatedServer(MemoryStore):
    """The server of a test. It asserts of each commit that the rules hold."""

    def __init__(self) -> None:
        super().__init__(lambda: asyncio.get_running_loop().time())
        self.stores: list[SimulatedStore] = []
        self.is_down = False
        #: The events of each topic in this life of the data, by number, even when they are dropped.
        self.truth: dict[str, dict[int, str]] = defaultdict(dict)
        #: The events of every life.
        self.ever: dict[str, set[tuple[int, str]]] = defaultdict(set)
        #: The runs of living producers, by a text that identifies the producer: no reader may end them.
        self.living: dict[str, Run] = {}
        self._lives = 0

    def snapshot(self) -> Any:
        """Copy the data of a replica."""
        return deepcopy((self._topics, self.truth))

    def lose(self, snapshot: Any) -> None:
        """Lose what was committed since *snapshot*, and tell nobody, as PostgreSQL does without synchronous_commit."""
        self._topics, self.truth = deepcopy(snapshot)

    def fail_over(self, snapshot: Any) -> None:
        """The replica is the server now."""
        self.lose(snapshot)
        self._lives += 1
        self._server = f"life {self._lives}"

    def delete(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self.truth.pop(topic, None)

    async def commit(self, topic: str, commit: Commit) -> Page:
        truth, is_new = self.truth[topic], topic not in self._topics
        page = await super().commit(topic, commit)
        if page.version != commit.version:
            return page
        if is_new:
            truth.clear()
        for number, text in commit.rows:
            assert number == len(truth) + 1, f"{topic}: number {number} after {len(truth)}"
            assert text not in truth.values(), f"{topic}: {text!r} is there twice"
            assert not truth or not truth[number - 1].startswith(f"{END}\n"), f"{topic}: {text!r} after the end"
            writer, _, count = text.partition("\n")[2].partition(":")
            counts = [int(each.rpartition(":")[2]) for each in truth.values() if each.startswith(f"\n{writer}:")]
            assert not counts or int(count) > counts[-1], f"{topic}: {text!r} after {counts[-1]}"
            producer = json.loads(commit.state).get("producer")
            is_newest = not counts or truth[number - 1].startswith(f"\n{writer}:")
            assert is_newest or not producer, f"{topic}: {text!r} of a producer that was replaced"
            run = self.living.get(producer)
            is_living = run is not None and run._renewing is not None and not run._renewing.done()
            assert text != f"{END}\nabandoned" or not is_living, f"{topic}: abandoned, and its producer lives"
            truth[number] = text
            self.ever[topic].add((number, text))
        return page


class SimulatedStore:
    """The connection of one process to *server*. Args: random: decides how long each message travels."""

    def __init__(self, server: SimulatedServer, random: Random) -> None:
        self._server, self._random = server, random
        self._notify: Notify | None = None
        self.error: str | None = None
        server.stores.append(self)
        #: The faults of the next commits, in order.
        self.faults: list[str] = []
        self.is_down = self.is_deaf = False
        #: Raised by each read and commit.
        self.broken: Exception | None = None

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._notify, self._notify_all = notify, notify_all

    async def aclose(self) -> None:
        self._notify = None

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        await self._travel()
        page = await self._server.read(topic, after, rows, size)
        await self._travel()
        return page

    async def commit(self, topic: str, commit: Commit) -> Page:
        fault = self.faults.pop(0) if self.faults else ""
        await self._travel()
        if fault == "not made":
            raise StoreDownError("not made")
        page = await self._server.commit(topic, commit)
        if page.version == commit.version:
            change = Change(commit.expected, commit.version, commit.rows) if commit.is_plain else None
            for store in self._server.stores:
                if fault != "wake-up lost" and not store.is_deaf:
                    asyncio.get_running_loop().call_later(self._random.random() / 50, store.hear, topic, change)
        await self._travel()
        if fault == "reply lost":
            raise StoreDownError("the reply was lost")
        return page

    def notice(self) -> None:
        """Messages may have been lost."""
        if self._notify is not None and not self.is_deaf:
            self._notify_all()

    def hear(self, topic: str, change: Change | None) -> None:
        if self._notify is not None and not self.is_deaf:
            self._notify(topic, change)

    async def _travel(self) -> None:
        if self._random.random() < 0.8:
            await asyncio.sleep(self._random.random() / 50)
        if self.broken is not None:
            raise self.broken
        if self.is_down or self._server.is_down:
            raise StoreDownError("the server is down")
