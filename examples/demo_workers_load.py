"""The load of demo_workers.py: clients that resume by ETag from any worker, and publishers."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, pairwise

from demo_load import Answer, Clients, Connection

Id = tuple[int, ...]


@dataclass
class Worker:
    """The work of one worker process, according to its answers."""

    #: Polls answered with events, and how many of these had only events of other workers: the bus woke them.
    answered: int = 0
    woken: int = 0
    timed_out: int = 0
    published: int = 0


def parsed(event: object) -> Id:
    """An event's id in comparable form: from 7 in PostgreSQL, from "1754400000000-0" in Redis."""
    return tuple(map(int, str(event).split("-")))


async def connect_to_all(
    stack: AsyncExitStack, port: int, count: int, line: str = "GET /topics/0?wait=0"
) -> dict[int, Connection]:
    """Return a connection to each of *count* workers, by process id. The kernel chooses which worker accepts one."""
    found: dict[int, Connection] = {}
    while len(found) < count:
        connection = await stack.enter_async_context(Connection(port))
        answer = await connection.request(line, expected=(200,))
        found.setdefault(int(answer.fields["worker"]), connection)
        await asyncio.sleep(0.01)
    return found


class WorkersLoad(Clients):
    """Args: publishers: a connection to each worker, by process id."""

    def __init__(self, port: int, polls: int, seconds: float, publishers: dict[int, Connection]) -> None:
        super().__init__(port, polls, seconds)
        self.longest_wait = min(6.0, max(3.0, seconds / 2))
        self.publishers = publishers
        self.workers: defaultdict[int, Worker] = defaultdict(Worker)
        #: For each topic the posted events, and for each client its last ETag and the events it has received.
        self.published: list[set[Id]] = [set() for _ in range(self.topics)]
        self.etags: list[str | None] = [None] * polls
        self.seen: list[list[Id]] = [[] for _ in range(polls)]
        #: Seconds from posting an event in another worker until a client had it. The tally has the other latencies.
        self.woken_after: list[float] = []
        #: Polls that wait for events after an ETag.
        self.waiting = 0

    def lost(self) -> int:
        """How many events have not reached a client of their topic."""
        return sum(len(self.published[self.topic(client)].difference(seen)) for client, seen in enumerate(self.seen))

    def doubled(self) -> int:
        return sum(len(seen) - len(set(seen)) for seen in self.seen)

    def out_of_order(self) -> int:
        """Events that a client received after a later one of its topic."""
        return sum(second < first for seen in self.seen for first, second in pairwise(seen))

    async def follow(self, client: int) -> None:
        await asyncio.sleep(client * 0.003)  # otherwise a single worker would accept most of the connections
        await super().follow(client)

    async def ask(self, connection: Connection, client: int, wait: float) -> Answer:
        line, etag = f"GET /topics/{self.topic(client)}?wait={wait}", self.etags[client]
        if etag is None:  # answered at once, with the events so far
            return await connection.request(line, expected=(200,))
        self.waiting += 1
        try:
            answer = await connection.request(line, expected=(200, 304), fields={"If-None-Match": etag})
        finally:
            self.waiting -= 1
        if answer.status == 304:
            self.workers[int(answer.fields["worker"])].timed_out += 1
        return answer

    def take(self, client: int, answer: Answer, now: float) -> None:
        self.etags[client] = answer.fields["etag"]
        if not answer.json:
            return
        # A user may have published events in another form.
        ours = [event["data"] for event in answer.json if "posted" in event["data"]]
        pid = int(answer.fields["worker"])
        is_woken = all(int(data["by"]) != pid for data in ours)
        self.workers[pid].answered += 1
        self.workers[pid].woken += is_woken
        self.tally.answered += 1
        latency = self.woken_after if is_woken else self.tally.latency
        latency += [now - float(data["posted"]) for data in ours]
        self.seen[client] += [parsed(event["id"]) for event in answer.json]

    async def publish(self) -> None:
        """Post to random topics through each worker in turn, and often through the next one at the same time."""
        rate = min(self.topics / self.longest_wait, 5.0)  # each event causes 15 answers: light for two cores
        end = time.monotonic() + self.seconds
        turns = cycle(pairwise([*self.publishers, next(iter(self.publishers))]))
        while time.monotonic() < end:
            await asyncio.sleep(random.expovariate(rate))
            topic = random.randrange(self.topics)
            async with asyncio.TaskGroup() as group:
                for worker in next(turns)[: random.randint(1, 2)]:
                    group.create_task(self.post(worker, topic))

    async def post(self, worker: int, topic: int) -> None:
        body = json.dumps({"posted": str(time.monotonic()), "by": str(worker)})
        answer = await self.publishers[worker].request(f"POST /topics/{topic}", expected=(201,), body=body)
        self.workers[int(answer.fields["worker"])].published += 1
        self.published[topic].add(parsed(answer.json["id"]))
