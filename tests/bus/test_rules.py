"""Each rule by itself, with time as a number."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from aiopurgatory.bus.keys import MAX_MESSAGE, encode
from aiopurgatory.bus.rules import LONGEST_PAUSE, Outbox, Rules, pause

ALL = "*"


class Process:
    """Rules with a heartbeat of 10 s and a timeout of 4 s, and what they had checked."""

    def __init__(self, max_outbox: int = 10_000, kind: type[Rules] = Rules) -> None:
        self.checked: list[Hashable] = []
        self.rules = kind(self.checked.extend, lambda: self.checked.append(ALL), 10.0, 4.0, max_outbox)
        self.rules.begin("me")

    def publish(self, *keys: Hashable) -> None:
        for key in keys:
            self.rules.publish(key, encode(key))

    def connect(self, now: float = 0.0) -> None:
        """Until it is up."""
        self.rules.confirmed()
        for message in self.rules.messages(now):
            self.rules.hear(message, now)
        self.rules.acknowledged()
        self.checked.clear()


@pytest.fixture
def process() -> Process:
    return Process()


def test_confirmed_first_one_checks_everything(process: Process) -> None:
    process.rules.confirmed()
    assert process.checked == [ALL]
    assert process.rules.gaps == 0


def test_confirmed_every_one_checks_everything(process: Process) -> None:
    process.connect()
    process.rules.broken()
    process.checked.clear()
    process.rules.confirmed()
    assert process.checked == [ALL]


def test_broken_while_the_server_stays_down_checks_everything(process: Process) -> None:
    process.connect()
    process.rules.broken()
    assert process.checked == [ALL]
    assert (process.rules.gaps, process.rules.connected) == (1, False)
    process.rules.broken()  # an attempt to connect that failed
    assert (process.checked, process.rules.gaps) == ([ALL], 1)


def test_publish_checks_here_at_once_without_a_server(process: Process) -> None:
    process.publish("a", ("b", 1))
    assert process.checked == ["a", ("b", 1)]
    assert len(process.rules.outbox) == 2


def test_publish_same_key_is_sent_once(process: Process) -> None:
    process.connect()
    process.publish("a", "b", "a", 1, True, 1.0)
    assert process.rules.messages(1.0) == ['@me 1\n"a"\n"b"\n1']
    assert process.rules.messages(1.0) == []


def test_acknowledged_key_leaves_the_outbox(process: Process) -> None:
    process.connect()
    process.publish("a")
    process.rules.messages(1.0)
    assert len(process.rules.outbox) == 1
    process.rules.acknowledged()
    assert len(process.rules.outbox) == 0


def test_broken_in_flight_is_sent_again_first(process: Process) -> None:
    process.connect()
    process.publish("a", "b")
    process.rules.messages(1.0)
    process.publish("c", "a")
    process.rules.broken()
    process.rules.confirmed()
    assert process.rules.messages(2.0) == ['@me 2\n"a"\n"b"\n"c"']


def test_publish_in_flight_is_sent_again(process: Process) -> None:
    process.connect()
    process.publish("a")
    process.rules.messages(1.0)
    process.publish("a")
    process.rules.acknowledged()
    assert process.rules.messages(2.0) == ['@me 1\n"a"']


def test_publish_before_the_first_link_is_sent_on_it(process: Process) -> None:
    process.publish("a")
    process.rules.confirmed()
    assert process.rules.messages(0.0) == ['@me 1\n"a"']


def test_outbox_too_many_keys_collapse(process: Process) -> None:
    process.publish(*range(10_000))
    assert len(process.rules.outbox) == 10_000
    process.publish(10_000)
    assert len(process.rules.outbox) == 1
    process.publish(*range(20_000, 20_100))
    process.rules.confirmed()
    assert process.rules.messages(0.0) == ["@me 1\n*"]
    process.publish("later")
    process.rules.acknowledged()
    assert process.rules.messages(0.0) == ['@me 1\n"later"']


def test_outbox_collapsed_in_flight_stays_so_after_a_break(process: Process) -> None:
    process.publish(*range(10_001))
    process.rules.confirmed()
    process.rules.messages(0.0)
    process.publish("a")
    process.rules.broken()
    process.rules.confirmed()
    assert process.rules.messages(0.0) == ["@me 2\n*"]


def test_messages_long_ones_are_split_and_bounded(process: Process) -> None:
    process.connect()
    process.publish(*(str(number) * 1000 for number in range(10, 100)), *("x" * 7000 + str(n) for n in range(100)))
    total = 0
    while messages := process.rules.messages(1.0):
        assert max(map(len, messages)) <= MAX_MESSAGE
        assert sum(map(len, messages)) < 300_000
        total += sum(message.count("\n") for message in messages)
        process.rules.acknowledged()
    assert total == 190


def test_flush_number_waits_for_all_before_it() -> None:
    outbox = Outbox()
    assert outbox.acknowledged_up_to() >= outbox.mark()
    outbox.put("a", "a")
    outbox.take()
    outbox.put("a", "a")
    outbox.put("b", "b")
    mark = outbox.mark()
    outbox.acknowledge()
    assert outbox.acknowledged_up_to() < mark
    outbox.take()
    outbox.put("c", "c")
    assert outbox.acknowledged_up_to() < mark
    outbox.put_back()
    assert outbox.acknowledged_up_to() < mark
    outbox.take()
    outbox.acknowledge()
    assert outbox.acknowledged_up_to() >= mark


def test_flush_number_survives_a_collapse() -> None:
    outbox = Outbox(2)
    for key in "abcd":
        outbox.put(key, key)
    assert outbox.acknowledged_up_to() < outbox.mark()
    outbox.take()
    outbox.acknowledge()
    assert outbox.acknowledged_up_to() >= outbox.mark()


def test_closed_is_no_gap_and_keeps_the_outbox(process: Process) -> None:
    process.connect()
    process.publish("a")
    process.rules.messages(1.0)
    process.checked.clear()
    process.rules.closed()
    assert (process.rules.gaps, process.rules.connected, process.checked) == (0, False, [])
    assert len(process.rules.outbox) == 1


# the echo: a heartbeat of 10 s, a timeout of 4 s


def test_connected_only_after_the_first_echo(process: Process) -> None:
    process.rules.confirmed()
    (probe,) = process.rules.messages(0.0)
    assert probe == "@me 1"
    process.rules.acknowledged()
    assert not process.rules.connected
    process.rules.hear('"a"', 0.0)
    assert not process.rules.connected
    process.rules.hear(probe, 0.0)
    assert process.rules.connected


def test_probe_is_sent_after_a_silent_heartbeat(process: Process) -> None:
    process.connect(now=0.0)
    assert process.rules.messages(9.9) == []
    assert process.rules.messages(10.0) == ["@me 1"]
    assert process.rules.messages(10.1) == []


def test_echo_of_a_key_saves_the_probe(process: Process) -> None:
    process.connect(now=0.0)
    process.publish("a")
    (message,) = process.rules.messages(5.0)
    process.rules.acknowledged()
    process.rules.hear(message, 6.0)
    assert process.rules.messages(15.9) == []
    assert process.rules.messages(16.0) == ["@me 1"]


def test_echo_missing_is_overdue_after_the_timeout(process: Process) -> None:
    process.connect(now=0.0)
    process.rules.messages(10.0)
    process.rules.acknowledged()  # the publishing connection is well
    process.rules.hear('"a"', 11.0)  # and others are heard
    process.publish("b")
    process.rules.messages(13.0)
    process.rules.acknowledged()
    assert not process.rules.echo.is_overdue(13.9)
    assert process.rules.echo.next_at() == 14.0
    assert process.rules.echo.is_overdue(14.0)


def test_acknowledgement_missing_is_overdue_after_the_timeout(process: Process) -> None:
    process.connect(now=0.0)
    process.publish("a")
    (message,) = process.rules.messages(1.0)
    process.rules.hear(message, 2.0)
    assert process.rules.echo.is_overdue(5.0)
    process.rules.acknowledged()
    assert not process.rules.echo.is_overdue(5.0)


def test_echo_of_an_earlier_link_or_process_does_not_count(process: Process) -> None:
    process.connect()
    process.rules.broken()
    process.rules.confirmed()
    for message in ("@me 1", '@me 1\n"a"', "@other 2", "@me", "@me 2 ", "@", "@me 22"):
        process.rules.hear(message, 0.0)
    assert not process.rules.connected
    process.rules.hear("@me 2", 0.0)
    assert process.rules.connected


def test_gap_is_noticed_within_the_promise(process: Process) -> None:
    process.connect(now=0.0)  # deaf from here on
    noticed = now = 0.0
    while not noticed:
        now += 0.1
        if process.rules.messages(now):
            process.rules.acknowledged()
        noticed = now if process.rules.echo.is_overdue(now) else 0.0
    assert noticed <= 10.0 + 4.0 + 0.2


# what is heard


def test_hear_own_keys_are_not_checked_again(process: Process) -> None:
    process.connect()
    process.rules.hear('@me 1\n"a"', 0.0)
    assert (process.checked, process.rules.received) == ([], 0)


def test_hear_others_with_and_without_origin(process: Process) -> None:
    process.connect()
    process.rules.hear('@other 1\n"a"\n["b", 1]', 0.0)
    process.rules.hear('"c"\r\n["orders" , 7]\r\n', 0.0)
    process.rules.hear("*", 0.0)
    assert process.checked == ["a", ("b", 1), "c", ("orders", 7), ALL]
    assert process.rules.received == 5


def test_hear_malformed_lines_are_counted_and_skipped(process: Process) -> None:
    process.connect()
    process.rules.hear('{"a":1}\n"good"\n[[[\nnope\n\n@late 1', 0.0)
    process.rules.hear("", 0.0)
    process.rules.hear("x" * 10**6, 0.0)
    process.rules.hear("\n".join(['"a"'] * 3000), 0.0)
    assert process.checked == ["good"]
    assert (process.rules.malformed, process.rules.received) == (6, 1)


@pytest.mark.parametrize("head", ["", "@somebody 1\n"])
def test_hear_malformed_among_keys_costs_no_key(process: Process, head: str) -> None:
    process.connect()
    process.rules.hear(f'{head}"a"\n[1\n*\n"b"', 0.0)
    assert process.checked[-3:] == ["a", "*", "b"]
    assert (process.rules.malformed, process.rules.received) == (1, 3)


def test_pause_grows_is_bounded_and_random() -> None:
    assert [pause(attempt, 1.0) for attempt in (1, 2, 3)] == [0.05, 0.1, 0.2]
    assert pause(10**6, 1.0) == LONGEST_PAUSE
    assert pause(5, 0.0) == pause(5, 1.0) / 2
