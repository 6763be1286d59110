"""No fault may lose, double or reorder an event, or leave a listener waiting for ever."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from private_proxy import Proxy
from private_servers import DurableRedis, Redis, Server

from ..conftest import LogPostgres, until
from .audience import Audience
from .fleet import Fleet

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

TOPICS = [f"run{number}" for number in range(4)]
EVENTS = 120
RATE = 20.0
EACH = 25


@asynccontextmanager
async def show(
    kind: type[Server], *, each: int = EACH, restless: float | None = None, **log: float
) -> AsyncIterator[tuple[Server, Fleet, Audience]]:
    """A server, three workers, a producer of four runs, and their audience."""
    with kind() as server, Fleet(server.url(), log=log) as fleet:
        await fleet.until_up()
        audience = Audience(fleet.ports, TOPICS, each, restless)
        fleet.produce(TOPICS, EVENTS, RATE, lease=5.0)
        yield server, fleet, audience


def assert_whole(audience: Audience, hanging: int) -> None:
    assert hanging == 0, [(c.topic, len(c.got), c.reason, dict(c.answers), c.before) for c in audience.clients]
    assert audience.reasons() == {"done": len(audience.clients)}
    assert (audience.lost(EVENTS), audience.doubled(), audience.reordered(), audience.gone()) == (0, 0, 0, 0)


each_kind = pytest.mark.parametrize("kind", [DurableRedis, LogPostgres])


@each_kind
async def test_listeners_that_reconnect_at_random_get_all(kind: type[Server]) -> None:
    async with show(kind, restless=0.5) as (_, _, audience):
        assert_whole(audience, await audience.over(30))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@each_kind
async def test_worker_that_ends_hands_its_listeners_over(kind: type[Server], number: signal.Signals) -> None:
    async with show(kind) as (_, fleet, audience):
        await fleet.until_acked(TOPICS[0], 40)
        fleet.workers[0].send_signal(number)
        assert_whole(audience, await audience.over(30))
        assert fleet.workers[0].wait(5) in (0, -number)


@each_kind
async def test_worker_stopped_for_a_while_loses_nothing(kind: type[Server]) -> None:
    async with show(kind) as (_, fleet, audience):
        await fleet.until_acked(TOPICS[0], 40)
        fleet.workers[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(3)
        fleet.workers[0].send_signal(signal.SIGCONT)
        assert_whole(audience, await audience.over(30))


@each_kind
async def test_producer_killed_its_runs_are_abandoned(kind: type[Server]) -> None:
    async with show(kind) as (_, fleet, audience):
        await fleet.until_acked(TOPICS[0], 40)
        assert fleet.producer is not None
        fleet.producer.kill()
        fleet.producer.wait()
        acked = {topic: len(fleet.acked(topic)) for topic in TOPICS}
        assert await audience.over(30) == 0
        assert audience.reasons() == {"abandoned": len(audience.clients)}
        for topic in TOPICS:
            (events,) = audience.heard(topic)  # the same for all
            assert events == tuple(map(str, range(len(events))))
            assert acked[topic] <= len(events) <= acked[topic] + 1  # one was not acknowledged any more


@pytest.mark.parametrize("fault", ["killed and restarted", "stopped for three seconds"])
@each_kind
async def test_server_in_trouble_loses_nothing(kind: type[Server], fault: str) -> None:
    async with show(kind) as (server, fleet, audience):
        await fleet.until_acked(TOPICS[0], 40)
        if fault == "killed and restarted":
            server.kill()
            await asyncio.sleep(1)
            server.start()
        else:
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(3)
            server.signal(signal.SIGCONT)
        assert_whole(audience, await audience.over(40))


async def test_failover_loses_events_and_says_so() -> None:
    """A Redis dies after acknowledging writes that its replica lacks. The replica takes over. All listeners end."""
    with DurableRedis() as master, Redis() as replica:
        await replica.replicate(master)
        async with Proxy(master.port) as proxy:
            with Fleet(master.url(proxy.port)) as fleet:
                await fleet.until_up()
                audience = Audience(fleet.ports, TOPICS, EACH)
                fleet.produce(TOPICS, EVENTS, RATE, lease=5.0)
                await fleet.until_acked(TOPICS[0], 40)
                await replica.asked("REPLICAOF NO ONE")
                await fleet.until_acked(TOPICS[0], 60)
                fleet.signal(signal.SIGSTOP)
                master.kill()
                proxy.target = replica.port
                proxy.cut()
                await fleet.until_acked(TOPICS[0], 100)  # the numbers of lost events are in use again
                fleet.signal(signal.SIGCONT)
                assert await audience.over(40) == 0
                assert audience.reasons() == {"done": len(audience.clients)}
    assert (audience.doubled(), audience.reordered()) == (0, 0)
    for topic in TOPICS:
        (kept,) = audience.heard(topic)
        lost = EVENTS - len(kept)
        assert lost > 0
        print(f"{topic}: {lost} lost")
    assert all(client.before for client in audience.clients)


async def test_redis_without_a_disk_killed_all_are_told() -> None:
    async with show(Redis, unknown_timeout=1.0) as (server, fleet, audience):
        await fleet.until_acked(TOPICS[0], 40)
        server.kill()
        server.start()
        hanging = await audience.over(40)
        assert hanging == 0, [(client.topic, len(client.got), client.answers) for client in audience.clients]
        assert all(client.answers[404] for client in audience.clients)
        await until(lambda: all(fleet.acked(topic)[-1] == "EndedError" for topic in TOPICS), 30.0)


@each_kind
async def test_hung_listeners_harm_nobody(kind: type[Server]) -> None:
    async with show(kind) as (_, fleet, audience):
        hung = audience.clients[::10]
        await fleet.until_acked(TOPICS[0], 20)
        for client in hung:
            client.paused.clear()
        await fleet.until_acked(TOPICS[0], 100)
        await asyncio.sleep(1)
        others = [client for client in audience.clients if client not in hung]
        assert min(len(client.got) for client in others) >= 90
        for client in hung:
            client.paused.set()
        assert_whole(audience, await audience.over(30))


@each_kind
async def test_listener_behind_what_is_kept_is_told_gone(kind: type[Server]) -> None:
    async with show(kind, each=5, keep_events=32, window_bytes=0) as (_, fleet, audience):
        late = Audience(fleet.ports, TOPICS[:1], 1)
        client = late.clients[0]
        await until(lambda: bool(client.got))
        await late.over(0.01)  # it leaves,
        await fleet.until_acked(TOPICS[0], 100)
        await asyncio.wait_for(client.run(), 30)  # and comes back, too late
        assert client.before[0]
        assert client.got == [str(number) for number in range(EVENTS - len(client.got), EVENTS)]
        assert client.reason == "done"
        assert await audience.over(30) == 0
