"""Random requests in random pieces, of clients that read slowly or leave. The model is a list of answers in order."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from ..answers import Values
from ..server import BrokerSettings
from .conftest import Start
from .served import PATIENCE
from .waits import until
from .wires import encoded, framed

#: More with CONNECTION_SEEDS=1000.
SEEDS: Final = range(int(os.environ.get("CONNECTION_SEEDS", "5")))
CLIENTS: Final = 8
REQUESTS: Final = 40
KIB: Final = 1 << 10
#: Of requests and answers: below and above what is kept of repeated requests, what is small, and what buffers take.
SIZES: Final = (0, 0, 0, 100, 2_000, 20 * KIB, 64 * KIB, 150 * KIB)
ANSWERS: Final = (0, 0, 0, 0, 100, 60 * KIB, 70 * KIB, 2_000 * KIB)
#: How a request is answered: at once, by a future, by a coroutine, or not at all.
KINDS: Final = ("now", "now", "future", "task", "none")
#: Some requests have nearly as many bytes, and some pieces end there.
EDGE: Final = 64 * KIB
#: Large requests wait for each other.
ROOM: Final = 256 * KIB


class Handler:
    """Answers requests as they ask for. Notes those of each client."""

    def __init__(self, rng: random.Random) -> None:
        self.handled: dict[str, list[int]] = {}
        self._rng = rng

    def __call__(self, request: Any) -> Any:
        self.handled.setdefault(request.client_id, []).append(request.correlation_id)
        if request.api == "heartbeat":
            return Values(error_code=ErrorCode.none)
        kind, size = request.body.group_id, request.body.generation_id
        values = Values(error_code=ErrorCode.none, assignment=bytes(size))
        if kind == "future":
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(self._rng.choice([0.0, 0.001, 0.01]), _end, future, values)
            return future
        if kind == "task":
            return self._later(values)
        return values if kind == "now" else None

    async def _later(self, values: Values) -> Values:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)
        return values


def _has_all(handled: list[int]) -> bool:
    return len(handled) == REQUESTS


def _end(future: asyncio.Future[Values], values: Values) -> None:
    if not future.done():
        future.set_result(values)


class Client:
    """Sends its requests in pieces, while it reads the answers."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.answers: list[tuple[int, int]] = []  # the number and the size of each
        #: None: it stays until it has all answers.
        self.leaves = rng.choice([None, None, "close", "reset", "shut_down"])
        self.is_silent = rng.random() < 0.3  # it asks for no answer, as a producer with acks=0
        self.requests: list[tuple[int, bytes]] = []
        self.expected: list[tuple[int, int]] = []
        for number in range(REQUESTS):
            self._add(number, rng)
        self._rng = rng

    def _add(self, number: int, rng: random.Random) -> None:
        number -= rng.randrange(2) * (1 << 31)  # negative ones, too
        kind, size = "none" if self.is_silent else rng.choice(KINDS), rng.choice(ANSWERS)
        ids: dict[str, Any] = {"correlation_id": number, "client_id": self.name}
        if kind == "now" and not size:
            request = encoded("heartbeat", {"generation_id": 0}, **ids)
        else:
            values = {"group_id": kind, "generation_id": size, "member_id": "m"}
            without = len(encoded("sync_group", values | {"assignments": [{}]}, **ids)) + 2
            part = {"assignment": bytes(max(rng.choice(SIZES) + rng.randrange(-4, 5) - without, 0))}
            request = encoded("sync_group", values | {"assignments": [part]}, **ids)
        self.requests.append((number, framed(request)))
        if kind != "none":
            self.expected.append((number, size))

    @property
    def all_are_handled(self) -> bool:
        """Whether it leaves no request unread: closed with answers in it, a socket resets the connection."""
        return self.leaves in (None, "shut_down") or (self.leaves == "close" and self.is_silent)

    async def run(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            if self._rng.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            await loop.sock_connect(client, ("127.0.0.1", port))
            reading = asyncio.create_task(self._read(client))
            with suppress(ConnectionError):
                for piece in self._pieces():
                    await loop.sock_sendall(client, piece)
                    await asyncio.sleep(self._rng.choice([0, 0, 0, 0.001]))
            if self.leaves == "shut_down":
                with suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
            if self.leaves in ("close", "reset"):
                reading.cancel()
            if self.leaves == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(asyncio.CancelledError):
                await reading

    def _pieces(self) -> Iterator[bytes]:
        data = b"".join(request for _, request in self.requests)
        edges, place = list[int](), 0
        for _, request in self.requests:
            place += len(request)
            edges += [place, *([place - len(request) + EDGE] if len(request) > EDGE else [])]
        cuts = {
            min(max(edge + self._rng.randrange(-4, 8), 0), len(data))
            for edge in self._rng.sample(edges, self._rng.choice([1, 20]))
        }
        for begin, end in pairwise(sorted({0, *cuts, len(data)})):
            yield data[begin:end]

    async def _read(self, client: socket.socket) -> None:
        with suppress(ConnectionError, EOFError):
            while self.leaves or len(self.answers) < len(self.expected):
                size = int.from_bytes(await self._exactly(client, 4))
                frame = await self._exactly(client, size)
                number = int.from_bytes(frame[:4], signed=True)
                self.answers.append((number, self._size_in(size)))
                await asyncio.sleep(self._rng.choice([0, 0, 0, 0.005]))

    def _size_in(self, size: int) -> int:
        """The size of the assignment in an answer of *size* bytes, which has up to 20 others."""
        _, wanted = self.expected[len(self.answers)]
        return wanted if wanted <= size <= wanted + 20 else size

    async def _exactly(self, client: socket.socket, size: int) -> bytes:
        parts = []
        while size:
            part = await asyncio.get_running_loop().sock_recv(client, min(size, 1 << self._rng.randrange(14, 20)))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def check(self, handled: list[int]) -> None:
        numbers = [number for number, _ in self.requests]
        assert handled == numbers[: len(handled)], f"{self.name}: each request once, in order"
        assert self.answers == self.expected[: len(self.answers)], f"{self.name}: each answer once, in order"
        if self.leaves is None:
            assert self.answers == self.expected, f"{self.name}: all answers"


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_requests_are_answered_in_order_each_once(
    start: Start, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    rng = random.Random(seed)
    broker = await start(BrokerSettings(max_request=ROOM, max_reading=ROOM))
    handler = Handler(rng)
    broker.connections.answer = handler
    clients = [Client(f"client {number}", random.Random(f"{seed} {number}")) for number in range(CLIENTS)]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(client.run(broker.port) for client in clients))
    for client in clients:
        handled = handler.handled.setdefault(client.name, [])
        if client.all_are_handled:
            await until(partial(_has_all, handled), f"{client.name}: all requests")
        client.check(handled)
    await until(lambda: broker.connections.unread.room() == broker.settings.max_unread, "all is read")
    assert caplog.messages == []
