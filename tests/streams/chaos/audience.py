"""The audience of a chaos test: listeners over HTTP that go from worker to worker, and the events they got."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import count
from random import Random


class Client:
    """Follows *topic* as an EventSource does, until it is told that there is no more.

    Args:
        ports: of the workers. Each connection goes to the next one.
        restless: mean seconds between two reconnects without a reason; None: none.
        resumes: whether it sends the id of the last event.
    """

    def __init__(self, ports: list[int], topic: str, seed: int, restless: float | None = None) -> None:
        self.topic = topic
        self._ports, self._next = ports, seed
        self._random, self._restless = Random(seed), restless
        #: Since the last ``gone``: the data of each event, and then the reason of the end.
        self.got: list[str] = []
        self.reason: str | None = None
        #: The data of the events before each ``gone``.
        self.before: list[list[str]] = []
        self.answers = Counter[int]()
        self._id = ""
        self.paused = asyncio.Event()
        self.paused.set()

    async def run(self) -> None:
        while self.reason is None or not self.answers[204]:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            limit = None if self._restless is None else self._random.expovariate(1 / self._restless)
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(limit):
                    await self._connect(port)
            if self.answers[404]:
                return
            await asyncio.sleep(0.05)

    async def _connect(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        try:
            resume = f"Last-Event-ID: {self._id}\r\n" if self._id else ""
            writer.write(f"GET /{self.topic} HTTP/1.1\r\nHost: a\r\n{resume}\r\n".encode())
            status = int((await reader.readline()).split()[1] or 0)
            self.answers[status] += 1
            if status != 200:
                return
            name, data, found = "", [], None
            while line := await reader.readline():
                await self.paused.wait()
                field, _, value = line.decode().rstrip("\r\n").partition(": ")
                match field:
                    case "event":
                        name = value
                    case "data":
                        data.append(value)
                    case "id" | "id:":
                        found = value
                    case "" if data:
                        self._take(name, "\n".join(data), found)
                        name, data, found = "", [], None
                    case "0":  # the last chunk
                        return
        except (IndexError, ValueError):
            raise ConnectionError("no answer") from None
        finally:
            writer.transport.abort()

    def _take(self, name: str, data: str, found: str | None) -> None:
        if found is not None:
            self._id = found
        if name == "gone":
            self.before.append(self.got)
            self.got = []
        elif name == "end":
            self.reason = data
        else:
            self.got.append(data)


class Audience:
    """*each* listeners of each of *topics*."""

    def __init__(self, ports: list[int], topics: list[str], each: int, restless: float | None = None) -> None:
        seeds = count()
        self.clients = [Client(ports, topic, next(seeds), restless) for topic in topics for _ in range(each)]
        self._tasks = [asyncio.create_task(client.run()) for client in self.clients]

    async def over(self, seconds: float) -> int:
        """Wait until every listener knows that there is no more. Returns: how many do not, after *seconds*."""
        _, hanging = await asyncio.wait(self._tasks, timeout=seconds)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        return len(hanging)

    def heard(self, topic: str) -> set[tuple[str, ...]]:
        """Return the different lists of events that the clients of *topic* have."""
        return {tuple(client.got) for client in self.clients if client.topic == topic}

    def lost(self, events: int) -> int:
        """Return how many of the *events* of each topic did not reach the clients that were not told ``gone``."""
        return sum(events - len(set(client.got)) for client in self.clients if not client.before)

    def doubled(self) -> int:
        """Return how many events came twice."""
        return sum(len(client.got) - len(set(client.got)) for client in self.clients)

    def reordered(self) -> int:
        """Return how many events came before one of a lower number."""
        return sum(
            int(one) > int(other)
            for client in self.clients
            for one, other in zip(client.got, client.got[1:], strict=False)
        )

    def gone(self) -> int:
        """Return how often a listener was told ``gone``."""
        return sum(len(client.before) for client in self.clients)

    def reasons(self) -> Counter[str | None]:
        """Return how many listeners were told each reason of the end."""
        return Counter(client.reason for client in self.clients)
