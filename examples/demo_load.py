"""The load of the demos: clients that follow topics by long polls over real sockets, and a publisher."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

CLIENTS_PER_TOPIC = 10
LEAVES_EARLY = 0.1  # this share of the clients hangs up before the deadline
FIELD = re.compile(r"^([a-z-]+): (.*)\r$", re.MULTILINE)
NO_FIELDS: Mapping[str, str] = MappingProxyType({})


def tame_collector() -> None:
    """Make garbage collections rare. Thousands of pending requests are long-lived objects: each collection would visit
    them all, and stop the process for up to 200 ms.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    #: None without a body.
    json: Any


class Connection:
    """A keep-alive HTTP connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.writer.close()

    async def request(
        self, line: str, expected: tuple[int, ...], body: str = "", fields: Mapping[str, str] = NO_FIELDS
    ) -> Answer:
        """Send a request and return its answer. Raises: RuntimeError: its status is not in *expected*."""
        sent = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body)), **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self.writer.write(f"{line} HTTP/1.1\r\n{head}\r\n{body}".encode())
        received = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, told = int(received[9:12]), dict(FIELD.findall(received))
        length = int(told.get("content-length", 0))
        data = await self.reader.readexactly(length)
        if status not in expected:
            raise RuntimeError(f"{line} was answered with {received!r} {data[:200]!r}")
        return Answer(status, told, json.loads(data) if length else None)


@dataclass
class Tally:
    """Counts of ended polls, by outcome."""

    timed_out: int = 0
    hung_up: int = 0
    answered: int = 0
    #: Seconds from posting a record until a client had it. Both processes share the monotonic clock.
    latency: list[float] = field(default_factory=list)


class Clients(ABC):
    """Runs *polls* clients, a few per topic, and notes the records that they got."""

    def __init__(self, port: int, polls: int, seconds: float) -> None:
        self.port = port
        self.polls = polls
        self.seconds = seconds
        self.longest_wait = min(6.0, seconds / 2)
        self.topics = max(1, polls // CLIENTS_PER_TOPIC)
        self.tally = Tally()

    def topic(self, client: int) -> int:
        return client % self.topics

    async def follow(self, client: int) -> None:
        """Poll for ever. After hanging up, the client resumes on a new connection."""
        while True:
            async with Connection(self.port) as connection:
                while await self.poll(connection, client):
                    pass

    async def poll(self, connection: Connection, client: int) -> bool:
        """One long poll. Returns: False if the client hung up before an answer."""
        wait = round(random.uniform(self.longest_wait / 3, self.longest_wait), 3)
        patience = random.uniform(0, wait) if random.random() < LEAVES_EARLY else None
        try:
            async with asyncio.timeout(patience):
                answer = await self.ask(connection, client, wait)
        except TimeoutError:
            self.tally.hung_up += 1
            return False
        if answer.status == 200:
            self.take(client, answer, time.monotonic())
        else:
            self.tally.timed_out += 1
        return True

    @abstractmethod
    async def ask(self, connection: Connection, client: int, wait: float) -> Answer:
        """Send a poll for *client*."""

    @abstractmethod
    def take(self, client: int, answer: Answer, now: float) -> None:
        """Count an answer with news, and note its records."""

    @abstractmethod
    def lost(self) -> int:
        """How many records clients have not seen yet."""

    @abstractmethod
    async def publish(self) -> None:
        """Post records to random topics, at a rate at which some polls are answered and others time out."""


class Load(Clients):
    """Clients that poll longpoll_server.py by offset, and one publisher. Records are numbered per topic."""

    def __init__(self, port: int, polls: int, seconds: float) -> None:
        super().__init__(port, polls, seconds)
        self.published = [0] * self.topics
        self.seen = [0] * polls
        #: Records received that were not the next of their topic.
        self.out_of_order = 0

    def lost(self) -> int:
        """How many records clients have not seen, or seen twice."""
        return sum(abs(self.published[self.topic(client)] - seen) for client, seen in enumerate(self.seen))

    async def ask(self, connection: Connection, client: int, wait: float) -> Answer:
        line = f"GET /topics/{self.topic(client)}?offset={self.seen[client]}&wait={wait}"
        return await connection.request(line, expected=(200, 204))

    def take(self, client: int, answer: Answer, now: float) -> None:
        self.tally.answered += 1
        for number, posted in answer.json:
            self.out_of_order += number != self.seen[client]
            self.tally.latency.append(now - posted)
            self.seen[client] += 1

    async def publish(self) -> None:
        rate = self.topics / self.longest_wait * 1.5
        end = time.monotonic() + self.seconds
        async with Connection(self.port) as connection:
            while time.monotonic() < end:
                await asyncio.sleep(random.expovariate(rate))
                topic = random.randrange(self.topics)
                record = json.dumps([self.published[topic], time.monotonic()])
                self.published[topic] += 1
                await connection.request(f"POST /topics/{topic}", expected=(201,), body=record)
