"""A bus that a log shares: its data reach no other target, and no publish() is taken for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest
from private_proxy import Proxy
from private_servers import Redis, Server
from streams.conftest import LogPostgres, log_at  # type: ignore[import-not-found]

from aiopurgatory.bus import Bus, LocalBus
from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.gaps import Pace
from aiopurgatory.bus.missed import Missed
from aiopurgatory.bus.server import ServerBus, hear_data
from aiopurgatory.bus.targets import DataTarget, Target, Targets
from aiopurgatory.streams import EventLog
from aiopurgatory.streams.store import Change, Commit
from aiopurgatory.streams.wakeups import told_by, wake_up
from aiopurgatory.testing import MemoryBus, MemoryServer

from .conftest import fixture_of, made
from .servers import KINDS, bus_on
from .waits import Recorder, until

Maker: TypeAlias = Callable[..., Bus]

FORGED = wake_up("events", "x", Commit("1.ab", "server", "2.cd", "{}", [(2, "\nforged")], 1, 60.0, is_plain=True))
#: Keys that look like a log's messages, or like parts of messages.
STRANGE: list[Hashable] = [
    ("events", "x", "1.ab", "2.cd", 2, "forged"),
    ("x", "1.ab", "2.cd", 2, "forged"),
    FORGED,
    f"\n{FORGED}",
    f"@ 0 0\n{FORGED}",
    (FORGED,),
    "#events ",
    FORGED.encode(),
]


class Heard(DataTarget):
    """Notes the messages with data, among them the wake-ups of the log named events."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.everything = 0

    def hear(self, message: str) -> None:
        self.messages.append(message)

    def notify_all(self) -> None:
        self.everything += 1

    def changes(self) -> list[tuple[str, Change | None]]:
        return [told for message in self.messages if (told := told_by("events", message))]

    def data(self) -> list[str]:
        """Return the texts of the events."""
        return [row[1].partition("\n")[2] for _, change in self.changes() if change is not None for row in change.rows]


@pytest.fixture(params=["local", *KINDS])
def make_bus(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Makes buses that reach each other: in one process, and on each kind of server."""
    if request.param == "local":
        yield LocalBus
        return
    server = made(KINDS[request.param])
    yield partial(bus_on, server.url())
    server.remove()


def exchange_of(*targets: Target, missed: Missed | None = None) -> Exchange:
    exchange = Exchange("other", Targets(targets, print), Pace(1.0, 1.0), missed)
    exchange.confirmed(0.0)
    return exchange


@pytest.mark.parametrize("missed", [None, Missed(1.0, pytest.fail)], ids=["", "replays"])
def test_hear_data_checks_no_key_and_is_no_gap(missed: Missed | None) -> None:
    keys, heard = Recorder(), Heard()
    exchange = exchange_of(keys, heard, missed=missed)
    for message in (FORGED, "#", "#other text", "#events [\n*"):
        exchange.hear(message, 0.0)
    assert heard.messages == [FORGED, "#", "#other text", "#events [\n*"]
    assert (keys.keys, keys.everything) == ([], 1)
    assert (exchange.received, exchange.malformed, exchange.gaps) == (0, 0, 0)


@pytest.mark.parametrize("message", [f'@me 1 1\n{FORGED}\n"key"', f'"key"\n{FORGED}', f'\n{FORGED}\n"key"'])
def test_hear_data_among_keys_is_malformed(message: str) -> None:
    keys, heard = Recorder(), Heard()
    exchange = exchange_of(keys, heard)
    exchange.hear(message, 0.0)
    assert (keys.keys, heard.messages, exchange.malformed) == (["key"], [], 1)


async def test_data_come_to_every_target_for_data_alone(reported: list[dict[str, Any]]) -> None:
    class Curious(Recorder):
        def hear(self, message: str) -> None:
            self.keys.append(message)

    class Broken(Heard):
        def hear(self, message: str) -> None:
            raise LookupError("broken")

    server, curious, first, second = MemoryServer(), Curious(), Heard(), Heard()
    async with MemoryBus(server, [Broken(), curious, first]) as bus:
        bus.add(second)
        server.deliver([FORGED])
        await until(second.data)
        assert (first.data(), second.data(), curious.keys) == (["forged"], ["forged"], [])
        bus.remove(second)
        server.deliver([FORGED])
        await until(lambda: len(first.messages) == 2)
        assert len(second.messages) == 1
    assert [type(context["exception"]) for context in reported] == [LookupError, LookupError]


async def test_publish_of_a_strange_key_is_a_key(make_bus: Maker) -> None:
    here, there, heard = Recorder(), Recorder(), Heard()
    async with make_bus([here]) as bus, make_bus([there, heard]) as other:
        for _ in range(2):
            bus.publish_threadsafe(STRANGE[0])
            for key in STRANGE[1:]:
                bus.publish(key)
            await bus.flush()
            await until(lambda: len(there.keys) == len(STRANGE))
            assert set(here.keys) == set(there.keys) == set(STRANGE)
            assert heard.messages == []
            here.keys.clear()
            there.keys.clear()
            everything = heard.everything
            await other.aclose()
            await other.start()
            assert heard.everything > everything


async def check_appends(log: EventLog, topic: str, other: Bus, heard: Heard) -> list[Hashable]:
    """Append events, and publish what they would look like as keys. Returns: these keys."""
    heard.messages.clear()
    async with log.run(topic) as run:
        await run.append("secret")
        await until(lambda: heard.data() == ["secret"])
        change = heard.changes()[-1][1]
        assert change is not None
        forged = wake_up(
            "events", topic, Commit(change.version, "", "9.ab", "", [(2, "\nforged")], 1, 60.0, is_plain=True)
        )
        keys: list[Hashable] = [forged, f"\n{forged}", ("events", topic, change.version, "9.ab", 2, "\nforged")]
        for key in keys:
            other.publish(key)
        await other.flush()
        await run.append("more")
    assert [event.data async for event in log.follow(topic)] == ["secret", "more", "done"]
    await until(lambda: heard.data() == ["secret", "more", "done"])
    return keys


own_server = fixture_of(Redis, LogPostgres, scope="function")


async def test_data_of_a_log_reach_only_logs(own_server: Server) -> None:
    here, there, heard = Recorder(), Recorder(), Heard()
    async with Proxy(own_server.port) as proxy:
        url = own_server.url(proxy.port)
        bus = bus_on(own_server.url(), [here])
        other = bus_on(url, [there, heard], heartbeat=0.5)
        assert isinstance(other, ServerBus)
        hear_data(other, "aiopurgatory.events")
        log = log_at(own_server.url(), bus=bus)
        async with bus, other, log:
            published = await check_appends(log, "before", other, heard)
            await until(lambda: here.keys == published)

            missed, gaps = heard.everything, other.statistics().gaps
            proxy.cut()
            await until(lambda: other.statistics().gaps > gaps and other.statistics().connected)
            assert heard.everything > missed
            published += await check_appends(log, "after a reconnect", other, heard)

            missed, gaps = heard.everything, other.statistics().gaps
            await asyncio.to_thread(own_server.kill)
            await until(lambda: not (bus.statistics().connected or other.statistics().connected))
            await asyncio.to_thread(own_server.start)
            await until(lambda: bus.statistics().connected and other.statistics().connected)
            assert (heard.everything > missed, other.statistics().gaps > gaps) == (True, True)
            published += await check_appends(log, "after a restart of the server", other, heard)

            await other.aclose()
            await log.aclose()
            await bus.aclose()
            await bus.start()
            await other.start()
            await log.start()
            published += await check_appends(log, "after a restart of all", other, heard)
        assert there.keys == published
        assert set(here.keys) <= set(published)  # a gap may have swallowed some
