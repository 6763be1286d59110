"""python -m brokers.parked {"port": ...}: many consumers that wait, and producers. Prints lines as the worker does.

Requests are bytes in which only an offset changes, and answers are decoded only where needed. So the many clients take
less of a core than the broker.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from random import Random
from typing import Any, Final, TypeVar, cast

from buses.member import calm_the_collector, loop_factory

from . import frames

TOPIC: Final = "parked"
#: Answers without their length, as far as they are read: the partition's error, and its high watermark.
_NAME: Final = 2 + len(TOPIC)
_FETCHED: Final = struct.Struct(f">4s4s2s4s4s{_NAME}s4s4shq")
_PRODUCED: Final = struct.Struct(f">4s4s{_NAME}s4s4sh")
_OFFSET: Final = struct.Struct(">q")
_SENTINEL: Final = 0x0123_4567_89AB_CDEF


class Client(asyncio.Protocol, ABC):
    """One connection; hands each answer to answered()."""

    def __init__(self) -> None:
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= (size := 4 + int.from_bytes(self.buffer[:4])):
            frame, self.buffer = self.buffer[4:size], self.buffer[size:]
            self.answered(frame)

    @abstractmethod
    def answered(self, frame: bytes) -> None:
        """Take an answer, without its length."""


C = TypeVar("C", bound=Client)


class Asker(Client):
    """Sends one request, and waits for the answer."""

    async def ask(self, request: bytes) -> bytes:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return cast(bytes, await self.answer)

    def answered(self, frame: bytes) -> None:
        self.answer.set_result(frame)


class Consumer(Client):
    """Fetches one partition again and again. Args: request: has its offset at *place*."""

    def __init__(self, request: bytes, place: int, counts: Counter[str]) -> None:
        super().__init__()
        self.request = bytearray(request)
        self.place = place
        self.counts = counts
        self.offset = 0

    def begin(self) -> None:
        _OFFSET.pack_into(self.request, self.place, self.offset)
        self.transport.write(bytes(self.request))

    def answered(self, frame: bytes) -> None:
        *_, error, high = _FETCHED.unpack_from(frame)
        assert error == 0, error
        self.counts["fetched"] += 1
        self.counts["fetched_nothing"] += high == self.offset
        self.offset = high
        self.begin()


class Producer(Client):
    """Appends to one partition."""

    def __init__(self, request: bytes, counts: Counter[str]) -> None:
        super().__init__()
        self.request = request
        self.counts = counts

    def send(self) -> None:
        self.transport.write(self.request)

    def answered(self, frame: bytes) -> None:
        *_, error = _PRODUCED.unpack_from(frame)
        assert error == 0, error
        self.counts["produced"] += 1


class Load:
    """Args: config: the ``port``, how many ``consumers`` and ``partitions``, and the settings of the requests."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.counts = Counter[str]()
        self.consumers: list[Consumer] = []
        self.producers: list[Producer] = []

    async def run(self) -> None:
        commands = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        await self.connect()
        await self.begin()
        calm_the_collector()
        producing = loop.create_task(self.produce(self.config["rate"]))
        print(json.dumps("ready"), flush=True)
        while await commands.readline():
            names = ("fetched", "fetched_nothing", "produced")
            answer = {name: self.counts[name] for name in names} | {"cpu": time.process_time()}
            print(json.dumps(answer), flush=True)
        producing.cancel()

    async def connect(self) -> None:
        config = self.config
        asker = await self.client(Asker())
        answer = frames.answer("create_topics", await asker.ask(frames.create_topic(TOPIC, config["partitions"])))
        assert answer.topics[0].error_code == 0, answer
        data = frames.batch(bytes(config["value_bytes"]))
        for number in range(config["partitions"]):
            key = TOPIC, number
            append = frames.produce({key: data})
            # With that many records before, the partitions do not all have enough at the same moment.
            for _ in range(1 + number % config["stagger"]):
                await asker.ask(append)
            self.producers.append(await self.client(Producer(append, self.counts)))
            fetch = frames.fetch({key: _SENTINEL}, wait=config["wait"], min_bytes=config["min_bytes"])
            place = fetch.index(_OFFSET.pack(_SENTINEL))
            for _ in range(number, config["consumers"], config["partitions"]):
                self.consumers.append(await self.client(Consumer(fetch, place, self.counts)))

    async def client(self, client: C) -> C:
        """Connect it."""
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", self.config["port"])
        return client

    async def begin(self) -> None:
        """Start over half a second, or all would expire at the same moment each time."""
        for number, consumer in enumerate(self.consumers, 1):
            consumer.begin()
            if number % max(1, len(self.consumers) // 50) == 0:
                await asyncio.sleep(0.01)

    async def produce(self, rate: float) -> None:
        """Send *rate* requests per second to random partitions, the same in each run, without waiting for answers."""
        due, chance = time.monotonic(), Random(1)
        while rate:
            await asyncio.sleep(due - time.monotonic())
            chance.choice(self.producers).send()
            due += 1 / rate


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(Load(json.loads(sys.argv[1])).run())


if __name__ == "__main__":
    main()
