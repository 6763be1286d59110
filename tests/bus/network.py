"""A naive network between rules: a server that forwards messages, links that lose some, and virtual time.

Every delivery, loss and loss of an acknowledgement is a step of its own, in a random order.
The audit is always the same: nobody stays parked although its key moved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random

from aiopurgatory.bus.exchange import Exchange
from aiopurgatory.bus.gaps import Pace
from aiopurgatory.bus.keys import encode
from aiopurgatory.bus.targets import Target, Targets

HEARTBEAT = 10.0
TIMEOUT = 10.0
PACE = Pace(HEARTBEAT, TIMEOUT)
KEYS: list[Hashable] = ["a", "b", ("c", 1), ("c", 2)]


def targets(target: Target) -> Targets:
    """Of an exchange. An exception of *target* fails the test."""

    def fail(exc: BaseException) -> None:
        raise exc

    return Targets([target], fail)


class Member:
    """A process: its exchange, and for each key the version that its waiters saw when they were last checked.

    A check with a limit wakes so many waiters, of which each takes one version.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.seen = dict.fromkeys(KEYS, 0)
        self.exchange = Exchange(name, targets(self), PACE)
        self.is_linked = False
        self.is_subscribed = False
        #: The server has subscribed it, but it does not know yet.
        self.is_deaf = self.is_mute = False
        self.incoming: list[str] = []
        self.outgoing: list[str] = []
        self.is_sending = False
        self.is_acknowledged = False

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        version = self.network.versions[key]
        self.seen[key] = version if limit is None else min(version, self.seen[key] + limit)

    def notify_all(self) -> None:
        self.seen.update(self.network.versions)

    def subscribe(self) -> None:
        """The server has the subscription; the confirmation is on its way."""
        self.is_linked, self.is_deaf, self.is_mute, self.is_sending = True, False, False, False

    def confirm(self) -> None:
        self.is_subscribed = True
        self.exchange.confirmed(self.network.now)

    def break_off(self) -> None:
        self.incoming.clear()
        self.outgoing.clear()
        was_subscribed, self.is_linked, self.is_subscribed = self.is_subscribed, False, False
        if was_subscribed:
            self.exchange.broken(self.network.now)

    def cut(self) -> None:
        """The network resets the link."""
        self.break_off()

    def send(self) -> None:
        if self.is_subscribed and not self.is_sending:
            messages = self.exchange.messages(self.network.now)
            if messages:
                self.is_sending = True
                self.is_acknowledged = False
                self.outgoing += [] if self.is_mute else messages

    def forward(self) -> None:
        """The server takes the sent bytes, all or a part of them."""
        if self.outgoing:
            self.network.forward(self.outgoing.pop(0))
            self.is_acknowledged = not self.outgoing

    def acknowledge(self) -> None:
        if self.is_sending and self.is_acknowledged:
            self.is_sending = False
            self.exchange.acknowledged(self.network.now)

    def hear(self) -> None:
        if self.incoming:
            self.exchange.hear(self.incoming.pop(0), self.network.now)

    def tick(self) -> None:
        self.exchange.tick(self.network.now)
        if self.is_subscribed and self.exchange.echo.is_overdue(self.network.now):
            self.break_off()


class Hiding(Member):
    """Without R4: the client library reconnects by itself, and the rules are not told."""

    def cut(self) -> None:
        self.incoming.clear()
        self.is_deaf = self.is_mute = False


class Network:
    """Args: seed: of everything at random. member: the class of its members."""

    def __init__(self, seed: int, member: type[Member] = Member) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.is_down = False
        self.versions = dict.fromkeys(KEYS, 0)
        self.members = [member(self, f"p{number}") for number in range(3)]

    def forward(self, message: str) -> None:
        for member in self.members:
            if member.is_linked and not member.is_deaf:
                member.incoming.append(message)

    def step(self) -> None:
        random = self.random
        member = random.choice(self.members)
        # Short against the timeout: frequent false gaps would hide the effect of the rule under test.
        self.now += random.choice((0.0, 0.0, 0.01, 0.1))
        member.tick()
        if not member.is_linked:
            if not self.is_down and random.random() < 0.3:
                member.subscribe()
        elif not member.is_subscribed:
            member.confirm()
        else:
            random.choice((member.send, member.forward, member.acknowledge, member.hear))()
        if random.random() < 0.2:
            key = random.choice(KEYS)
            self.versions[key] += 1
            limit = 1 if self.versions[key] % 8 else None
            member.exchange.publish(key, encode(key), self.now, limit)
        if random.random() < 0.02:
            self.fault(member)

    def fault(self, member: Member) -> None:
        match self.random.choice(("cut", "deaf", "mute", "down", "up")):
            case "cut":
                member.cut()
            case "deaf":
                member.is_deaf = True
            case "mute":
                member.is_mute = True
            case "down":
                self.is_down = True
                for each in self.members:
                    each.break_off()
            case "up":
                self.is_down = False

    def settle(self) -> None:
        """No more faults and events. Deaf or mute members stay so until their rules notice."""
        self.is_down = False
        until = self.now + 5 * (HEARTBEAT + TIMEOUT)
        while self.now < until:
            for _ in range(8):
                for member in self.members:
                    self.advance(member)
            self.now += 2.5

    def advance(self, member: Member) -> None:
        """Let *member* do everything it can do now."""
        if not member.is_linked:
            member.subscribe()
        elif not member.is_subscribed:
            member.confirm()
        else:
            member.send()
            member.forward()
            member.acknowledge()
            while member.incoming:
                member.hear()
            member.tick()

    def parked_although_its_key_moved(self) -> int:
        return sum(member.seen[key] != self.versions[key] for member in self.members for key in KEYS)


def stuck(seeds: Iterable[int], member: type[Member] = Member) -> int:
    """Return how many waiters are stuck in the end, over all *seeds*."""
    found = 0
    for seed in seeds:
        network = Network(seed, member)
        for _ in range(300):
            network.step()
        network.settle()
        found += network.parked_although_its_key_moved()
    return found
