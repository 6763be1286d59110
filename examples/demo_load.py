"""The load of demo.py: clients that follow topics by long polls over real sockets, and a publisher."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

CLIENTS_PER_TOPIC = 10
LEAVES_EARLY = 0.1  # the share of polls whose client hangs up before their time is up
CONTENT_LENGTH = re.compile(rb"content-length: (\d+)")


def tame_collector() -> None:
    """Make collections rare. Thousands of pending requests are long-lived objects: the collector would visit them all
    again and again, and stop the process for up to 200 ms each time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


class Connection:
    """An HTTP connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.writer.close()

    async def request(self, line: str, expected: tuple[int, ...], body: str = "") -> Any:
        """Returns: the JSON of the answer, None for 204. Raises: RuntimeError: its status is none of *expected*."""
        self.writer.write(f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        if int(head[9:12]) not in expected:
            raise RuntimeError(f"{line} was answered with {head!r}")
        length = CONTENT_LENGTH.search(head)
        return json.loads(await self.reader.readexactly(int(length[1]))) if length else None


@dataclass
class Tally:
    """Counts of the polls so far, by how they ended."""

    timed_out: int = 0
    hung_up: int = 0
    answered: int = 0
    #: Timeouts that came before their time, as the client sees it.
    #: Records that were not the next one of their topic.
    out_of_order: int = 0
    #: Seconds from before a record was posted until a client had it; both processes share the monotonic clock.
    latency: list[float] = field(default_factory=list)


class Load:
    """*polls* clients, a few to each topic, and the records that they have seen."""

    def __init__(self, port: int, polls: int, seconds: float) -> None:
        self.port = port
        self.polls = polls
        self.seconds = seconds
        self.longest_wait = min(6.0, seconds / 2)
        self.published = [0] * max(1, polls // CLIENTS_PER_TOPIC)
        self.seen = [0] * polls
        self.tally = Tally()

    def topic(self, client: int) -> int:
        return client % len(self.published)

    def lost(self) -> int:
        """Records of its topic that a client has not seen, or seen twice."""
        return sum(abs(self.published[self.topic(client)] - seen) for client, seen in enumerate(self.seen))

    async def follow(self, client: int) -> None:
        """Poll for ever: on one connection until this client hangs up, then on another one, from the same offset."""
        while True:
            async with Connection(self.port) as connection:
                while await self.poll(connection, client):
                    pass

    async def poll(self, connection: Connection, client: int) -> bool:
        """One long poll. Returns: False if the client hung up before an answer."""
        wait = round(random.uniform(self.longest_wait / 3, self.longest_wait), 3)
        patience = random.uniform(0, wait) if random.random() < LEAVES_EARLY else None
        line = f"GET /topics/{self.topic(client)}?offset={self.seen[client]}&wait={wait}"
        try:
            async with asyncio.timeout(patience):
                records = await connection.request(line, expected=(200, 204))
        except TimeoutError:
            self.tally.hung_up += 1
            return False
        now = time.monotonic()
        if records is None:
            self.tally.timed_out += 1
        else:
            self.tally.answered += 1
            for number, posted in records:
                self.tally.out_of_order += number != self.seen[client]
                self.tally.latency.append(now - posted)
                self.seen[client] += 1
        return True

    async def publish(self) -> None:
        """Post records to random topics, so often that about as many polls are answered as time out."""
        rate = len(self.published) / self.longest_wait * 1.5
        end = time.monotonic() + self.seconds
        async with Connection(self.port) as connection:
            while time.monotonic() < end:
                await asyncio.sleep(random.expovariate(rate))
                topic = random.randrange(len(self.published))
                record = json.dumps([self.published[topic], time.monotonic()])
                self.published[topic] += 1
                await connection.request(f"POST /topics/{topic}", expected=(201,), body=record)
