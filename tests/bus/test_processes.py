"""Two and more processes on a real server that is killed, stopped, cut off and blocked.

The audit is always the same: nobody is parked although its key moved.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from private_proxy import Proxy
from private_servers import DurableRedis, Redis, Server

from .conftest import made
from .fleet import Fleet, break_often, kill_often

#: Of the fleets below, in seconds.
HEARTBEAT, TIMEOUT = 0.5, 2.5
#: A gap is noticed, and everything checked, within GAP. A busy machine adds up to BUSY, such as to start processes.
GAP = 1.5 * HEARTBEAT + TIMEOUT
BUSY = 8.0


async def test_publish_in_one_process_wakes_the_other(server: Server) -> None:
    async with Fleet([server.url()] * 2, 200) as fleet:
        while any(answer["woken"] <= 50 for answer in await fleet.ask_all("audit")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        answers = await fleet.audit(GAP + BUSY)
        print(server.kind, answers)
        assert [answer["gaps"] for answer in answers] == [0, 0]


async def test_polls_parked_before_the_first_connect_are_woken(server: Server) -> None:
    async with Fleet([server.url()] * 2, None) as fleet:
        await fleet.connect(0)
        await fleet.ask(0, "publish 0")
        await asyncio.sleep(0.3)  # nobody else hears it
        await fleet.connect(1)
        answers = await fleet.audit(GAP + BUSY)
        assert answers[1]["woken"] == 1


async def test_server_killed_and_restarted_wakes_all(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 2, 300) as fleet:
        await asyncio.sleep(0.3)
        own_server.kill()
        await asyncio.sleep(0.3)
        own_server.start()
        await asyncio.sleep(0.3)
        answers = await fleet.audit(GAP + BUSY)
        print(own_server.kind, answers)
        assert all(answer["gaps"] >= 1 for answer in answers)


@pytest.mark.chaos
async def test_chaos_outbox_overflow_during_an_outage(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 2, keys=21_000) as fleet:
        own_server.kill()
        await fleet.ask_all("rate 20000")
        await asyncio.sleep(1.5)
        assert {answer["connected"] for answer in await fleet.ask_all("audit")} == {False}
        own_server.start()
        await fleet.audit(GAP + BUSY)


@pytest.mark.chaos
async def test_chaos_server_killed_five_times(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 4, 100, keys=2000, heartbeat=1.0, timeout=1.0) as fleet:
        await kill_often(own_server, Random(1))
        print(own_server.kind, await fleet.audit(2.5 + BUSY))


@pytest.mark.chaos
@pytest.mark.parametrize("replay", [0, 1000])
async def test_chaos_cuts_holes_and_deaf_connections(server: Server, replay: int) -> None:
    if replay and server.kind != "redis":
        return
    async with Proxy(server.port) as one, Proxy(server.port) as other:
        urls = [server.url(one.port), server.url(other.port)]
        async with fleet_on(*urls, rate=200, replay=replay) as fleet:
            await break_often([one, other], Random(2))
            answers = await fleet.audit(2.5 + BUSY)
            print(server.kind, answers)
            assert not replay or all(answer["replayed"] > 0 for answer in answers)


@pytest.mark.chaos
async def test_chaos_loop_blocked_under_a_flood(own_server: Server) -> None:
    """The flood fills Redis' output buffer, and Redis then closes the connection."""
    if isinstance(own_server, Redis):
        await own_server.asked("CONFIG SET client-output-buffer-limit 'pubsub 200000 200000 1'")
    async with Fleet([own_server.url()] * 2, keys=20_000, heartbeat=1.0, timeout=1.0, padding=1000) as fleet:
        await fleet.ask(0, "rate 20000")
        await fleet.ask(1, "block 6.5")
        answers = await fleet.audit(2.5 + BUSY)
        print(own_server.kind, answers)
        assert own_server.kind != "redis" or answers[1]["gaps"] > 0


# a Redis that keeps messages (R10)


def fleet_on(*urls: str, rate: float, replay: int = 1000) -> Fleet:
    return Fleet(urls, rate, keys=2000, heartbeat=1.0, timeout=1.0, replay=replay)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", [Redis, DurableRedis])
@pytest.mark.parametrize("replay", [10, 1000])
async def test_chaos_replaying_through_kills(kind: type[Redis], replay: int) -> None:
    with made(kind) as server:
        async with fleet_on(*[server.url()] * 4, rate=100, replay=replay) as fleet:
            await kill_often(server, Random(3))
            answers = await fleet.audit(2.5 + BUSY)
            print(kind, replay, answers)
            assert kind is Redis or replay == 10 or all(answer["replayed"] > 0 for answer in answers)


@pytest.mark.chaos
@pytest.mark.parametrize("heard", [True, False])
async def test_chaos_failover_to_a_replica_that_lacks_messages(heard: bool) -> None:
    """The master acknowledges them, and fails. One worker has not heard them; or *heard* a few."""
    with made(DurableRedis) as master, made(Redis) as replica:
        await replica.replicate(master)
        async with Proxy(master.port) as one, Proxy(master.port) as other:
            urls = [master.url(one.port), master.url(one.port), master.url(other.port)]
            async with fleet_on(*urls, rate=50) as fleet:
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
                await fleet.audit(2.5 + BUSY)
