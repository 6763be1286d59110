"""No key is lost while a bus subscribes (R1) or publishes (R2), or if it only publishes, on one connection."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory import Purgatory
from aiopurgatory.bus import Bus
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus

from .servers import bus_on, proxied, started
from .waits import Recorder, until

# an event while a bus subscribes, whether the server had the subscription before it or not


@pytest.mark.parametrize("way", ["up", "down"], ids=["before_the_subscription", "before_its_confirmation"])
async def test_event_during_the_subscription_wakes(server: Server, way: str) -> None:
    """An event happens while the subscription, or its confirmation, is on its way."""
    happened: set[str] = set()
    async with Proxy(server.port) as proxy, Purgatory() as polls, bus_on(server.url(), []) as one:

        def wait_for(key: str) -> asyncio.Task[bool]:
            return asyncio.create_task(polls.wait_for(lambda: key in happened, [key], timeout=60.0))

        meanwhile, later = wait_for("meanwhile"), wait_for("later")
        other = bus_on(server.url(proxy.port), [polls])
        proxy.hold(way)
        starting = asyncio.create_task(other.start())
        await proxy.is_holding.wait()
        happened.add("meanwhile")
        one.publish("meanwhile")
        await one.flush()
        assert not meanwhile.done()
        proxy.release()
        await starting
        happened.add("later")
        one.publish("later")
        await later  # earlier messages have come through
        assert await asyncio.wait_for(meanwhile, 5.0)
        await other.aclose()


# a publishing that breaks off


async def test_publish_swallowed_key_is_sent_again(server: Server) -> None:
    """The network swallows a key and resets the publisher's links."""
    there = Recorder()
    async with bus_on(server.url(), [there]) as other, proxied(server) as (proxy, one):
        assert proxy.mute() == 1
        one.publish("swallowed")
        await until(lambda: proxy.swallowed)
        proxy.cut()
        await until(lambda: one.statistics().gaps == 1 and one.statistics().connected)
        one.publish("later")
        await until(lambda: "later" in there.keys)
        assert other.statistics().gaps == 0
    assert "swallowed" in there.keys


async def test_server_killed_in_the_middle_of_publishing(own_server: Server, reported: list[dict[str, Any]]) -> None:
    """asyncpg may then raise InternalClientError, and no error of a connection."""
    there = Recorder()
    patient = {"heartbeat": 60.0, "timeout": 60.0}  # the end of the connection tells, and not the missing echo
    async with bus_on(own_server.url(), [], **patient) as one, bus_on(own_server.url(), [there], **patient):
        for gaps, keys in enumerate((1, 9000), 1):
            own_server.signal(signal.SIGSTOP)
            for number in range(keys):
                one.publish(f"{number} {'x' * 100}")
            await asyncio.sleep(0.05)
            own_server.kill()
            await until(lambda gaps=gaps: one.statistics().gaps == gaps)  # type: ignore[misc]
            assert one.statistics().outbox == keys
            before = there.everything
            own_server.start()
            await asyncio.wait_for(one.flush(), 10.0)
            await until(lambda before=before: there.everything > before)  # type: ignore[misc]
    assert reported == []


# a bus without targets


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


async def test_publish_only_silent_server_is_noticed(server: Server) -> None:
    async with Proxy(server.port) as proxy, await started(publisher(server, proxy.port, 0.2, 0.4)) as bus:
        proxy.swallow()
        await until(lambda: bus.statistics().gaps)
        await until(lambda: bus.statistics().connected)
