"""Buses on an event loop in virtual time, and a network between them where every message can go wrong.

No I/O, and no real time: the loop jumps to its next timer. So thousands of faults take seconds, always the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiopurgatory.bus import engine
from aiopurgatory.bus.engine import Hear, Lost
from aiopurgatory.bus.missed import Entry
from aiopurgatory.bus.server import ServerBus

#: Seconds on the way, each way.
WAY = 0.001
#: Kept messages to read at a time.
PAGE = 3


@dataclass
class Fault:
    """A message is dropped, repeated or delayed, or delayed together with all after it on its connection, or swallowed
    with them.
    """

    kind: str = "none"
    #: The number of the message, over the whole network, from strike() on.
    number: int = -1
    seconds: float = 0.0


@dataclass
class Network:
    """The server, and its connections. It notes the kind of each message."""

    fault: Fault = field(default_factory=Fault)
    sent: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    is_silent: bool = False
    is_down: bool = False
    attempts: int = 0
    #: An acknowledgement comes before the echo, or after it.
    answer_way: float = WAY / 2
    #: Called with each message that the server gets.
    note: Callable[[str], object] = lambda message: None
    #: More seconds for each message, at random.
    delay: Callable[[], float] = lambda: 0.0
    #: How many messages with keys the server keeps, the messages that it has, and the life of its data.
    keeps: int = 0
    entries: list[Entry] = field(default_factory=list)
    life: int = 0

    def strike(self, fault: Fault) -> None:
        self.sent.clear()
        self.fault = fault

    def publish(self, message: str) -> None:
        self.note(message)
        if self.keeps:
            head, feed, body = message.partition("\n")
            before, own = self.entries[-1][0] if self.entries else "-", "-"
            if feed:
                own = f"1-{order(before) + 1}"
                self.entries = [*self.entries, (own, message)][-self.keeps :]
            message = f"{head} {before} {own}{feed}{body}"
        self.deliver(message)

    def deliver(self, message: str) -> None:
        for link in self.links[:]:
            if link.is_subscribed:
                link.listening.send("notification", link.hear, message)

    def go_down(self) -> None:
        self.is_down, self.life = True, self.life + 1
        for link in self.links[:]:
            link.lost(ConnectionResetError("down"))


def order(id_: str) -> int:
    return int(id_.partition("-")[2] or 0)


class Connection:
    """One direction of a connection: messages arrive in order."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.loop = asyncio.get_running_loop()
        self.is_open = True
        self.is_swallowing = False
        #: Nothing arrives before.
        self.until = 0.0
        self.way = WAY
        #: Seconds that each message takes, one after another.
        self.slowness = 0.0

    def send(self, what: str, arrive: Callable[..., object], *args: Any) -> None:
        fault = self.network.fault
        is_struck = len(self.network.sent) == fault.number
        self.network.sent.append(what)
        at = max(self.loop.time() + self.way + self.network.delay(), self.until) + self.slowness
        if is_struck:
            self.is_swallowing = fault.kind == "swallow"
            if fault.kind == "drop":
                return
            if fault.kind.startswith("delay"):
                at += fault.seconds
        if self.is_swallowing or self.network.is_silent:
            return
        if not is_struck or fault.kind != "delay one":
            self.until = at
        for _ in range(2 if is_struck and fault.kind == "repeat" else 1):
            self.loop.call_at(at, self._arrive, arrive, *args)

    def _arrive(self, arrive: Callable[..., object], *args: Any) -> None:
        if self.is_open:
            arrive(*args)


class Link(engine.Link):
    """Two connections. Three of their directions matter."""

    def __init__(self, engine: Engine, hear: Hear, lost: Lost) -> None:
        self.engine, self.hear, self.lost = engine, hear, lost
        self.network, self.life = engine.network, engine.network.life
        self.listening, self.publishing, self.answering = (Connection(self.network) for _ in range(3))
        self.answering.way = self.network.answer_way
        self.is_subscribed = False
        self.network.links.append(self)

    async def subscribe(self) -> None:
        confirmed = asyncio.get_running_loop().create_future()
        self.listening.send("subscription", self._subscribed, confirmed)
        await confirmed

    def _subscribed(self, confirmed: asyncio.Future[None]) -> None:
        self.is_subscribed = True
        self.listening.send("confirmation", _finish, confirmed)

    async def send(self, messages: list[str]) -> None:
        owed = []
        for message in (*self.engine.moved(self.life), *messages):
            acknowledged = asyncio.get_running_loop().create_future()
            owed.append(acknowledged)
            self.publishing.send("notify", self._publish, message, acknowledged)
        for acknowledged in owed:
            await acknowledged
        self.engine.acknowledged(self.life, messages[-1])

    def _publish(self, message: str, acknowledged: asyncio.Future[None]) -> None:
        self.network.publish(message)
        self.answering.send("acknowledgement", _finish, acknowledged)

    async def read(self, first: str) -> list[Entry]:
        answer: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()
        self.publishing.send("read", self._read, first, answer)
        return await answer

    def _read(self, first: str, answer: asyncio.Future[list[Entry]]) -> None:
        found = [entry for entry in self.network.entries if order(entry[0]) >= order(first)]
        self.answering.send("entries", _finish, answer, found[:PAGE])

    def abort(self) -> None:
        for connection in (self.listening, self.publishing, self.answering):
            connection.is_open = False
        if self in self.network.links:
            self.network.links.remove(self)


def _finish(future: asyncio.Future[Any], result: object = None) -> None:
    if not future.done():
        future.set_result(result)


class Engine:
    def __init__(self, network: Network) -> None:
        self.network = network
        #: Of the last acknowledgement: the life of the data, and the time; and the last message of ours that was kept.
        self.life, self.acknowledged_at = 0, 0.0
        self.kept: Entry | None = None

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> Link:
        self.network.attempts += 1
        if self.network.is_down:
            raise ConnectionRefusedError("down")
        link = Link(self, hear, lost)
        try:
            await link.subscribe()
        except BaseException:
            link.abort()
            raise
        return link

    def moved(self, life: int) -> list[str]:
        """If another server, which acknowledged messages, has kept more than this one: have everything checked."""
        heads = {id_: text.partition("\n")[0] for id_, text in self.network.entries}
        if self.kept is None or life == self.life or heads.get(self.kept[0]) == self.kept[1]:
            return []
        return [f"@ 0 0\n*{int((asyncio.get_running_loop().time() - self.acknowledged_at) * 999)}"]

    def acknowledged(self, life: int, message: str) -> None:
        self.life, self.acknowledged_at = life, asyncio.get_running_loop().time()
        head = message.partition("\n")[0]
        self.kept = next(((id_, head) for id_, text in self.network.entries if text == message), self.kept)

    def explain(self, exc: Exception) -> str:
        return repr(exc)


class Process:
    """A bus, and when it has last checked each key, and everything."""

    def __init__(self, network: Network, heartbeat: float, timeout: float) -> None:
        self.loop, self.network = asyncio.get_running_loop(), network
        replays = network.keeps > 0
        self.bus = ServerBus(Engine(network), [self], heartbeat=heartbeat, timeout=timeout, replays=replays)
        self.checks: list[tuple[Hashable, float]] = []

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        self.checks.append((key, self.loop.time()))

    def notify_all(self) -> None:
        self.checks.append(("*", self.loop.time()))

    def checked_after(self, key: Hashable, since: float) -> float:
        """Seconds from *since* to the next check of *key*, or of everything."""
        return min((at - since for what, at in self.checks if what in (key, "*") and at >= since), default=float("inf"))


@asynccontextmanager
async def fleet(count: int, heartbeat: float, timeout: float, **options: float) -> AsyncIterator[list[Process]]:
    """Start *count* processes on one network, and close them. Args: options: of the Network."""
    network = Network(**options)  # type: ignore[arg-type]
    processes = [Process(network, heartbeat, timeout) for _ in range(count)]
    async with AsyncExitStack() as stack:
        for process in processes:
            await stack.enter_async_context(process.bus)
        yield processes
