"""Only on Redis: a client library that reconnects by itself, and databases that do not separate channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest

redis = pytest.importorskip("redis.asyncio")

from private_proxy import Proxy  # noqa: E402
from private_servers import Server  # noqa: E402

from aiopurgatory.bus import BusConnectError  # noqa: E402

from .conftest import fixture_of, made  # noqa: E402
from .servers import AclRedis, ClusterRedis, OldRedis, bus_on, proxied  # noqa: E402
from .waits import Recorder, until  # noqa: E402

server = fixture_of(AclRedis)
ROLE_INTERVAL = "aiopurgatory.bus.redis._ROLE_INTERVAL"


async def test_url_options_cannot_hide_a_gap(server: Server) -> None:
    there = Recorder()
    options = "?retry_on_timeout=true&health_check_interval=1&socket_timeout=5&socket_connect_timeout=5&protocol=3"
    async with bus_on(server.url(), []) as one, proxied(server, [there], options) as (proxy, other):
        before = there.everything
        proxy.cut()
        one.publish("lost")
        await until(lambda: other.statistics().gaps == 1 and other.statistics().connected)
        assert there.everything > before


async def test_server_full_for_a_while_is_back_at_once(server: Server) -> None:
    async with redis.Redis.from_url(server.url()) as client, proxied(server) as (proxy, bus):
        await client.config_set("maxclients", 1)
        proxy.cut()
        await until(lambda: "raise maxclients" in (bus.statistics().error or ""))
        await client.config_set("maxclients", 10_000)
        await until(lambda: bus.statistics().connected, 5.0)


@asynccontextmanager
async def demoted(server: AclRedis) -> AsyncIterator[None]:
    """Its clients stay connected, but their publishes no longer reach the clients of the new master."""
    await server.asked("REPLICAOF 127.0.0.1 1")
    try:
        yield
    finally:
        await server.asked("REPLICAOF NO ONE")


@pytest.mark.parametrize("user", ["bus:secret", "least:secret"])
async def test_start_replica_is_refused(server: AclRedis, user: str) -> None:
    url = server.url(user=user)
    async with demoted(server):
        with pytest.raises(BusConnectError, match=r"is a replica, .* give the bus the address of the master"):
            await bus_on(url, []).start()
    async with bus_on(url, []) as bus:
        bus.publish("key")
        await asyncio.wait_for(bus.flush(), 5.0)


async def replicate(master: ClusterRedis, replica: ClusterRedis) -> None:
    """Make a cluster of two. Wait until each has a link to the other: earlier publishes are not forwarded."""
    await master.asked("CLUSTER ADDSLOTSRANGE 0 16383")
    await replica.asked(f"CLUSTER MEET 127.0.0.1 {master.port} {master.bus_port}")
    node = await master.asked("CLUSTER MYID")
    async with asyncio.timeout(20.0):
        while "OK" not in await replica.asked(f"CLUSTER REPLICATE {node}"):  # noqa: ASYNC110 they have not met
            await asyncio.sleep(0.1)
        while not all([await is_linked(server) for server in (master, replica)]):  # noqa: ASYNC110 it is their state
            await asyncio.sleep(0.1)


async def is_linked(server: ClusterRedis) -> bool:
    return {line.split()[7] for line in (await server.asked("CLUSTER NODES")).splitlines()} == {"connected"}


async def test_start_replica_of_a_cluster_works() -> None:
    """Nodes forward every publish to all others."""
    here, there = Recorder(), Recorder()
    with made(ClusterRedis) as master, made(ClusterRedis) as replica:
        await replicate(master, replica)
        async with bus_on(master.url(), [here]) as one, bus_on(replica.url(), [there]) as other:
            one.publish("of the master")
            other.publish("of the replica")
            await until(lambda: {*here.keys} == {*there.keys} == {"of the master", "of the replica"})


async def test_start_server_without_hello_works() -> None:
    with made(OldRedis) as server:
        async with bus_on(server.url(), []) as bus:
            await asyncio.sleep(1.1)
            bus.publish("key")
            await asyncio.wait_for(bus.flush(), 5.0)
            assert bus.statistics().connected


async def test_master_demoted_is_left_and_all_is_checked(server: AclRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the first bus has become a replica. The second is connected to the new master already."""
    there = Recorder()
    monkeypatch.setattr(ROLE_INTERVAL, 60.0)  # the key is lost before it asks for the role
    with made(AclRedis) as master:
        async with proxied(server, heartbeat=1) as (proxy, one), bus_on(master.url(), [there]) as two, demoted(server):
            proxy.target = master.port
            one.publish("lost")
            await one.flush()
            monkeypatch.undo()
            await until(lambda: one.statistics().gaps == 1 and one.statistics().connected)
            await until(lambda: there.everything == 2)
            assert (two.statistics().gaps, there.keys) == (0, [])
            one.publish("heard")
            await until(lambda: there.keys == ["heard"])


@asynccontextmanager
async def moved(server: AclRedis, user: str = "bus:secret", *, is_met: bool) -> AsyncIterator[Recorder]:
    """The server of a bus becomes a replica. Then its address leads to the new master. Yields: the listener there.

    Its link is cut before it asks for the role. Args: is_met: whether its next link meets the replica first.
    """
    there = Recorder()
    with made(AclRedis) as master, patch(ROLE_INTERVAL, 60.0):
        async with (
            Proxy(server.port) as proxy,
            bus_on(server.url(proxy.port, user), []) as one,
            bus_on(master.url(), [there], heartbeat=20.0),
            demoted(server),
        ):
            one.publish("lost")
            await one.flush()
            if is_met:
                proxy.cut()
                await until(lambda: "is a replica" in (one.statistics().error or ""))
            proxy.target = master.port
            proxy.cut()
            await until(lambda: one.statistics().connected)
            yield there
            assert there.keys == []


@pytest.mark.parametrize("user", ["bus:secret", "least:secret"])
@pytest.mark.parametrize("is_met", [True, False], ids=["replica_is_met", "straight_to_the_new_master"])
async def test_master_demoted_link_cut_before_it_is_asked(server: AclRedis, user: str, is_met: bool) -> None:
    async with moved(server, user, is_met=is_met) as there:
        await until(lambda: there.everything == 2)


async def test_reconnect_to_the_same_server_checks_nothing_elsewhere(server: Server) -> None:
    there = Recorder()
    async with proxied(server) as (proxy, one), bus_on(server.url(), [there], heartbeat=20.0):
        proxy.cut()
        await until(lambda: one.statistics().gaps == 1 and one.statistics().connected)
        one.publish("key")
        await until(lambda: there.keys == ["key"])
        assert there.everything == 1
