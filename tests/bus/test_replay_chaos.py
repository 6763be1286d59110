"""A fleet whose Redis keeps messages (R10): it is killed, cut off, and fails over. Audited as in test_processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from private_proxy import Proxy
from private_servers import DurableRedis, Redis

from .conftest import made
from .fleet import Fleet

pytestmark = pytest.mark.chaos
#: A gap is noticed, and made up for, within so many seconds; and what a busy machine adds.
GAP, BUSY = 2.5, 8.0
ONE_SECOND = {"heartbeat": 1.0, "timeout": 1.0}


def fleet_on(*urls: str, replay: int = 1000, without: str = "") -> Fleet:
    return Fleet(urls, keys=2000, **ONE_SECOND, replay=replay, without=without)


@asynccontextmanager
async def fleet_of_two(without: str = "") -> AsyncIterator[tuple[Fleet, Proxy, Proxy]]:
    """Two workers, each with its own way to the server."""
    with made(Redis) as server:
        async with (
            Proxy(server.port) as one,
            Proxy(server.port) as other,
            fleet_on(server.url(one.port), server.url(other.port), without=without) as fleet,
        ):
            await fleet.connect()
            yield fleet, one, other


@pytest.mark.parametrize("kind", [Redis, DurableRedis])
@pytest.mark.parametrize("replay", [10, 1000])
async def test_chaos_kills(kind: type[Redis], replay: int) -> None:
    random = Random(3)
    with made(kind) as server:
        async with fleet_on(*[server.url()] * 4, replay=replay) as fleet:
            await fleet.connect()
            await fleet.ask_all("rate 100")
            for _ in range(5):
                await asyncio.sleep(random.uniform(0.5, 2.0))
                server.kill()
                await asyncio.sleep(random.uniform(0.1, 1.5))
                await asyncio.to_thread(server.start)
            await asyncio.sleep(2.0)
            answers = await fleet.audit(GAP + BUSY)
            print(kind, replay, answers)
            assert kind is Redis or replay == 10 or all(answer["replayed"] > 0 for answer in answers)


async def test_chaos_cuts_holes_and_deaf_connections() -> None:
    random = Random(4)
    async with fleet_of_two() as (fleet, one, other):
        await fleet.ask_all("rate 200")
        for _ in range(14):
            await asyncio.sleep(random.uniform(0.5, 3.0))
            proxy = random.choice((one, other))
            getattr(proxy, random.choice(("cut", "swallow", "deafen", "mute")))()
        answers = await fleet.audit(GAP + BUSY)
        print(answers)
        assert all(answer["replayed"] > 0 for answer in answers)


@pytest.mark.parametrize("heard", [True, False])
async def test_chaos_failover_to_a_replica_that_lacks_messages(heard: bool) -> None:
    """The master acknowledges them, and fails. One worker has not heard them; or *heard* a few."""
    with made(DurableRedis) as master, made(Redis) as replica:
        await replica.replicate(master)
        async with Proxy(master.port) as one, Proxy(master.port) as other:
            urls = [master.url(one.port), master.url(one.port), master.url(other.port)]
            async with fleet_on(*urls) as fleet:
                await fleet.connect()
                await fleet.ask_all("rate 50")
                await asyncio.sleep(1.0)
                other.is_hole = not heard
                await asyncio.sleep(0.2)
                await replica.asked("REPLICAOF NO ONE")
                await asyncio.sleep(0.2)
                other.is_hole = True
                await asyncio.sleep(1.0)
                master.kill()
                one.target = other.target = replica.port
                other.is_hole = False
                one.cut()
                other.cut()
                await asyncio.sleep(4.0)
                await fleet.audit(GAP + BUSY)


@pytest.mark.parametrize("without", ["R1", "R1 R10"])
async def test_chaos_reading_alone_wakes_all_and_without_it_some_stay_parked(without: str) -> None:
    """No gap has everything checked here. The control does not read, either."""
    async with fleet_of_two(without) as (fleet, _, other):
        await fleet.ask(0, "publish 0")
        await asyncio.sleep(0.5)
        for _ in range(4):
            other.cut()
            for key in range(0, 100, 2):
                await fleet.ask(0, f"publish {key}")
            await asyncio.sleep(1.0)
        await asyncio.sleep(GAP)
        parked = (await fleet.ask(1, "audit"))["parked"]
        assert parked == 0 if without == "R1" else parked > 0
