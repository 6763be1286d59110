"""SIGTERM: every request that waits is answered, then the broker exits. So it is with clients that are at work."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import AsyncExitStack, suppress

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from ..server import Broker
from .asks import batch, create, fetch_values, produce
from .clients import write_confluent
from .parking import LONG, PREPARED, code_in
from .served import PATIENCE, Served, wait_until
from .wires import Wire, encoded, framed

#: How each is answered: a fetch with the records there are, and the others so that the client tries again.
ANSWERS = {
    "fetch": ErrorCode.none,
    "produce": ErrorCode.request_timed_out,
    "join_group": ErrorCode.coordinator_not_available,
    "sync_group": ErrorCode.coordinator_not_available,
}


async def park(served: Served, api: str, wire: Wire, helper: Wire) -> None:
    name, prepare = PREPARED[api]
    values = await prepare(wire, helper)
    before = served.pending(name)
    await wire.send(api, **values)
    await asyncio.to_thread(wait_until, lambda: served.pending(name) > before, f"{api} waits")


async def test_stop_answers_all_that_waits_and_exits() -> None:
    with Served("--lag", str(LONG)) as served:
        async with AsyncExitStack() as stack:
            wires = {api: await stack.enter_async_context(await Wire.open(served.port)) for api in PREPARED}
            helper = await stack.enter_async_context(await Wire.open(served.port))
            for api, wire in wires.items():
                await park(served, api, wire, helper)
            begin = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            answers = {api: code_in(api, await wire.receive()) for api, wire in wires.items()}
            assert answers == ANSWERS
            assert [await wire.rest() for wire in (*wires.values(), helper)] == [b""] * 5
        assert served.stop() == (0, "")
        assert time.monotonic() - begin < LONG / 2


async def ask_for_much(port: int) -> tuple[socket.socket, int]:
    """Ask for more than fits into the buffers of sockets. Returns: the connection, and the bytes of the answer."""
    async with await Wire.open(port) as wire:
        await create(wire, "much")
        for _ in range(14):
            await produce(wire, "much", batch(bytes(1 << 20)[:-100]))
    client = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), PATIENCE)
    client.sendall(framed(encoded("fetch", fetch_values("much", 0, wait=0.0, max_bytes=1 << 30))))
    size = await asyncio.to_thread(client.recv, 4, socket.MSG_WAITALL)
    return client, int.from_bytes(size)


def read_rest(client: socket.socket) -> int:
    """How many bytes come until the broker closes the connection."""
    count = 0
    with client, suppress(ConnectionError):
        while part := client.recv(1 << 16):
            count += len(part)
    return count


async def test_stop_lets_a_slow_reader_read_its_answer(own_served: Served) -> None:
    client, size = await ask_for_much(own_served.port)
    own_served.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(read_rest, client) == size
    assert own_served.wait() == (0, "")


async def test_stop_drops_a_client_that_does_not_read(broker: Broker) -> None:
    client, size = await ask_for_much(broker.port)
    begin = time.monotonic()
    await broker.close()
    assert time.monotonic() - begin < 15
    assert await asyncio.to_thread(read_rest, client) < size


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_of_an_idle_broker_exits(own_served: Served, number: signal.Signals) -> None:
    assert own_served.stop(number) == (0, "")


def test_stop_with_a_consumer_in_a_group_exits(own_served: Served) -> None:
    settings = {"bootstrap.servers": own_served.address, "group.id": "g", "log_level": 0, "fetch.wait.max.ms": 30_000}
    write_confluent(own_served.address, "t")
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), "it has all")
    wait_until(lambda: own_served.pending("fetch") > 2 * 2, "its fetch waits, with those of the followers")
    assert own_served.stop() == (0, "")
    consumer.close()
