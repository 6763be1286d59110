"""Every timer of R3, in simulated time: with any fault of one message, every process still checks every key in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from streams.virtual import play  # type: ignore[import-not-found]

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.gaps import SPACING, Arrivals, Echo
from aiopurgatory.bus.keys import pack
from aiopurgatory.bus.reconnecting import FIRST_PAUSE

from .simulated import WAY, Fault, Network, Process, fleet

#: Heartbeat and timeout, in each order.
each_order = pytest.mark.parametrize(("heartbeat", "timeout"), [(0.5, 2.5), (1.0, 1.0), (2.5, 0.5)])
#: Seconds between the keys of a process: often and rarely, and no multiple of the times above.
each_period = pytest.mark.parametrize("period", [0.73, 3.7], ids=["busy", "idle"])
KINDS = ("drop", "repeat", "swallow", "delay", "delay one")
PROCESSES = 3


@dataclass
class Published:
    """The keys of a run, and the processes that must check each."""

    heartbeat: float
    timeout: float
    #: Key, time, and the processes.
    keys: list[tuple[str, float, list[Process]]] = field(default_factory=list)

    def add(self, key: str, process: Process, others: Iterable[Process]) -> None:
        """Publish *key*."""
        now = asyncio.get_running_loop().time()
        self.keys.append((key, now, [other for other in others if other is not process]))
        process.bus.publish(key)

    async def slowest(self) -> float:
        """Seconds from a publish to its check by the slowest process, over all keys; infinity after a long wait."""
        for _ in range(60):  # as short as can be: most faults are mended at once
            if self._slowest() < inf:
                break
            await asyncio.sleep((self.heartbeat + self.timeout) / 20)
        return self._slowest()

    def _slowest(self) -> float:
        return max(other.checked_after(key, at) for key, at, others in self.keys for other in others)


async def slowest(fault: Fault, heartbeat: float, timeout: float, period: float) -> tuple[float, list[str]]:
    """Return seconds from a publish to its check by the slowest other process, over all keys.

    Returns: also the messages that may be struck: all of the first rounds. The later rounds have no faults. They show
    whether everything still works.
    """
    answer_way = 0.0005 if fault.number % 2 else 0.002
    async with fleet(PROCESSES, heartbeat, timeout, answer_way=answer_way) as processes:
        await asyncio.sleep(1.1 * heartbeat)  # each has heard each
        network = processes[0].network
        network.strike(fault)
        published = Published(heartbeat, timeout)
        sent: list[str] = []
        rounds, struck = (8, 3) if period < 1.0 else (3, 2)
        for number in range(rounds):
            for place, process in enumerate(processes):
                await asyncio.sleep(period / PROCESSES)
                published.add(f"{number} of {place}", process, processes)
            if number == struck - 1:
                await asyncio.sleep(5 * WAY)
                sent = network.sent[:]
        return await published.slowest(), sent


async def slowest_of_new(fault: Fault, heartbeat: float, timeout: float, are_all_new: bool) -> tuple[float, list[str]]:
    """Same, for processes that start one after another, and publish before they are connected.

    Args: are_all_new: all of them, or the last one only: the others were connected long before.
    """
    network = Network()
    published = Published(heartbeat, timeout)
    processes: list[Process] = []
    if are_all_new:
        network.strike(fault)
    for place in range(PROCESSES):
        process = Process(network, heartbeat, timeout)
        if place == PROCESSES - 1 and not are_all_new:
            await asyncio.sleep(bound(heartbeat, timeout))
            network.strike(fault)
        while not process.bus.statistics().connected:
            starting = asyncio.create_task(process.bus.start())
            await asyncio.sleep(0)
            before = published.keys[:]
            published.add(f"early {place}", process, processes)
            try:
                await starting
            except BusConnectError:  # the fault has struck its first link, and the application knows
                published.keys = before
        await asyncio.sleep(5 * WAY)
        published.add(f"late {place}", process, processes)
        processes.append(process)
    await asyncio.sleep(5 * WAY)
    sent = network.sent[:]
    found = await published.slowest()
    for process in processes:
        await process.bus.aclose()
    return found, sent


def bound(heartbeat: float, timeout: float) -> float:
    """The promised seconds, the pause before connecting again, and the delay of the messages."""
    return 1.5 * heartbeat + timeout + FIRST_PAUSE + 0.02


def faults(kinds: Sequence[str], messages: int, timeout: float, step: int) -> Iterator[Fault]:
    for kind in kinds:
        for number in range(0, messages, step):
            for share in (0.3, 0.95, 3.0) if "delay" in kind else (0.0,):
                yield Fault(kind, number, share * timeout)


def late(
    run: Callable[..., Coroutine[Any, Any, tuple[float, list[str]]]],
    heartbeat: float,
    timeout: float,
    *arguments: float,
    step: int = 1,
    kinds: Sequence[str] = KINDS,
) -> list[tuple[str, Fault, float]]:
    """Return the faults after which a key was checked too late, or never, each with the message it struck.

    Args: step: strikes each step-th message; no multiple of 5, since each publish makes five.
    """
    found, sent = play(run(Fault(), heartbeat, timeout, *arguments))
    assert found < 0.01
    assert set(sent) >= {"notify", "acknowledgement", "notification"}
    results = []
    for fault in faults(kinds, len(sent), timeout, step):
        found, struck = play(run(fault, heartbeat, timeout, *arguments))
        if found > bound(heartbeat, timeout):
            results.append((struck[fault.number], fault, found))
    return results


each_start = pytest.mark.parametrize("are_all_new", [True, False], ids=["all_new", "last_new"])


@each_start
@each_order
def test_any_of_the_first_messages_goes_wrong_all_hear(heartbeat: float, timeout: float, are_all_new: bool) -> None:
    assert late(slowest_of_new, heartbeat, timeout, are_all_new) == []


@each_start
def test_control_first_number_unread_some_never_hear(are_all_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without R8: a process first heard with a higher number has no gap before it."""
    gap_at = Arrivals.gap_at

    def known_only(self: Arrivals, origin: str, *message: Any) -> float:
        is_known = origin in self._last
        found = gap_at(self, origin, *message)
        return found if is_known else inf

    monkeypatch.setattr(Arrivals, "gap_at", known_only)
    found = late(slowest_of_new, 1.0, 1.0, are_all_new, kinds=["drop"])
    assert {what for what, _, seconds in found if seconds == inf} == {"notification"}


async def checks_on_joining(processes: int) -> tuple[int, int]:
    """Return how often a process checks everything in the half minute after it joins a fleet, and its gaps."""
    async with fleet(processes, 5.0, 5.0) as others:
        await asyncio.sleep(12.0)
        joining = Process(others[0].network if others else Network(), 5.0, 5.0)
        await joining.bus.start()
        await asyncio.sleep(30.0)
        found = sum(what == "*" for what, _ in joining.checks), joining.bus.statistics().gaps
        await joining.bus.aclose()
    return found


def test_joining_a_fleet_costs_one_check() -> None:
    assert play(checks_on_joining(20)) == (1, 0)
    assert play(checks_on_joining(0)) == (1, 0)


def test_control_ages_unread_joining_costs_a_check_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without R9."""
    monkeypatch.setattr("aiopurgatory.bus.exchange.pack", lambda *arguments: pack(*arguments[:3]))
    assert play(checks_on_joining(20)) == (2, 0)


@each_period
@each_order
def test_any_one_message_goes_wrong_all_hear(heartbeat: float, timeout: float, period: float) -> None:
    assert late(slowest, heartbeat, timeout, period, step=31) == []


@pytest.mark.chaos
@pytest.mark.timeout(300)
@each_period
@each_order
def test_chaos_each_message_goes_wrong_all_hear(heartbeat: float, timeout: float, period: float) -> None:
    assert late(slowest, heartbeat, timeout, period) == []


# a connection that trickles


async def oldest_news(heartbeat: float, timeout: float, seconds: float, own_keys: bool) -> tuple[float, int]:
    """The listening connection of one process gets slower than the senders.

    Returns: how long the slowest check of its keys took, and the gaps.
    """
    async with fleet(2, heartbeat, timeout) as (one, other):
        await asyncio.sleep(1.1 * heartbeat)
        other.network.links[-1].listening.slowness = seconds
        loop = asyncio.get_running_loop()
        published = []
        for number in range(200):
            await asyncio.sleep(0.1)
            published.append((f"{number}", loop.time()))
            one.bus.publish(f"{number}")
            if own_keys:
                other.bus.publish(f"own {number}")
        await asyncio.sleep(3.0 * (heartbeat + timeout))
        gaps = other.bus.statistics().gaps
        return max(other.checked_after(*each) for each in published), gaps


@pytest.mark.parametrize("own_keys", [False, True], ids=["others_publish", "all_publish"])
@pytest.mark.parametrize("seconds", [0.105, 0.15, 0.5])
@each_order
def test_trickle_news_are_never_too_old(heartbeat: float, timeout: float, seconds: float, own_keys: bool) -> None:
    oldest, gaps = play(oldest_news(heartbeat, timeout, seconds, own_keys))
    assert oldest < bound(heartbeat, timeout)
    assert gaps == 1 or seconds < 0.15


# acknowledgements that are slow, but in time


async def slowest_deaf(heartbeat: float, timeout: float, answer_way: float) -> tuple[float, int]:
    """One process's acknowledgements are slow, and its listening connection goes deaf at any time in between.

    Returns: seconds until the slowest check of a key that another process published then, and the earlier gaps.
    """
    early, found = 0, 0.0
    async with fleet(2, heartbeat, timeout) as (one, other):
        network = other.network
        loop = asyncio.get_running_loop()
        for number in range(24):
            link, gaps = network.links[-1], other.bus.statistics().gaps
            link.answering.way = answer_way
            await asyncio.sleep(3.0 * max(heartbeat, answer_way) + (answer_way + heartbeat) * number / 24)
            early += other.bus.statistics().gaps - gaps
            network.links[-1].listening.is_swallowing = True
            at = loop.time()
            one.bus.publish(f"{number}")
            await asyncio.sleep(3.0 * (heartbeat + timeout))
            found = max(found, other.checked_after(f"{number}", at))
    return found, early


@pytest.mark.parametrize("share", [0.001, 0.5, 0.9])
@each_order
def test_slow_acknowledgements_gap_is_noticed_in_time(heartbeat: float, timeout: float, share: float) -> None:
    found, early = play(slowest_deaf(heartbeat, timeout, share * timeout))
    assert found < bound(heartbeat, timeout)
    assert early == 0


def test_control_any_echo_counts_news_get_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(self: Echo, number: int) -> None:
        self.echoed_at = self._unechoed[-1][1] if self._unechoed else self.echoed_at
        self._unechoed.clear()

    monkeypatch.setattr(Echo, "heard", heard)
    oldest, gaps = play(oldest_news(1.0, 1.0, 0.3, own_keys=True))
    assert oldest > 2 * bound(1.0, 1.0)
    assert gaps == 0


async def test_lost_before_the_publisher_is_cut_is_noticed() -> None:
    """A notification is lost, and its publisher's link breaks before the next one."""
    async with fleet(2, 1.0, 1.0) as (one, other):
        network = other.network
        await asyncio.sleep(1.5)
        link = network.links[1]
        hear, link.hear = link.hear, lambda _: None
        at = asyncio.get_running_loop().time()
        one.bus.publish("key")
        await one.bus.flush()
        await asyncio.sleep(0.05)
        link.hear = hear
        network.links[0].lost(ConnectionResetError("cut"))
        await asyncio.sleep(30.0)
        assert other.checked_after("key", at) < bound(1.0, 1.0)


async def test_error_deaf_while_publishing_is_the_lost_echo() -> None:
    """It publishes all the time, so an acknowledgement is on its way at any time."""
    async with fleet(1, 1.0, 1.0, answer_way=0.02) as (process,):
        await asyncio.sleep(1.5)
        process.network.links[0].listening.is_swallowing = True
        while process.bus.statistics().error is None:
            process.bus.publish("key")
            await asyncio.sleep(0.01)
        assert str(process.bus.statistics().error).startswith("EchoLostError")


async def test_hear_everything_often_is_spaced_and_none_is_lost() -> None:
    """Messages ask for a check of everything 20 times within 0.2 s, and once more when all is quiet."""
    async with fleet(1, 5.0, 5.0) as (process,):
        await asyncio.sleep(1.0)
        at = asyncio.get_running_loop().time()
        for _ in range(20):
            process.network.deliver("*")
            await asyncio.sleep(0.01)
        await asyncio.sleep(12.0)
        process.network.deliver("*")
        await asyncio.sleep(0.1)
        first, second, third = (when - at for what, when in process.checks if what == "*" and when > at)
        assert first < 0.01 < SPACING <= second < SPACING + 0.02
        assert third < 12.2 + 0.01


# a network that breaks again and again


@pytest.mark.parametrize(
    ("seconds", "after_echo", "least", "most"), [(30.0, 0.03, 1, 34), (60.0, 5.9, 11, 11)], ids=["each_echo", "rarely"]
)
async def test_flapping_has_few_gaps_or_is_mended_at_once(
    seconds: float, after_echo: float, least: int, most: int
) -> None:
    """Each connection is cut *after_echo* seconds after its first echo."""
    async with fleet(1, 1.0, 1.0) as (process,):
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            while not process.bus.statistics().connected:  # noqa: ASYNC110 simulated
                await asyncio.sleep(0.001)
            await asyncio.sleep(after_echo)
            for link in process.network.links[:]:
                link.lost(ConnectionResetError("cut"))
            await asyncio.sleep(0.001)
        assert least <= process.bus.statistics().gaps <= most


# a server that does not answer


@pytest.mark.parametrize(("seconds", "least", "most"), [(75.0, 3, 7), (1200.0, 1200 / 25, 400)])
async def test_silent_server_gets_few_attempts_and_never_none(seconds: float, least: float, most: int) -> None:
    """A bus was up. With the shortest pauses, there are seven attempts in 75 s."""
    async with fleet(1, 5.0, 5.0) as (process,):
        network = process.network
        network.is_silent = True
        before = network.attempts
        await asyncio.sleep(seconds)
        assert least <= network.attempts - before <= most
