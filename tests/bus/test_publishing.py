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
from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.outbox import Outbox
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus

from .servers import bus_on, proxied
from .test_model import ForgetsAtBreak, NoCheckAtConfirmation
from .waits import Recorder, until

# an event while a bus subscribes, whether the server had the subscription before it or not

each_order = pytest.mark.parametrize("way", ["up", "down"], ids=["before_the_subscription", "before_its_confirmation"])


async def is_woken(server: Server, way: str) -> bool:
    """An event happens while the subscription, or its confirmation, is on its way. Returns: whether it wakes a poll."""
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
        await asyncio.wait([meanwhile], timeout=0.02)
        woken = meanwhile.done()
        meanwhile.cancel()
        await other.aclose()
    return woken


@each_order
async def test_event_during_the_subscription_wakes(server: Server, way: str) -> None:
    assert await is_woken(server, way)


@each_order
async def test_control_without_the_check_it_stays_parked(
    server: Server, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exchange, "confirmed", NoCheckAtConfirmation.confirmed)
    assert not await is_woken(server, way)


# a publishing that breaks off


async def arrives(server: Server) -> bool:
    """The network swallows a key and resets the publisher's links. Returns: whether a healthy bus gets the key."""
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
    return "swallowed" in there.keys


async def test_publish_swallowed_key_is_sent_again(server: Server) -> None:
    assert await arrives(server)


async def test_control_sent_counts_as_received_and_is_lost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "put_back", ForgetsAtBreak.put_back)
    assert not await arrives(server)


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
