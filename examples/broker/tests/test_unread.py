"""Clients that send more than others, or more than they read: what the broker does and keeps for them is bounded."""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from contextlib import ExitStack, closing, suppress
from typing import Any, Final

import pytest

from ..answers import Values
from ..fetches import DelayedFetch
from ..server import Broker
from .asks import batch, create, fetch_values, produce, values_in
from .conftest import Start
from .unread import MIB, TOPIC, ask, ask_for_names, fill, read, settings, size_of_answer
from .waits import until
from .wires import Wire, encoded, framed

#: Fetches that end at the same moment.
MANY: Final = 16

Bound = pytest.mark.parametrize("max_unread", [6 * MIB, 256 * MIB], ids=["bound", "control"])


async def fetch_all(port: int) -> Any:
    async with await Wire.open(port) as wire:
        return await wire.call("fetch", **fetch_values(TOPIC, 0, wait=60.0, max_bytes=1 << 30))


def records(answer: Any) -> int:
    """How many bytes of records there are."""
    return len(answer.responses[0].partitions[0].records or b"")


@Bound
async def test_fetch_gets_no_records_until_another_client_reads(start: Start, max_unread: int) -> None:
    broker = await start(settings(max_unread))
    size = await fill(broker.port)
    with closing(await ask(broker.port)) as first, closing(await ask(broker.port)) as second:
        sizes = [await size_of_answer(client) for client in (first, second)]
        answer = await fetch_all(broker.port)
        is_bound = max_unread < 2 * size
        assert (records(answer) == 0) is is_bound
        assert bool(answer.throttle_time) is is_bound
        assert [await read(first, sizes[0]), await read(second, sizes[1])] == sizes
        assert records(await fetch_all(broker.port)) >= size / 2


@Bound
async def test_client_that_does_not_read_is_dropped_when_there_is_no_room(start: Start, max_unread: int) -> None:
    broker = await start(settings(max_unread))
    await fill(broker.port)
    with closing(await ask(broker.port)) as first, closing(await ask(broker.port)) as second:
        sizes = [await size_of_answer(client) for client in (first, second)]
        broker.connections.grace = 0.0
        await asyncio.sleep(0.1)
        await fetch_all(broker.port)
        assert records(await fetch_all(broker.port)) > 0
        is_whole = [await read(first, sizes[0]), await read(second, sizes[1])] == sizes
        assert is_whole is (max_unread > sum(sizes))


async def test_client_that_shuts_down_and_does_not_read_is_dropped_too(start: Start) -> None:
    broker = await start(settings(6 * MIB))
    await fill(broker.port)
    broker.connections.grace = 0.0
    with closing(await ask(broker.port)) as first, closing(await ask(broker.port)) as second:
        for client in (first, second):
            await size_of_answer(client)
            client.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.1)
        await fetch_all(broker.port)
        assert records(await fetch_all(broker.port)) > 0


@Bound
async def test_other_large_answers_need_room_too(
    start: Start, max_unread: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(settings(max_unread))
    with closing(await ask_for_names(broker.port)) as first, closing(await ask_for_names(broker.port)) as second:
        sizes = [await size_of_answer(client) for client in (first, second)]
        is_bound = max_unread < sum(sizes)
        assert sorted(sizes) == [0 if is_bound else max(sizes), max(sizes)]
        assert ("there is no room for its answer" in caplog.text) is is_bound
        async with await Wire.open(broker.port) as wire:
            assert (await wire.call("metadata", topics=[])).topics == ()
        assert [await read(client, size) for client, size in zip((first, second), sizes, strict=True)] == sizes


async def test_client_that_does_not_read_is_not_answered_again(start: Start) -> None:
    broker = await start(settings(256 * MIB))
    await fill(broker.port)
    answer, handled = broker.connections.answer, list[str]()

    def noted(request: Any) -> Any:
        handled.append(request.api)
        return answer(request)

    broker.connections.answer = noted
    with closing(await ask(broker.port)) as client:
        size = await size_of_answer(client)
        await asyncio.to_thread(client.sendall, framed(encoded("metadata", {"topics": []})) * 3)
        await asyncio.sleep(0.1)
        assert handled == ["fetch"]
        assert await read(client, size) == size
        await until(lambda: len(handled) == 4, "the others are handled")


class Eager(DelayedFetch):
    """Reads the records when the wait ends, as an ordinary answer would."""

    def on_complete(self) -> Any:
        return Values(error_code=0, session_id=0, responses=super().on_complete().responses)


@pytest.mark.parametrize("kind", [DelayedFetch, Eager], ids=["bound", "control"])
async def test_fetches_that_end_together_take_no_memory_together(
    start: Start, monkeypatch: pytest.MonkeyPatch, kind: type[DelayedFetch]
) -> None:
    monkeypatch.setitem(Broker.read.__globals__, "DelayedFetch", kind)
    broker = await start(settings(16 * MIB))
    size = await fill(broker.port)
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(closing(await ask(broker.port, min_bytes=size + 1)))
        await until(lambda: broker.fetches.statistics().pending == 2 + MANY, "all fetches wait")
        tracemalloc.start()
        try:
            async with await Wire.open(broker.port) as wire:
                await produce(wire, TOPIC, batch(b"one more"))
            await until(lambda: broker.fetches.statistics().pending == 2, "all have ended")
            await asyncio.sleep(0.1)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (peak < 5 * size) is (kind is DelayedFetch), f"{peak / size:.1f} answers"


async def test_client_that_sends_much_while_it_waits_is_not_read(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    request = framed(encoded("metadata", {"topics": [{"name": "t"}]}))
    async with await Wire.open(broker.port) as client:
        await client.send("fetch", **fetch_values("t", 0, wait=60.0))
        client.writer.write(request * (20 * MIB // len(request)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.writer.drain()
        await produce(wire, "t", batch(b"x"))
        assert values_in((await client.receive()).responses[0].partitions[0].records) == [b"x"]
        for _ in range(1_000):
            await client.reader.readexactly(int.from_bytes(await client.reader.readexactly(4)))
        client.writer.transport.abort()


async def test_client_that_sends_much_at_once_does_not_delay_others(broker: Broker, wire: Wire) -> None:
    handled: list[str] = []
    answer = broker.connections.answer

    def counted(request: Any) -> Any:
        handled.append(request.client_id)
        return answer(request)

    broker.connections.answer = counted
    many = 5_000
    async with await Wire.open(broker.port) as client:
        client.writer.write(framed(encoded("heartbeat", {}, client_id="many")) * many)
        wire.writer.write(framed(encoded("heartbeat", {}, client_id="one")))
        await until(lambda: "one" in handled, "the other request is handled")
        assert handled.index("one") < 100
        await until(lambda: len(handled) == 1 + many, "all are handled")


class Sender:
    """Sends small requests for a second, as fast as it can, and reads all answers."""

    def __init__(self, port: int) -> None:
        self._client = socket.create_connection(("127.0.0.1", port), timeout=1.0)
        self._data = framed(encoded("heartbeat", {}, client_id="many")) * 2_000

    async def run(self) -> None:
        with self._client:
            reading = asyncio.create_task(asyncio.to_thread(self._read))
            await asyncio.to_thread(self._send)
            self._client.shutdown(socket.SHUT_RDWR)
            await reading

    def _send(self) -> None:
        end = time.monotonic() + 1.0
        with suppress(TimeoutError):
            while time.monotonic() < end:
                self._client.sendall(self._data)

    def _read(self) -> None:
        with suppress(OSError):
            while self._client.recv(1 << 16):
                pass


async def test_client_that_goes_on_sending_takes_no_memory(broker: Broker) -> None:
    tracemalloc.start()
    try:
        await Sender(broker.port).run()
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


async def test_client_that_goes_on_sending_has_no_more_turns(broker: Broker) -> None:
    handled, most = 0, 0
    turn: asyncio.Handle
    answer, loop = broker.connections.answer, asyncio.get_running_loop()

    def counted(request: Any) -> Any:
        nonlocal handled
        handled += 1
        return answer(request)

    def each_turn() -> None:
        nonlocal handled, most, turn
        most, handled = max(most, handled), 0
        turn = loop.call_soon(each_turn)

    broker.connections.answer = counted
    turn = loop.call_soon(each_turn)
    await Sender(broker.port).run()
    turn.cancel()
    assert 0 < most <= 2 * 16
