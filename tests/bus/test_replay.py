"""A gap costs as many checks as keys were missed (R10): the rules alone, under random faults, and on a real Redis."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from typing import Any

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory.bus import Bus, BusConnectError
from aiopurgatory.bus.engine import Lost
from aiopurgatory.bus.gaps import Pace
from aiopurgatory.bus.missed import Entry, Missed
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.bus.redis_server import RedisServer, Wire
from aiopurgatory.streams.redis import RedisLog

from .conftest import fixture_of
from .servers import AclRedis, bus_on, started
from .storm import HEARTBEAT, TIMEOUT, Storm
from .test_exchange import ALL, Process
from .waits import Recorder, until


def what_is_missed() -> Missed:
    return Missed(2 * Pace(HEARTBEAT, TIMEOUT).noticed(), lambda reason: None)


class Replaying(Process):
    """On a server that keeps messages. It has heard the ids 1-1 to 1-3 of keys a to c."""

    def __init__(self) -> None:
        super().__init__(HEARTBEAT, TIMEOUT, missed=what_is_missed())
        self.exchange.confirmed(0.0)
        self.hear("@me 1 1", "-", "-")
        for number, key in enumerate("abc", 1):
            self.hear(f'@other 1 {number}\n"{key}"', f"1-{number - 1}" if number > 1 else "-", f"1-{number}")
        assert self.checked == [ALL, "a", "b", "c"]
        self.checked.clear()

    def hear(self, message: str, before: str, own: str = "-") -> None:
        head, feed, body = message.partition("\n")
        self.exchange.hear(f"{head} {before} {own}{feed}{body}", 0.0)

    def gap(self, now: float = 0.0) -> None:
        self.exchange.broken(now)
        self.exchange.confirmed(now)

    def read(self, *entries: Entry) -> None:
        self.exchange.replay(list(entries), 0.0)


@pytest.fixture
def process() -> Replaying:
    return Replaying()


C: Entry = ("1-3", '@other 1 3\n"c"')


def test_gap_what_is_heard_while_reading_is_not_read_again(process: Replaying) -> None:
    process.gap()
    process.hear('@other 1 6\n"e"', "1-5", "1-6")
    process.hear('@other 1 7\n"f"', "1-6", "1-7")
    process.read(C, ("1-4", '@other 1 4\n"d"\n+1\n"d"'), ("1-5", '@me 1 7\n"own"'))
    assert (process.checked, process.exchange.replayed) == (["e", "f", "d"], 1)
    assert process.exchange.reads_from() is None
    process.hear('@other 1 9\n"h"', "1-8", "1-9")  # one is missing on this link
    assert (process.exchange.reads_from(), process.exchange.gaps) == ("1-7", 2)
    process.read(("1-7", '@other 1 7\n"f"'), ("1-8", '@other 1 8\n"g"'))
    assert process.checked == ["e", "f", "d", "h", "g"]
    process.gap()
    process.hear("@me 3 2", "1-9")
    assert process.exchange.reads_from() == "1-9"


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="stream lost"),
        pytest.param([("1-4", '@other 1 4\n"d"')], id="trimmed"),
        pytest.param([("1-3", '@third 1 3\n"x"'), ("1-4", '@other 1 4\n"d"')], id="id used again"),
        pytest.param([C], id="end lost"),
    ],
)
def test_gap_not_all_is_there_checks_everything_once(process: Replaying, entries: list[Entry]) -> None:
    process.gap()
    process.hear('@other 1 5\n"e"', "1-4", "1-5")
    process.read(*entries)
    assert process.checked == ["e", ALL]
    process.gap()
    process.hear("@me 3 2", "1-5")
    assert process.exchange.reads_from() == "1-5"
    process.read(("1-5", '@other 1 5\n"e"'))
    assert process.checked == ["e", ALL]


def test_gap_everything_checked_by_a_probe_goes_on_from_there(process: Replaying) -> None:
    process.gap()
    process.hear("@me 2 2", "1-9")
    process.read(("1-9", "@third 1 1\n9"))
    assert process.checked == [ALL]
    assert process.exchange.reads_from() == "1-9"
    process.read(("1-9", "@third 1 1\n9"), ("1-10", "@third 1 1\n10"))
    assert process.checked == [ALL, 10]
    process.gap()
    process.hear("@me 3 2", "1-10")
    assert process.exchange.reads_from() == "1-10"


def test_hear_everything_while_reading_reads_no_more(process: Replaying) -> None:
    process.gap()
    process.hear("@ 0 0\n*", "-", "1-1")
    assert process.checked == [ALL]
    assert process.exchange.reads_from() is None
    process.read()  # asked for before
    assert process.checked == [ALL]
    process.gap()
    process.hear("@me 3 2", "1-1")
    process.read(("1-1", "@ 0 0\n*"))
    assert process.checked == [ALL]


#: Seconds after which a process that publishes without keeping has ended, if nothing was heard of it.
EXPIRES = 2 * (1.5 * HEARTBEAT + TIMEOUT)


@pytest.mark.parametrize(("later", "checked"), [(0.99 * EXPIRES, [ALL]), (1.01 * EXPIRES, [])])
def test_hear_unkept_message_no_more_ends_its_mark(process: Replaying, later: float, checked: list[str]) -> None:
    process.exchange.hear('@old 1 1\n"x"', 0.0)
    process.checked.clear()
    process.exchange.hear("@me 1 2 1-3 -", later)
    process.gap(later)
    assert process.checked == checked


def test_hear_unkept_message_of_another_program_never_ends_its_mark(process: Replaying) -> None:
    process.exchange.hear('"plain"', 0.0)
    process.exchange.hear("@me 1 2 1-3 -", 1e6)
    process.checked.clear()
    process.gap(1e6)
    assert process.checked == [ALL]


def test_hear_unkept_message_before_a_long_outage_keeps_its_mark(process: Replaying) -> None:
    process.exchange.hear('@old 1 1\n"x"', 0.0)
    process.gap(1e6)
    process.checked.clear()
    process.exchange.hear("@me 2 1 1-3 -", 1e6 + 0.1)  # the old process was not heard on this link yet
    process.gap(1e6 + 0.2)
    assert process.checked == [ALL]


def test_hear_unkept_message_again_after_its_mark_checks_everything(process: Replaying) -> None:
    process.exchange.hear('@old 1 1\n"x"', 0.0)
    process.exchange.hear("@me 1 2 1-3 -", EXPIRES + 1.0)
    process.gap(EXPIRES + 2.0)
    process.checked.clear()
    process.exchange.hear("@old 1 2", EXPIRES + 3.0)
    assert process.checked == [ALL]


# under random faults


STORMS = {
    "keeping": Storm(keeps=40, loses=0.5),
    "lossy": Storm(keeps=40, loses=1.0, most_lost=2, cuts=0.5),  # as a replica that is behind
    "small": Storm(keeps=4, loses=0.5),
    "sound": Storm(keeps=1_000),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
def test_rules_replaying_leave_nobody_parked(storm: Storm) -> None:
    assert storm.stuck(range(120)) == 0


def test_rules_replaying_check_everything_only_at_the_start() -> None:
    storm = Storm(keeps=1_000)
    assert storm.stuck(range(60)) == 0
    assert storm.gaps > 180
    assert storm.everything < 180 + storm.gaps // 4  # at the start, and where nothing was seen before the first gap


# on a real Redis


redis, own_redis = fixture_of(AclRedis), fixture_of(AclRedis, scope="function")


def replaying(url: str, targets: Iterable[Any], name: str, **options: Any) -> Any:
    return bus_on(url, targets, name=f"aiopurgatory.{name}", **{"replay": 100} | options)


async def gap_of(
    server: Server,
    name: str,
    one: Bus | None = None,
    path: str = "",
    count: int = 1,
    replay: int = 100,
    is_first: bool = False,
) -> tuple[Recorder, int]:
    """Let another bus not hear *count* keys of *one*, 0 and up. Returns: what it checks, and how much of it it reads.

    Args: path: in its url. is_first: it has heard no key before.
    """
    there = Recorder()
    async with (
        Proxy(server.port) as proxy,
        one or replaying(server.url(), [], name, replay=replay) as one,
        replaying(server.url(proxy.port) + path, [there], name, replay=replay) as other,
    ):
        if is_first:
            await until(lambda: other._reconnecting.exchange._missed._seen)  # it has read the first probe
        else:
            one.publish("seen")
            await until(lambda: "seen" in there.keys)
        assert proxy.deafen() == 1
        for number in range(count):
            one.publish(number)
            await one.flush()
        proxy.cut()
        await until(lambda: count - 1 in there.keys or there.everything == 2)
        assert (other.statistics().gaps, other.statistics().malformed) == (1, 0)
        return there, other.statistics().replayed


@pytest.mark.parametrize(("count", "replay"), [(30, 100), (250, 1000)], ids=["one_page", "several_pages"])
async def test_gap_checks_only_what_was_missed(redis: Server, count: int, replay: int) -> None:
    there, replayed = await gap_of(redis, f"missed-{count}", count=count, replay=replay)
    assert (set(there.keys), there.everything) == ({"seen", *range(count)}, 1)
    assert count <= replayed <= count + 1  # perhaps with the first one


async def test_gap_before_the_first_key_checks_only_what_was_missed(redis: Server) -> None:
    there, _ = await gap_of(redis, "early", is_first=True)
    assert (there.keys, there.everything) == ([0], 1)


async def test_gap_of_more_than_the_server_keeps_checks_everything(redis: Server) -> None:
    there, replayed = await gap_of(redis, "trimmed", count=400, replay=1)
    assert there.everything == 2
    assert replayed <= 1  # perhaps the first one


async def test_gap_of_two_databases_reads_one_stream(redis: Server) -> None:
    there, _ = await gap_of(redis, "databases", replaying(redis.url() + "/1", [], "databases"), "/2")
    assert (set(there.keys), there.everything) == ({"seen", 0}, 1)


async def test_publish_only_with_replay_keeps_its_keys(redis: Server) -> None:
    there, _ = await gap_of(redis, "only", RedisBus(redis.url(), name="aiopurgatory.only", replay=100))
    assert (set(there.keys), there.everything) == ({"seen", 0}, 1)


async def test_plain_publisher_makes_gaps_check_everything(redis: Server) -> None:
    there, _ = await gap_of(redis, "mixed", replaying(redis.url(), [], "mixed", replay=None))
    assert there.everything == 2


async def test_stop_and_continue_of_the_server_checks_nothing(own_redis: Server) -> None:
    there = Recorder()
    async with await started(replaying(own_redis.url(), [there], "stopped", heartbeat=0.2, timeout=0.3)) as bus:
        bus.publish("key")
        await bus.flush()
        before = there.everything
        own_redis.signal(signal.SIGSTOP)
        await until(lambda: bus.statistics().gaps > 0)
        own_redis.signal(signal.SIGCONT)
        await until(lambda: bus.statistics().connected)
        await asyncio.sleep(0.3)
        assert there.everything == before


async def test_start_without_the_rights_names_them(redis: AclRedis) -> None:
    with pytest.raises(
        BusConnectError,
        match=r"\+script \+evalsha \+xadd \+xrange \+xrevrange \+expire &aiopurgatory ~aiopurgatory:replay",
    ):
        await bus_on(redis.url(user="least:secret"), [], replay=1).start()


async def test_start_on_redis_6_says_why_not(redis: AclRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as its answer to HELLO tells."""
    connect = RedisServer.connect_to_master

    async def posing(self: RedisServer, lost: Lost) -> Wire:
        wire = await connect(self, lost)
        wire.facts[b"version"] = b"6.2.14"
        return wire

    monkeypatch.setattr(RedisServer, "connect_to_master", posing)
    with pytest.raises(BusConnectError, match=r"it is Redis 6\.2\.14; replay= needs Redis 7 or Valkey: leave it out"):
        await replaying(redis.url(), [], "old").start()
    async with replaying(redis.url(), [], "old", replay=None) as bus:
        assert bus.statistics().connected


async def test_replay_turned_on_one_by_one_takes_effect_in_the_end(
    own_redis: Server, caplog: pytest.LogCaptureFixture
) -> None:
    here = Recorder()
    times = {"heartbeat": 0.1, "timeout": 0.2}
    old = replaying(own_redis.url(), [], "turned-on", replay=None, **times)
    async with Proxy(own_redis.port) as proxy:
        new = replaying(own_redis.url(proxy.port), [here], "turned-on", **times)

        async def gap() -> int:
            """Returns: how many checks of everything it cost."""
            before, gaps = here.everything, new.statistics().gaps
            proxy.cut()
            await until(lambda: new.statistics().gaps > gaps and new.statistics().connected)
            await asyncio.sleep(0.1)
            return here.everything - before

        async with await started(new):
            async with await started(old):
                await until(lambda: "pass it in all processes" in caplog.text)
                assert await gap() >= 1  # the control
            while await gap():  # noqa: ASYNC110
                await asyncio.sleep(1.0)
    assert caplog.text.count("pass it in all processes") == 1


@pytest.mark.parametrize(("replay", "kind"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_replay_wrong_is_refused(replay: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="replay must be"):
        replaying("redis://localhost", [], "aiopurgatory", replay=replay)


def test_redis_log_refuses_a_bus_that_replays() -> None:
    bus: Any = replaying("redis://localhost", [], "aiopurgatory")
    with pytest.raises(ValueError, match="bus must not have replay"):
        RedisLog("redis://localhost", bus=bus)
