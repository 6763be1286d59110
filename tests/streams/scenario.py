"""Plays producers, writers, listeners and faults in virtual time, and checks the events of every listener."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiopurgatory import GoneError, NotFoundError
from aiopurgatory.errors import PurgatoryClosedError
from aiopurgatory.streams import EndedError, Event, EventLog, Run, StoreDownError, TopicExistsError
from aiopurgatory.streams.topic_state import number_in

from .simulated import SimulatedServer, SimulatedStore
from .virtual import VirtualLoop, play

LEASE = 3.0
WORKERS = 2
#: The topic that many write to, and the topics of runs.
MANY = "many"
RUNS = ("run 0", "run 1")
TOPICS = (*RUNS, MANY)

#: A name, and its arguments. Numbers choose among the existing objects.
Step = tuple[Any, ...]


class FailedError(Exception):
    """The exception of a producer that fails."""


@dataclass
class Producer:
    store: SimulatedStore
    task: asyncio.Task[None]
    orders: asyncio.Queue[str]
    acknowledged: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Listener:
    topic: str
    log: EventLog
    #: The id of the last event.
    after: str | None
    #: The events since it was last told that something is gone, and the id before the first of them.
    start: str | None = None
    events: list[Event] = field(default_factory=list)
    told: int = 0
    finished_at: float | None = None
    task: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        while True:
            try:
                async for event in self.log.follow(self.topic, self.after):
                    self.events.append(event)
                    self.after = event.id
                self.finished_at = asyncio.get_running_loop().time()
                return
            except GoneError as exc:
                self.after = exc.after
                self.told += 1
            except NotFoundError:
                pass
            self.start, self.events = self.after, []
            await asyncio.sleep(0.1)


class Scenario:
    """Args: seed: of the times that messages take. options: of the logs."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.random = Random(seed)
        self.server = SimulatedServer()
        self.options = {"unknown_timeout": 5.0, **options}
        self.stores: list[SimulatedStore] = []
        self.logs = [self.new_log() for _ in range(WORKERS)]
        self.producers: list[Producer] = []
        self.listeners: list[Listener] = []
        #: The acknowledged events: their texts by their ids.
        self.ids: dict[str, str] = {}
        self.snapshots: list[Any] = [self.server.snapshot()]
        self.tasks: set[asyncio.Task[Any]] = set()
        self.written = 0
        #: When the server lost something last.
        self.lost_at = 0.0
        self.slept_at = 0.0

    def new_log(self) -> EventLog:
        store = SimulatedStore(self.server, self.random)
        self.stores.append(store)
        return EventLog(store, **self.options)

    def begin_task(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        return task

    async def play(self, steps: list[Step]) -> None:
        for log in self.logs:
            await log.start()
        for name, *arguments in steps:
            if name == "wait":
                await asyncio.sleep(*arguments)
            else:
                getattr(self, name)(*arguments)
                await asyncio.sleep(self.random.random() / 20)
        await self.settle()

    # steps

    def begin(self, topic: int, resume: bool) -> None:
        log = self.new_log()
        name, orders = f"p{len(self.producers)}", asyncio.Queue[str]()
        run = log.run(RUNS[topic % len(RUNS)], lease=LEASE, resume=resume)
        producer = Producer(self.stores[-1], self.begin_task(self.produce(name, run, orders)), orders)
        self.producers.append(producer)

    async def produce(self, name: str, run: Run, orders: asyncio.Queue[str]) -> None:
        count = 0
        try:
            async with run:
                try:
                    self.server.living[run._producer] = run
                    while (order := await orders.get()) != "leave":
                        if order == "fail":
                            raise FailedError
                        count += 1
                        text = f"{name}:{count}"
                        made = await run.append(text)
                        self.acknowledge(run.topic, made, text)
                finally:
                    self.server.living.pop(run._producer, None)
        except (EndedError, TopicExistsError, StoreDownError, FailedError, PurgatoryClosedError):
            pass

    def acknowledge(self, topic: str, made: str, text: str) -> None:
        self.ids.setdefault(made, text)
        assert (number_in(made), f"\n{text}") in self.server.ever[topic], f"{topic}: {text!r} is not number {made}"

    def append(self, producer: int) -> None:
        if self.producers:
            self.producers[producer % len(self.producers)].orders.put_nowait("append")

    def leave(self, producer: int, how: str) -> None:
        if self.producers:
            left = self.producers[producer % len(self.producers)]
            if how == "cancel":
                left.task.cancel()
            elif how == "kill":
                left.store.is_down = True
                left.task.cancel()
            else:
                left.orders.put_nowait(how)

    def write(self, worker: int) -> None:
        self.written += 1
        text = f"w{self.written}:1"
        self.begin_task(self.write_it(self.logs[worker % WORKERS], text))

    async def write_it(self, log: EventLog, text: str) -> None:
        with suppress(EndedError, StoreDownError):
            self.acknowledge(MANY, await log.append(MANY, text, id=text), text)

    def end(self, topic: int, worker: int) -> None:
        self.begin_task(self.end_it(TOPICS[topic % len(TOPICS)], self.logs[worker % WORKERS]))

    async def end_it(self, topic: str, log: EventLog) -> None:
        with suppress(EndedError, StoreDownError):
            await log.end(topic, "ended")

    def listen(self, topic: int, worker: int, after: int | None) -> None:
        known = list(self.ids)[after % len(self.ids)] if after is not None and self.ids else None
        listener = Listener(TOPICS[topic % len(TOPICS)], self.logs[worker % WORKERS], known, known)
        listener.task = self.begin_task(listener.listen())
        self.listeners.append(listener)

    def come_back(self, listener: int, worker: int) -> None:
        if self.listeners:
            again = self.listeners[listener % len(self.listeners)]
            if again.task is not None and not again.task.done():
                again.task.cancel()
                again.log = self.logs[worker % WORKERS]
                again.task = self.begin_task(again.listen())

    def fault(self, store: int, kind: str) -> None:
        if len(faults := self.stores[store % len(self.stores)].faults) < 2:
            faults.append(kind)

    def outage(self, seconds: float) -> None:
        self.server.is_down = True
        asyncio.get_running_loop().call_later(seconds, self.come_up)

    def come_up(self) -> None:
        self.server.is_down = False
        self.tell_all(0.2)

    def tell_all(self, seconds: float) -> None:
        """Each bus notices within so many seconds that it may have lost messages."""
        for store in self.stores:
            asyncio.get_running_loop().call_later(self.random.random() * seconds, store.notice)

    def partition(self, worker: int, seconds: float) -> None:
        store = self.stores[worker % WORKERS]
        store.is_down = store.is_deaf = True
        asyncio.get_running_loop().call_later(seconds, self.rejoin, store)

    def rejoin(self, store: SimulatedStore) -> None:
        store.is_down = store.is_deaf = False
        store.notice()

    def copy(self) -> None:
        self.snapshots.append(self.server.snapshot())

    def fail_over(self, snapshot: int, seconds: float, is_told: bool = True) -> None:
        """Args: is_told: if not, only writers can notice, who read back less than was acknowledged to them."""
        self.lost_at = asyncio.get_running_loop().time()
        (self.server.fail_over if is_told else self.server.lose)(self.snapshots[snapshot % len(self.snapshots)])
        self.tell_all(seconds)

    def lose(self, before: int, lost: int, after: int, seconds: float) -> None:
        """Copy the server, lose the next writes, and write more."""
        self.begin_task(self.lose_some(before, lost, after, seconds))

    async def lose_some(self, before: int, lost: int, after: int, seconds: float) -> None:
        await self.write_some(before)
        copied = len(self.snapshots)
        self.copy()
        await self.write_some(lost)
        self.fail_over(copied, seconds)
        await self.write_some(after)

    async def write_some(self, count: int) -> None:
        for number in range(count):
            self.append(0)
            self.append(len(self.producers) - 1)
            self.write(number)
        await asyncio.sleep(0.3)

    def delete(self, topic: int) -> None:
        self.lost_at = asyncio.get_running_loop().time()
        self.server.delete(TOPICS[topic % len(TOPICS)])
        self.tell_all(0.1)

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep, but not twice within a lease: readers could not tell that a producer lives."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if loop.now > self.slept_at + LEASE:
            loop.now += seconds
            self.slept_at = loop.now

    # the end

    async def settle(self) -> None:
        """Heal everything, end every topic, and check the listeners' events."""
        await asyncio.sleep(1.0)
        self.server.is_down = False
        for store in self.stores:
            store.faults.clear()
            if store in self.stores[:WORKERS]:
                self.rejoin(store)
            store.notice()
        await asyncio.sleep(3 * LEASE)
        for producer in self.producers:
            producer.task.cancel()
        await asyncio.sleep(2 * LEASE)
        there = [topic for topic in TOPICS if self.server.truth.get(topic)]
        for topic in there:
            await self.end_it(topic, self.logs[0])
        self.tell_all(0.1)
        await asyncio.sleep(2 * LEASE)
        for listener in self.listeners:
            if listener.topic in there:
                self.check(listener)
        for task in self.tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        for log in self.logs:
            assert log.statistics().listeners == log.statistics().topics == log.statistics().window_bytes == 0
            await log.aclose()

    def check(self, listener: Listener) -> None:
        assert listener.task is not None
        got = [(number_in(event.id), f"{event.name or ''}\n{event.data}") for event in listener.events]
        truth = self.server.truth[listener.topic]
        assert [number for number, _ in got] == list(range(got[0][0], got[0][0] + len(got))) if got else True
        assert listener.task.done(), f"{listener.topic}: a listener waits for what comes after {listener.after}"
        if listener.task.cancelled() or listener.task.exception() is not None:
            listener.task.result()
        assert listener.finished_at is not None
        if listener.finished_at < self.lost_at + 0.2:  # it had its end before that was lost
            assert set(got) <= self.server.ever[listener.topic]
            return
        if not listener.told and listener.start is not None:
            kept = truth.get(number_in(listener.start))
            assert kept == f"\n{self.ids[listener.start]}", f"{listener.topic}: {listener.start} was lost, and not told"
        first = number_in(listener.start) + 1 if listener.start is not None or listener.topic != MANY else None
        if first is None:
            first = got[0][0]
        expected = [(number, text) for number, text in truth.items() if number >= first]
        assert got == expected, f"{listener.topic}: after {listener.start}, {got} and not {expected}"
        if not self.lost_at and "keep_events" not in self.options and listener.start is None:
            assert not listener.told, f"{listener.topic}: gone, though nothing was lost"


def run_scenario(seed: int, steps: list[Step], **options: Any) -> None:
    """Play *steps* in virtual time. Raises: AssertionError: a rule is broken."""

    random.seed(seed)  # of pauses

    async def main() -> None:
        await Scenario(seed, **options).play(steps)

    play(main())
