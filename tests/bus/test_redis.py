"""What Redis alone has: a client library that reconnects by itself, and databases that do not separate channels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

redis = pytest.importorskip("redis.asyncio")

from aiopurgatory.testing.servers import Server  # noqa: E402

from .conftest import made  # noqa: E402
from .proxy import Proxy  # noqa: E402
from .servers import AclRedis, bus_on  # noqa: E402
from .waits import Recorder, until  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with made(AclRedis) as server:
        yield server


async def test_url_options_cannot_hide_a_gap(server: Server) -> None:
    there = Recorder()
    options = "?retry_on_timeout=true&health_check_interval=1&socket_timeout=5&socket_connect_timeout=5&protocol=3"
    async with (
        Proxy(server.port) as proxy,
        bus_on(server.url(), []) as one,
        bus_on(server.url(proxy.port) + options, [there]) as other,
    ):
        before = there.everything
        proxy.cut()
        one.publish("lost")
        await until(lambda: other.statistics().gaps == 1 and other.statistics().connected)
        assert there.everything > before


async def test_control_redis_py_hides_a_gap(server: Server) -> None:
    """Its own reconnect: nothing is raised, a message is lost, and only a second confirmation tells (R4)."""
    async with (
        Proxy(server.port) as proxy,
        redis.Redis(port=proxy.port, username="bus", password="secret") as client,
        redis.Redis.from_url(server.url()) as publisher,
        client.pubsub() as listener,
    ):
        await listener.subscribe("aiopurgatory")
        assert (await listener.get_message(timeout=5.0))["type"] == "subscribe"
        proxy.cut()
        async with asyncio.timeout(5.0):
            while await publisher.publish("aiopurgatory", "lost"):  # noqa: ASYNC110 it is the server's state
                await asyncio.sleep(0.01)
        assert (await listener.get_message(timeout=5.0))["type"] == "subscribe"
        await publisher.publish("aiopurgatory", "heard")
        assert (await listener.get_message(timeout=5.0))["data"] == b"heard"


async def test_publish_other_database_reaches_the_other_bus(server: Server) -> None:
    there = Recorder()
    async with bus_on(server.url() + "/1", []) as one, bus_on(server.url() + "/2", [there]):
        one.publish("key")
        await until(lambda: there.keys == ["key"])
