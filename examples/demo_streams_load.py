"""The load of demo_streams.py: runs one after the other, and listeners that resume in any worker."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise

from demo_load import FIELD, Connection, Tally

#: Runs at once, and the tokens of each.
RUNS, TOKENS = 10, 100
LEAVES_EARLY = 0.3  # the share of connections that the listener closes, by then
LEAVES_WITHIN = 3.0  # seconds
RELOADS = 0.2  # the share of these that begin anew, as a page does that was loaded again


@dataclass
class Heard:
    """A listener's events of a run."""

    run: str
    numbers: list[int] = field(default_factory=list)
    #: The reason of the end, and whether a reconnect after it was answered 204.
    end: str | None = None
    is_told_to_stop: bool = False
    gone: int = 0
    last_id: str = ""


@dataclass
class Worker:
    """The work of one worker process, according to its answers."""

    runs: int = 0
    streams: int = 0
    delivered: int = 0
    #: Of these, tokens of runs in other workers.
    of_others: int = 0


class StreamsLoad:
    """*listeners* share RUNS places, in each of which one run follows the other, for so many seconds."""

    def __init__(self, port: int, listeners: int, seconds: float) -> None:
        self.port, self.polls, self.seconds = port, listeners, seconds
        self.tally = Tally()
        self.workers: defaultdict[int, Worker] = defaultdict(Worker)
        #: The run of each place; which worker has it; and each listener's events of each run.
        self.current = [f"{place}-0" for place in range(RUNS)]
        self.producer: dict[str, int] = {}
        self.heard: list[Heard] = []
        self.killed: int | None = None
        self.listening = 0
        self.is_over = False
        #: The stored events of each run that was begun: the truth.
        self.stored: dict[str, Heard] = {}

    # audit

    def lost(self) -> int:
        return sum(len(set(self.stored[heard.run].numbers).difference(heard.numbers)) for heard in self.ended())

    def doubled(self) -> int:
        return sum(len(heard.numbers) - len(set(heard.numbers)) for heard in self.heard)

    def out_of_order(self) -> int:
        return sum(second < first for heard in self.heard for first, second in pairwise(heard.numbers))

    def hanging(self) -> int:
        """Listeners that were not told the end, or not the one that is stored."""
        return sum(
            not heard.is_told_to_stop or heard.end != self.stored[heard.run].end
            for heard in self.heard
            if heard.run in self.producer
        )

    def incomplete(self) -> int:
        """Runs that are stored with a gap, or ended as done without all tokens."""
        return sum(
            run.numbers != list(range(len(run.numbers))) or (run.end == "done" and len(run.numbers) != TOKENS)
            for run in self.stored.values()
        )

    def ends(self) -> Counter[str | None]:
        return Counter(run.end for run in self.stored.values())

    def ended_otherwise(self) -> int:
        """Runs that were neither done, nor abandoned because their worker was killed."""
        killed = self.killed
        return sum(
            run.end != "done" and (run.end != "abandoned" or self.producer[name] != killed)
            for name, run in self.stored.items()
        )

    def ended(self) -> list[Heard]:
        return [heard for heard in self.heard if heard.is_told_to_stop]

    # runs

    async def produce(self, place: int) -> None:
        """Begin a run when the last one is over, again and again."""
        number = 0
        while not self.is_over:
            name = self.current[place]
            with suppress(OSError, EOFError):  # the worker was killed meanwhile: then the next one is a new run
                async with AsyncExitStack() as stack:
                    worker, connection = await self.least_busy(stack)
                    self.workers[worker].runs += 1
                    await connection.request(f"POST /runs/{name}?tokens={TOKENS}", expected=(202,))
                    self.producer[name] = worker
            if name in self.producer:
                await self.listen(Heard(name))
            number += 1
            self.current[place] = f"{place}-{number}"

    async def least_busy(self, stack: AsyncExitStack) -> tuple[int, Connection]:
        """Return the least busy worker that the kernel offers, and a connection to it."""
        found: dict[int, Connection] = {}
        for _ in range(6):
            connection = await stack.enter_async_context(Connection(self.port))
            found[int((await connection.request("GET /", expected=(200,))).fields["worker"])] = connection
        return min(found.items(), key=lambda one: self.workers[one[0]].runs)

    async def read_stored(self) -> None:
        for name in self.producer:
            self.stored[name] = heard = Heard(name)
            await self.listen(heard)

    # listeners

    async def follow(self, listener: int) -> None:
        """Listen to a run until its end, and then to the next one of the place."""
        place, before = listener % RUNS, ""
        while not self.is_over:
            name = self.current[place]
            if name == before or name not in self.producer:
                await asyncio.sleep(0.02)
                continue
            self.heard.append(heard := Heard(name))
            await self.listen(heard, restless=True)
            before = name

    async def listen(self, heard: Heard, restless: bool = False) -> None:
        """Connect, and again, until told to stop."""
        while not heard.is_told_to_stop:
            leaves = restless and heard.end is None and random.random() < LEAVES_EARLY
            try:
                async with asyncio.timeout(random.uniform(0, LEAVES_WITHIN) if leaves else None):
                    await self.connect(heard, restless)
            except TimeoutError:
                self.tally.hung_up += 1
                if random.random() < RELOADS:
                    heard.numbers, heard.last_id = [], ""
            except (OSError, EOFError, ValueError):
                await asyncio.sleep(random.uniform(0.1, 0.5))

    async def connect(self, heard: Heard, counts: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.listening += counts
        try:
            resume = f"Last-Event-ID: {heard.last_id}\r\n" if heard.last_id else ""
            writer.write(f"GET /runs/{heard.run} HTTP/1.1\r\nHost: localhost\r\n{resume}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heard.is_told_to_stop = int(head[9:12]) == 204
            if int(head[9:12]) == 200:
                worker = int(dict(FIELD.findall(head))["worker"])
                self.workers[worker].streams += 1
                await self.receive(reader, heard, worker, counts)
        finally:
            self.listening -= counts
            writer.transport.abort()

    async def receive(self, reader: asyncio.StreamReader, heard: Heard, worker: int, counts: bool) -> None:
        """Take events until the answer ends."""
        since = time.monotonic()
        fields: dict[str, str] = {}
        while line := (await reader.readline()).decode():  # the sizes of chunks are lines that are no fields
            name, _, text = line.rstrip("\r\n").partition(": ")
            if name or "data" not in fields:
                if name == "0":
                    return  # the last chunk
                fields[name] = text
                continue
            heard.last_id = fields.get("id", heard.last_id)
            if fields.get("event") == "end":
                heard.end = fields["data"]
            elif fields.get("event") == "gone":
                heard.gone += 1
                heard.numbers = []
            else:
                number, posted, producer = fields["data"].split()
                heard.numbers.append(int(number))
                if counts:
                    self.tally.answered += 1
                    if float(posted) > since:  # it was there
                        self.tally.latency.append(time.monotonic() - float(posted))
                    self.workers[worker].delivered += 1
                    self.workers[worker].of_others += int(producer) != worker
            fields = {}
