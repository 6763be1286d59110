"""Each rule by itself, in virtual time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable

import pytest

from aiopurgatory.bus.exchange import MAX_MALFORMED, Exchange
from aiopurgatory.bus.gaps import MAX_ORIGINS, Pace
from aiopurgatory.bus.keys import MAX_MESSAGE, encode
from aiopurgatory.bus.missed import Missed
from aiopurgatory.bus.targets import Target, Targets

ALL = "*"


def targets(target: Target) -> Targets:
    """Of an exchange. An exception of *target* fails the test."""

    def fail(exc: BaseException) -> None:
        raise exc

    return Targets([target], fail)


class Process:
    """An exchange, and the keys that it had checked, with their limits."""

    def __init__(
        self, heartbeat: float = 10.0, timeout: float = 4.0, spread: float = 0.0, missed: Missed | None = None
    ) -> None:
        self.checked: list[Hashable] = []
        self.limits: list[int | None] = []
        self.exchange = Exchange("me", targets(self), Pace(heartbeat, timeout, spread), missed)

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        self.checked.append(key)
        self.limits.append(limit)

    def notify_all(self) -> None:
        self.checked.append(ALL)

    def publish(self, *keys: Hashable) -> None:
        for key in keys:
            self.exchange.publish(key, encode(key), 0.0)

    def messages(self, now: float) -> list[str]:
        """Return the messages without their ages."""
        return [re.sub(r"^(@me \d+ \d+) \d+", r"\1", message) for message in self.exchange.messages(now)]

    def connect(self, now: float = 0.0) -> None:
        """Connect, and wait until it is up."""
        self.exchange.confirmed(0.0)
        for message in self.exchange.messages(now):
            self.exchange.hear(message, now)
        self.exchange.acknowledged(0.0)
        self.checked.clear()


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def up(process: Process) -> Process:
    """Connected at 0 s."""
    process.connect()
    return process


def spreading() -> Process:
    process = Process(spread=60.0)
    process.connect()
    process.exchange.broken(0.0)
    process.exchange.confirmed(100.0)
    return process


def test_gap_spread_is_checked_once_at_a_random_time_within() -> None:
    due = set()
    for _ in range(20):
        process = spreading()
        assert process.checked == []
        process.exchange.messages(100.0)  # a probe, so that nothing else is due
        for now in range(100, 162):
            process.exchange.tick(now)
            if process.checked:
                due.add(now)
                break
        process.exchange.tick(170.0)
        assert process.checked == [ALL]
    assert len(due) > 10
    assert 100 <= min(due) <= max(due) <= 160


def test_gap_spread_is_not_put_off_by_more_gaps() -> None:
    process = spreading()
    process.exchange.broken(150.0)
    process.exchange.confirmed(161.0)
    assert process.checked == [ALL]


def test_gap_spread_is_checked_when_the_bus_closes() -> None:
    process = spreading()
    process.exchange.closed(101.0)
    assert process.checked == [ALL]


def test_publish_same_key_is_sent_once(up: Process) -> None:
    up.publish("a", "b", "a", 1, True, 1.0)
    assert up.messages(1.0) == ['@me 1 2\n"a"\n"b"\n1']
    assert up.messages(1.0) == []


def test_publish_limits_of_a_key_add_up_until_one_has_none(up: Process) -> None:
    for key, limit in [("a", 1), ("b", 1), ("a", 2), ("b", None), ("b", 1), ("c", None)]:
        up.exchange.publish(key, encode(key), 0.0, limit)
    assert up.messages(1.0) == ['@me 1 2\n"a"\n+3\n"b"\n"c"']


@pytest.mark.parametrize("head", ["", "@somebody 1 1\n"])
def test_hear_limits_are_those_of_the_keys_before(up: Process, head: str) -> None:
    up.exchange.hear(f'{head}"a"\n+1\n"b +2"\n{{"$new":1}}\n+3\n7\n+1x\n7\n+0\n7\n+{"9" * 5000}\n1', 0.0)
    assert (up.checked, up.limits) == (["a", "b +2", 7, 7, 7, 1], [1, None, None, None, 10**12 - 1, None])
    assert (up.exchange.received, up.exchange.malformed) == (6, 2)


def test_outbox_too_many_keys_collapse(process: Process) -> None:
    process.publish(*range(10_000))
    assert len(process.exchange.outbox) == 10_000
    process.publish(10_000)
    assert len(process.exchange.outbox) == 10_001
    process.publish(*range(20_000, 20_100))
    process.exchange.confirmed(0.0)
    assert process.messages(0.0) == ["@me 1 1\n*"]
    process.publish("later")
    assert len(process.exchange.outbox) == 10_102  # all that operators want to know
    process.exchange.broken(0.0)
    process.exchange.confirmed(0.0)
    assert len(process.exchange.outbox) == 10_102
    assert process.messages(0.0) == ["@me 2 1\n*"]
    process.publish("later")
    process.exchange.acknowledged(0.0)
    assert len(process.exchange.outbox) == 1
    assert process.messages(0.0) == ['@me 2 2\n"later"']


def test_messages_long_ones_are_split_and_bounded(up: Process) -> None:
    up.publish(*(str(number) * 1000 for number in range(10, 100)), *("x" * 7000 + str(n) for n in range(100)))
    total = 0
    while messages := up.messages(1.0):
        assert max(map(len, messages)) <= MAX_MESSAGE
        assert sum(map(len, messages)) < 300_000
        total += sum(message.count("\n") for message in messages)
        up.exchange.acknowledged(0.0)
    assert total == 190


# the echo: a heartbeat of 10 s, a timeout of 4 s


def test_publish_saves_the_probe_and_its_echo_does_not(up: Process) -> None:
    """Echoes that come later and later must not delay the probe."""
    up.publish("a")
    (message,) = up.messages(5.0)
    up.exchange.acknowledged(0.0)
    up.exchange.hear(message, 8.0)
    assert up.exchange.next_at() == 15.0
    assert up.messages(14.9) == []
    assert up.messages(15.0) == ["@me 1 3"]


def unechoed() -> Exchange:
    """With a heartbeat below the timeout. The echo of its first message is missing."""
    exchange = Process(heartbeat=2.0, timeout=10.0).exchange
    exchange.confirmed(0.0)
    exchange.messages(0.0)
    exchange.acknowledged(0.0)
    return exchange


def test_probe_due_while_an_echo_is_missing_is_sent() -> None:
    """Else the first echo, late, would begin a second timeout."""
    exchange = unechoed()
    assert exchange.next_at() == 2.0
    assert len(exchange.messages(2.0)) == 1
    assert exchange.next_at() == 10.0
    exchange.acknowledged(0.0)
    assert exchange.next_at() == 4.0


def test_echo_of_an_earlier_link_or_process_does_not_count(up: Process) -> None:
    up.exchange.broken(0.0)
    up.exchange.confirmed(0.0)
    (probe,) = up.messages(0.0)
    assert probe == "@me 2 2"
    others = ("@me 1 2", '@me 1 2\n"a"', "@other 2 2", "@me", "@me 2", "@me 2 ", "@", "@me 22 1", "@me 2 9", "@me 2 0")
    for message in others:
        up.exchange.hear(message, 0.0)
    assert not up.exchange.connected
    up.exchange.hear(probe, 0.0)
    assert up.exchange.connected


def test_echo_after_a_stalled_loop_has_time_to_come(up: Process) -> None:
    """A probe that a loop sends long after it was due is not overdue at once."""
    assert up.messages(1000.0) == ["@me 1 2"]
    up.exchange.acknowledged(0.0)
    assert up.exchange.echo.overdue_at() > 1003.9
    exchange = unechoed()
    assert len(exchange.messages(1000.0)) == 1
    exchange.hear("@me 1 1", 1000.0)
    assert exchange.echo.overdue_at() > 1002.9


# hearing messages


def test_hear_others_with_and_without_origin(up: Process) -> None:
    up.exchange.hear('@other 1\n"a"\n["b", 1]', 0.0)
    up.exchange.hear('"c"\r\n["orders" , 7]\r\n', 0.0)
    up.exchange.hear("*", 0.0)
    assert up.checked == ["a", ("b", 1), "c", ("orders", 7), ALL]
    assert up.exchange.received == 5


def test_hear_malformed_lines_are_counted_and_skipped(up: Process) -> None:
    up.exchange.hear('{"a":1}\n"good"\n[[[\nnope\n\n@late 1', 0.0)
    up.exchange.hear("", 0.0)
    up.exchange.hear("x" * 10**6, 0.0)
    up.exchange.hear("\n".join(['"a"'] * 3000), 0.0)
    assert up.checked == ["good"]
    assert (up.exchange.malformed, up.exchange.received) == (6, 1)


def test_hear_many_malformed_lines_are_given_up(up: Process) -> None:
    up.exchange.hear("\n".join(['"a"', *["nope"] * 1000, '"b"']), 0.0)
    assert (up.checked, up.exchange.malformed) == (["a"], MAX_MALFORMED)


def test_hear_bus_of_many_unknown_keys_checks_everything(up: Process) -> None:
    """The sender has a newer version: the skipped part may hold keys that this bus knows."""
    up.exchange.hear("\n".join(["@newer 1 1", '"a"', *['{"$new":1}'] * 500, '"b"']), 0.0)
    assert up.checked == ["a", ALL]
    assert up.exchange.malformed == MAX_MALFORMED


def seconds_to_hear(message: str, times: int = 3) -> float:
    process = Process()
    process.connect()
    found = []
    for _ in range(times):
        start = time.process_time()
        process.exchange.hear(message, 0.0)
        found.append(time.process_time() - start)
    return min(found)


HOSTILE = {
    "malformed lines": "x\n" * 3900,
    "nested": "[" * 7800,
    "nested lines": ("[" * 700 + "\n") * 11,
    "newlines": "\n" * 8_000_000,
    "numbers": ("9" * 700 + "\n") * 11,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hear_hostile_message_costs_little(what: str) -> None:
    """Compared with a message full of keys, so that a slow machine changes nothing."""
    keys = seconds_to_hear("@other 1\n" + "\n".join(f'["orders",{number}]' for number in range(450)), 10)
    assert seconds_to_hear(HOSTILE[what]) < 10 * keys + 0.0005


# checks of everything that messages ask for


@pytest.mark.parametrize("end", [Exchange.broken, Exchange.closed, Exchange.confirmed])
def test_hear_everything_put_off_is_checked_at_the_end(up: Process, end: Callable[[Exchange, float], object]) -> None:
    up.exchange.hear("*", 1.0)
    up.exchange.hear("*", 1.1)
    end(up.exchange, 1.1)
    assert up.checked == [ALL] * 2
    up.exchange.tick(5.0)
    assert up.checked == [ALL] * 2


# the ages of messages, and of "check everything"


def test_messages_tell_how_long_ago_keys_were_acknowledged(process: Process) -> None:
    process.exchange.confirmed(0.0)
    assert process.exchange.messages(0.0) == [f"@me 1 1 {10 * 86_400 * 999}"]  # never
    process.publish("a")
    process.exchange.acknowledged(0.0)
    process.exchange.messages(0.0)
    process.exchange.acknowledged(1.0)
    assert process.exchange.messages(11.0) == ["@me 1 3 9990"]  # 0.1 % less: the clocks of others may run slower
    process.exchange.acknowledged(11.0)  # of a probe: nobody misses that
    process.publish("b")
    assert process.exchange.messages(11.0) == ['@me 1 4 9990\n"b"']
    process.exchange.acknowledged(11.0)
    process.publish("c")
    assert process.exchange.messages(11.0) == ['@me 1 5\n"c"']


@pytest.mark.parametrize("number", [2, 9])
def test_hear_lost_before_the_last_check_of_everything_is_no_gap(process: Process, number: int) -> None:
    process.connect(100.0)  # everything was checked at 0.0
    process.exchange.hear(f"@other 1 {number} 100001", 100.0)
    assert (process.checked, process.exchange.gaps) == ([], 0)
    process.exchange.tick(200.0)
    assert process.checked == []


@pytest.mark.parametrize("age", ["100000", "0", "x", ""])
def test_hear_perhaps_lost_after_the_last_check_is_a_gap(process: Process, age: str) -> None:
    process.connect(100.0)
    process.exchange.hear(f"@other 1 2 {age}", 100.0)
    process.exchange.tick(200.0)
    assert process.checked == [ALL]


def test_hear_everything_until_before_the_last_check_is_nothing(process: Process) -> None:
    process.connect(100.0)
    process.exchange.hear("*100001", 100.0)
    assert (process.checked, process.exchange.received) == ([], 1)
    process.exchange.hear("*100000", 100.0)
    assert process.checked == [ALL]
    process.exchange.hear("*1\n*", 200.0)
    assert process.checked == [ALL] * 2
    process.exchange.hear("*x", 300.0)
    assert (process.checked, process.exchange.malformed) == ([ALL] * 2, 1)


# the numbers of others


def test_hear_missing_number_checks_everything(up: Process) -> None:
    up.exchange.hear('@other 1 7\n"a"', 1.0)  # messages before the subscription are not known
    up.exchange.hear('@other 1 8\n"b"', 1.0)
    assert (up.checked, up.exchange.gaps) == (["a", "b"], 0)
    up.exchange.hear('@other 1 10\n"d"', 1.0)
    assert (up.checked, up.exchange.gaps) == (["a", "b", ALL, "d"], 1)
    assert up.exchange.connected
    up.exchange.hear('@other 1 9\n"c"', 1.0)  # late
    up.exchange.hear('@other 1 10\n"d"', 1.0)  # repeated
    up.exchange.hear("@other 1 11", 1.0)
    assert (up.checked, up.exchange.gaps) == (["a", "b", ALL, "d", "c", "d"], 1)


def test_hear_own_first_number_missing_checks_everything(process: Process) -> None:
    process.exchange.confirmed(0.0)
    process.messages(0.0)
    process.exchange.acknowledged(0.0)
    process.checked.clear()
    process.publish("a")
    process.messages(1.0)
    process.exchange.hear('@me 1 2\n"a"', 1.0)
    assert process.checked == ["a", ALL]


def test_hear_first_with_a_higher_number_is_a_gap(up: Process) -> None:
    """19 s after the subscription, the promised time is over: every other process was heard, except new ones."""
    up.exchange.hear('@new 1 1\n"a"', 20.0)
    assert (up.checked, up.exchange.gaps) == (["a"], 0)
    up.exchange.hear("@newer 1 2", 20.0)
    assert (up.checked, up.exchange.gaps) == (["a", ALL], 1)


def test_hear_before_the_confirmation_is_not_counted(process: Process) -> None:
    """R1 comes after it. Some client libraries tell of messages before they tell of the subscription."""
    process.exchange.hear("@other 1 7", 0.0)
    process.connect(now=0.0)
    process.exchange.broken(0.0)
    process.checked.clear()
    process.exchange.hear("@other 1 9", 40.0)
    process.exchange.hear("@another 1 9", 40.0)
    assert (process.checked, process.exchange.gaps) == ([], 1)


def test_hear_many_origins_are_bounded(up: Process) -> None:
    """Over the bound, all are forgotten, as after connecting: at most one check in the promised time."""
    for number in range(2 * MAX_ORIGINS):
        up.exchange.hear(f"@{number} 1 1", 100.0)
    up.exchange.hear(f"@{2 * MAX_ORIGINS - 1} 1 3", 100.0)
    assert (up.checked, up.exchange.gaps) == ([ALL], 1)
    for number in range(MAX_ORIGINS // 2):
        up.exchange.hear(f"@{number} 1 2", 101.0)
    assert (up.checked, up.exchange.gaps) == ([ALL], 1)
    assert up.exchange.next_at() <= 101.0 + 19.0
    up.exchange.tick(101.0 + 19.0)
    assert (up.checked, up.exchange.gaps) == ([ALL] * 2, 1)
