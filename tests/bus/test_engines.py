"""Each engine against a real server that stays up: messages that arrive, and refusals at the start."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Hashable
from typing import Any

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory.bus import Bus, BusConnectError

from .servers import bus_on, proxied, run_sql, started
from .waits import Recorder, said_by_child, until

#: Seconds that a busy machine may add.
BUSY = 5.0


async def plainly(server: Server, message: str) -> None:
    """Publish as psql and redis-cli do."""
    if server.kind == "redis":
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(server.url()) as client:
            await client.publish("aiopurgatory", message)
    else:
        await run_sql(server.url(), "SELECT pg_notify('aiopurgatory', $1)", message)


def pair_on(server: Server, there: Recorder, **options: float) -> tuple[Bus, Bus]:
    return bus_on(server.url(), [Recorder()], **options), bus_on(server.url(), [there], **options)


async def test_publish_real_server_reaches_the_other_bus(server: Server) -> None:
    there = Recorder()
    keys = [("orders", 7), "x" * 7000, b"\x00", "\u00e4\"'\\\n", None, 1.5]
    one, other = pair_on(server, there)
    async with one, other:
        assert there.everything == 1
        for number, key in enumerate(keys):
            one.publish(key, limit=number or None)
        await asyncio.wait_for(one.flush(), 5.0)
        await until(lambda: len(there.keys) == len(keys))
        assert (there.keys, there.limits) == (keys, [None, 1, 2, 3, 4, 5])
        assert (other.statistics().received, other.statistics().malformed) == (len(keys), 0)


async def test_publish_many_keys_all_arrive_once(server: Server) -> None:
    there = Recorder()
    one, other = pair_on(server, there)
    async with one, other:
        for number in range(9_000):
            one.publish(("a rather long name", number))
        await until(lambda: len(there.keys) >= 9_000)
        assert there.keys == [("a rather long name", number) for number in range(9_000)]
        for number in range(10_001):
            one.publish(number)
        await until(lambda: there.everything == 2)


async def test_publish_other_channel_is_not_heard(server: Server) -> None:
    there = Recorder()
    user: dict[str, Any] = {"user": "groups:secret"} if server.kind == "redis" else {}
    one, same, other = (
        bus_on(server.url(**user), targets, name=f"group-{number}")
        for number, targets in ((1, []), (2, []), (2, [there]))
    )
    async with one, same, other:
        one.publish("of group 1")
        await one.flush()
        same.publish("of group 2")
        await until(lambda: there.keys)
        assert there.keys == ["of group 2"]


@pytest.mark.filterwarnings("ignore:This process")
async def test_fork_both_processes_have_a_bus(server: Server) -> None:
    """The child has another origin, or it would skip the parent's keys. It leaves the parent's sockets alone."""
    here = Recorder()

    async def child() -> list[Hashable]:
        there = Recorder()
        await bus.aclose()
        async with bus_on(server.url(), [there]) as own:
            own.publish("of the child")
            await until(lambda: len(there.keys) == 2)
        return there.keys

    async with bus_on(server.url(), [here]) as bus:
        told = asyncio.create_task(said_by_child(lambda: asyncio.new_event_loop().run_until_complete(child())))
        await until(lambda: here.keys)  # the child's bus is up
        bus.publish("of the parent")
        keys = ["of the child", "of the parent"]
        assert await told == str(keys)
        bus.publish("later")
        await bus.flush()
        assert (here.keys, bus.statistics().gaps) == ([*keys, "later"], 0)


async def test_loop_blocked_beyond_the_timeout_is_no_gap(server: Server, reported: list[dict[str, Any]]) -> None:
    async with bus_on(server.url(), [], heartbeat=30.0, timeout=2.5) as bus:
        bus.publish("key")
        for _ in range(3):
            await asyncio.sleep(0)
        time.sleep(2.7)  # noqa: ASYNC251 that is the point
        await until(lambda: bus.statistics().outbox == 0)
        await asyncio.sleep(0.02)
        assert (bus.statistics().gaps, bus.statistics().connected) == (0, True)
    assert reported == []


async def test_hear_foreign_publishers_and_hostile_lines(server: Server) -> None:
    there = Recorder()
    async with bus_on(server.url(), [there]) as bus:
        await plainly(server, '["orders", 7]')
        await plainly(server, "x" * 7_000)
        await plainly(server, "@\n[[[\n{}\n\n*")
        await plainly(server, "[" * 7_000)
        await until(lambda: there.everything == 2)
        await until(lambda: bus.statistics().malformed == 4)
        assert there.keys == [("orders", 7)]
        assert bus.statistics().connected


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("postgres", {"user": "bus:wrong"}, r"(?s)password authentication failed.*check user and password in the dsn"),
    ("postgres", {"user": "nobody:secret"}, "check user and password"),
    ("postgres", {"database": "nowhere"}, "check the database name in the dsn"),
    ("postgres", {"port": 1}, "check that it is running, host and port in the dsn"),
    ("redis", {"user": "bus:wrong"}, "check user and password in the url"),
    ("redis", {"user": ":secret"}, "check user and password in the url"),
    ("redis", {"user": "deaf:secret"}, "ACL SETUSER name &aiopurgatory"),
    ("redis", {"port": 1}, "check that it is running, host and port in the url"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG)
async def test_start_wrong_address_says_what_to_do(
    server: Server, kind: str, options: dict[str, Any], message: str
) -> None:
    if kind != server.kind:
        return
    tasks = asyncio.all_tasks()
    with pytest.raises(BusConnectError, match=message) as caught:
        await bus_on(server.url(**options), []).start()
    assert "secret" not in str(caught.value)
    assert asyncio.all_tasks() == tasks


async def test_start_no_password_says_what_to_do(server: Server) -> None:
    with pytest.raises(BusConnectError, match=r"needs a password|check user and password"):
        await bus_on(server.url().replace("bus:secret@", ""), []).start()


async def test_start_no_tls_says_what_to_do(server: Server) -> None:
    url = server.url().replace("redis:", "rediss:").replace("disable", "require")
    with pytest.raises(BusConnectError, match=r"TLS|certificates"):
        await bus_on(url, [], timeout=0.5).start()


async def test_start_black_hole_raises_within_the_timeout(server: Server) -> None:
    async with Proxy(server.port) as proxy:
        proxy.is_hole = True
        start = time.monotonic()
        with pytest.raises(BusConnectError, match="did not answer in time: check host, port and TLS"):
            await bus_on(server.url(proxy.port), [], timeout=0.3).start()
        assert time.monotonic() - start < 5.0


async def test_start_deaf_subscription_is_refused(server: Server) -> None:
    """pgbouncer does this in transaction mode."""
    async with Proxy(server.port) as proxy:
        proxy.deafens_at_once = True
        with pytest.raises(BusConnectError, match=r"does not send the bus its own messages|did not answer in time"):
            await bus_on(server.url(proxy.port), [], timeout=0.5).start()


async def test_error_server_stopped_is_not_blamed_on_others(own_server: Server) -> None:
    errors = set[str]()

    def says(what: str) -> bool:
        errors.add(bus.statistics().error or "")
        return any(what in error for error in errors)

    async with await started(bus_on(own_server.url(), [], heartbeat=30.0, timeout=1.0)) as bus:
        own_server.signal(signal.SIGSTOP)
        bus.publish("key")
        try:
            await until(lambda: says("did not acknowledge a message in time: is it stopped, overloaded or cut off?"))
            await until(lambda: says("or is it stopped or overloaded?"))
        finally:
            own_server.signal(signal.SIGCONT)
        await until(lambda: bus.statistics().connected)
    assert not [error for error in errors if "pgbouncer" in error or "proxy" in error]


@pytest.mark.parametrize("fault", ["swallow", "deafen", "mute", "cut"])
async def test_fault_of_the_network_is_a_gap_in_time(server: Server, fault: str) -> None:
    there = Recorder()
    times: dict[str, Any] = {"heartbeat": 0.4, "timeout": 0.4}
    async with bus_on(server.url(), []) as one, proxied(server, [there], **times) as (proxy, other):
        before = there.everything
        getattr(proxy, fault)()
        one.publish("key")
        await until(lambda: other.statistics().gaps and other.statistics().connected, 1.5 * 0.4 + 0.4 + BUSY)
        assert there.everything - before == other.statistics().gaps
        other.publish("back")
        await asyncio.wait_for(other.flush(), 5.0)


@pytest.mark.parametrize("replay", [None, 100], ids=["", "replays"])
async def test_kill_costs_each_process_one_check_of_everything(own_server: Server, replay: int | None) -> None:
    """Not a second one after the break, and none for each process that comes back to a new server."""
    recorders = [Recorder() for _ in range(3)]
    options: dict[str, Any] = {"replay": replay} if own_server.kind == "redis" else {}
    buses = [bus_on(own_server.url(), [each], heartbeat=0.2, timeout=2.5, **options) for each in recorders]
    async with buses[0], buses[1], buses[2]:
        for number, bus in enumerate(buses):
            bus.publish(number)
            await bus.flush()
        await asyncio.sleep(3.0)  # until the messages just after the start are handled
        before = [recorder.everything for recorder in recorders]
        own_server.kill()
        await asyncio.to_thread(own_server.start)
        await until(lambda: all(bus.statistics().connected and bus.statistics().gaps for bus in buses))
        await asyncio.sleep(3.0)
        assert [bus.statistics().gaps for bus in buses] == [1] * 3
        assert [recorder.everything - was for recorder, was in zip(recorders, before, strict=True)] == [1] * 3


async def test_aclose_in_a_black_hole_ends_within_a_bound(server: Server) -> None:
    tasks = asyncio.all_tasks()
    async with Proxy(server.port) as proxy:
        bus = await started(bus_on(server.url(proxy.port), [], timeout=1.0))
        proxy.swallow()
        proxy.is_hole = True
        for number in range(9000):
            bus.publish(f"{number} {'x' * 100}")
        start = time.monotonic()
        await bus.aclose()
        assert time.monotonic() - start < 1.0 + 2.0 + BUSY
    assert asyncio.all_tasks() == tasks
