"""An event while a bus subscribes: it must not be lost, whether the server had the subscription before it or not.

The check of everything after the confirmation (R1) finds earlier publishes. The controls are without it.
"""

from __future__ import annotations

import asyncio

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory import Purgatory
from aiopurgatory.bus.rules import Rules

from .servers import bus_on
from .test_model import NoCheckAtConfirmation

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
    """Except on Redis, once it has the subscription: there the event follows the confirmation.

    It does on PostgreSQL, too. But asyncpg drops a notification that arrives in one piece with the confirmation.
    """
    monkeypatch.setattr(Rules, "confirmed", NoCheckAtConfirmation.confirmed)
    assert await is_woken(server, way) == (server.kind == "redis" and way == "down")
