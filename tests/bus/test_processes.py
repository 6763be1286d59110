"""Two and more processes on a real server that is killed, stopped, cut off and blocked.

The audit is always the same: nobody is parked although its key moved.
"""

from __future__ import annotations

import asyncio
import signal
import time
from random import Random

import pytest
from private_proxy import Proxy
from private_servers import Server

from .fleet import Fleet

#: Of the fleets below, in seconds.
HEARTBEAT = TIMEOUT = 0.5
#: A gap is noticed, and everything checked, within GAP. A busy machine adds up to BUSY, such as to start processes.
GAP = 1.5 * HEARTBEAT + TIMEOUT
BUSY = 8.0


async def test_publish_in_one_process_wakes_the_other(server: Server) -> None:
    async with Fleet([server.url()] * 2) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 200")
        await asyncio.sleep(1.0)
        answers = await fleet.audit(GAP)
        print(server.kind, answers)
        for answer in answers:
            assert answer["woken"] > 50
            assert answer["gaps"] == 0


async def test_polls_parked_before_the_first_connect_are_woken(server: Server) -> None:
    async with Fleet([server.url()] * 2) as fleet:
        await fleet.connect(0)
        await fleet.ask(0, "publish 0")
        await asyncio.sleep(0.3)  # nobody else hears it
        await fleet.connect(1)
        answers = await fleet.audit(GAP)
        assert answers[1]["woken"] == 1


async def test_server_killed_and_restarted_wakes_all(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 2) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 300")
        await asyncio.sleep(0.3)
        own_server.kill()
        await asyncio.sleep(0.3)
        own_server.start()
        await asyncio.sleep(0.3)
        answers = await fleet.audit(GAP + BUSY)
        print(own_server.kind, answers)
        assert all(answer["gaps"] >= 1 and answer["outbox"] == 0 for answer in answers)


async def test_server_stopped_and_continued_wakes_all(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 2) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 300")
        own_server.signal(signal.SIGSTOP)
        await asyncio.sleep(1.5)
        own_server.signal(signal.SIGCONT)
        await fleet.audit(GAP + BUSY)


@pytest.mark.chaos
async def test_chaos_outbox_overflow_during_an_outage(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 2, keys=21_000) as fleet:
        await fleet.connect()
        own_server.kill()
        await fleet.ask_all("rate 20000")
        await asyncio.sleep(1.5)
        assert {answer["connected"] for answer in await fleet.ask_all("audit")} == {False}
        own_server.start()
        await fleet.audit(GAP + BUSY)


@pytest.mark.chaos
async def test_chaos_server_killed_five_times(own_server: Server) -> None:
    random = Random(1)
    async with Fleet([own_server.url()] * 4, keys=2000, heartbeat=1.0, timeout=1.0) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 100")
        for _ in range(5):
            await asyncio.sleep(random.uniform(0.5, 2.0))
            own_server.kill()
            await asyncio.sleep(random.uniform(0.1, 1.5))
            own_server.start()
        await asyncio.sleep(2.0)
        print(own_server.kind, await fleet.audit(2.5 + BUSY))


@pytest.mark.chaos
async def test_chaos_cuts_holes_and_deaf_connections(server: Server) -> None:
    random = Random(2)
    async with Proxy(server.port) as one, Proxy(server.port) as other:
        urls = [server.url(one.port), server.url(other.port)]
        async with Fleet(urls, keys=2000, heartbeat=1.0, timeout=1.0) as fleet:
            await fleet.connect()
            await fleet.ask_all("rate 200")
            for _ in range(14):
                await asyncio.sleep(random.uniform(0.5, 3.0))
                proxy = random.choice((one, other))
                getattr(proxy, random.choice(("cut", "swallow", "deafen", "mute")))()
            print(server.kind, await fleet.audit(2.5 + BUSY))


@pytest.mark.chaos
@pytest.mark.parametrize("rule", ["R1", "R3"])
async def test_chaos_control_without_the_rule_some_stay_parked(server: Server, rule: str) -> None:
    """The same faults without *rule*: now they do harm."""
    async with Proxy(server.port) as proxy:
        urls = [server.url(), server.url(proxy.port)]
        async with Fleet(urls, keys=500, heartbeat=1.0, timeout=1.0, without=rule) as fleet:
            await fleet.connect()
            for _ in range(4):
                if rule == "R1":
                    proxy.cut()
                else:
                    assert proxy.deafen() > 0
                for key in range(0, 100, 2):
                    await fleet.ask(0, f"publish {key}")
                await asyncio.sleep(1.0)
            await asyncio.sleep(2.5 + 2.0)
            assert (await fleet.ask(1, "audit"))["parked"] > 0


@pytest.mark.chaos
async def test_chaos_server_stopped_for_five_seconds(own_server: Server) -> None:
    async with Fleet([own_server.url()] * 3, keys=2000, heartbeat=1.0, timeout=1.0) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 200")
        for _ in range(2):
            await asyncio.sleep(1.0)
            own_server.signal(signal.SIGSTOP)
            await asyncio.sleep(5.0)
            own_server.signal(signal.SIGCONT)
        await asyncio.sleep(1.0)
        print(own_server.kind, await fleet.audit(2.5 + BUSY))


@pytest.mark.chaos
async def test_chaos_loop_blocked_under_a_flood(own_server: Server) -> None:
    """The flood fills Redis' output buffer, and Redis then closes the connection."""
    if own_server.kind == "redis":
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(own_server.url()) as client:
            await client.config_set("client-output-buffer-limit", "pubsub 200000 200000 1")
    async with Fleet([own_server.url()] * 2, keys=20_000, heartbeat=1.0, timeout=1.0, padding=1000) as fleet:
        await fleet.connect()
        await fleet.ask(0, "rate 20000")
        await fleet.ask(1, "block 6.5")
        answers = await fleet.audit(2.5 + BUSY)
        print(own_server.kind, answers)
        assert own_server.kind != "redis" or answers[1]["gaps"] > 0


@pytest.mark.chaos
async def test_chaos_latency_of_two_workers(server: Server) -> None:
    """Without a fault: seconds from a publish in one process to the wake-up in the other."""
    async with Fleet([server.url()] * 2, keys=10_000, heartbeat=5.0, timeout=5.0) as fleet:
        await fleet.connect()
        await fleet.ask_all("rate 500")
        await asyncio.sleep(2.0)
        await fleet.ask_all("audit")
        started = time.monotonic()
        before = await fleet.ask_all("audit")
        await asyncio.sleep(8.0)
        after = await fleet.ask_all("audit")
        seconds = time.monotonic() - started
        cpu = [round((b["cpu"] - a["cpu"]) / seconds, 3) for a, b in zip(before, after, strict=True)]
        print(server.kind, "CPU", cpu, after)
        await fleet.audit(15.0)
