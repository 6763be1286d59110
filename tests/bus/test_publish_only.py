"""A bus without targets only publishes: on one connection, and with the same care for its keys."""

from __future__ import annotations

import asyncio

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory.bus import Bus, BusConnectError
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus

from .servers import bus_on
from .waits import Recorder, until


def publisher(server: Server, port: int | None = None, heartbeat: float = 5.0, timeout: float = 5.0) -> Bus:
    kind = RedisBus if server.kind == "redis" else PostgresBus
    return kind(server.url(port), heartbeat=heartbeat, timeout=timeout)


async def test_publish_only_opens_one_connection(server: Server) -> None:
    there = Recorder()
    async with (
        Proxy(server.port) as proxy,
        bus_on(server.url(), [there]) as other,
        publisher(server, proxy.port) as bus,
    ):
        assert bus.statistics().connected
        assert len(proxy._pairs) == 1
        proxy.cut()
        bus.publish(("orders", 7))
        await asyncio.wait_for(bus.flush(), 10.0)
        await until(lambda: there.keys == [("orders", 7)])
        found = bus.statistics()
        assert (found.connected, found.outbox, found.published, found.received) == (True, 0, 1, 0)
        assert found.since_echo is not None
        assert other.statistics().gaps == 0


async def test_publish_only_idle_stays_connected(server: Server) -> None:
    async with publisher(server, heartbeat=0.05, timeout=2.0) as bus:
        await asyncio.sleep(0.5)
        assert bus.statistics().gaps == 0
        assert (bus.statistics().since_echo or 9.0) < 0.5


async def test_publish_only_server_down_keeps_the_keys(own_server: Server) -> None:
    there = Recorder()
    async with bus_on(own_server.url(), [there]) as other, publisher(own_server, heartbeat=0.2, timeout=1.0) as bus:
        own_server.kill()
        bus.publish("kept")
        await until(lambda: not bus.statistics().connected)
        assert bus.statistics().outbox == 1
        assert bus.statistics().error is not None
        before = there.everything
        await asyncio.to_thread(own_server.start)
        await asyncio.wait_for(bus.flush(), 15.0)
        await until(lambda: other.statistics().connected and (there.keys or there.everything > before))


async def test_publish_only_silent_server_is_noticed(server: Server) -> None:
    async with Proxy(server.port) as proxy, publisher(server, proxy.port, 0.2, 0.4) as bus:
        proxy.swallow()
        await until(lambda: bus.statistics().gaps == 1, 5.0)
        await until(lambda: bus.statistics().connected)


async def test_publish_only_refused_says_why(server: Server) -> None:
    with pytest.raises(BusConnectError, match="check that it is running"):
        await publisher(server, 1).start()


async def test_add_to_publish_only_is_refused(server: Server) -> None:
    with pytest.raises(RuntimeError, match=r"only publishes: make it with targets, such as \[\]"):
        publisher(server).add(Recorder())
