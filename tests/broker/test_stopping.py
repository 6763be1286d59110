"""SIGTERM: every request that waits is answered, then the broker exits. So it is with clients that are at work."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from .clients import write_confluent
from .parking import LONG, PREPARED, code_in
from .served import Served, wait_until
from .wires import Wire

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
