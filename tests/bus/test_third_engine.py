"""A user's own engine, written against the protocol alone: it passes the same tests as ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from private_proxy import Proxy
from private_servers import free_port

from aiopurgatory.bus import BusConnectError

from .lines_engine import LinesBus
from .waits import Recorder, until


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that speaks in lines."""
    subscribers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                word, _, message = line.partition(b" ")
                if word == b"PUBLISH":
                    for subscriber in subscribers:
                        subscriber.write(message)
                else:
                    subscribers.add(writer)
                writer.write(b"OK\n")
        except ConnectionError:
            pass
        finally:
            subscribers.discard(writer)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def test_engine_takes_less_than_80_lines() -> None:
    assert len(Path(__file__).with_name("lines_engine.py").read_text().splitlines()) < 80


async def test_third_engine_publishes_and_survives_faults(port: int) -> None:
    there = Recorder()
    async with Proxy(port) as proxy:
        one, other = LinesBus("127.0.0.1", port, []), LinesBus("127.0.0.1", proxy.port, [there], heartbeat=0.3)
        async with one, other:
            one.publish(("orders", 7))
            await until(lambda: there.keys == [("orders", 7)])
            before = there.everything
            proxy.cut()
            one.publish("lost")
            await until(lambda: there.everything > before)
            await until(lambda: other.statistics().connected)
            one.publish("heard")
            await until(lambda: "heard" in there.keys)
    await asyncio.sleep(0.05)


async def test_third_engine_no_server_says_what_to_do() -> None:
    port = free_port()
    with pytest.raises(BusConnectError, match=rf"cannot use 127.0.0.1:{port}: .*check host and port"):
        await LinesBus("127.0.0.1", port, []).start()
