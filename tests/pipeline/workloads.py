"""Journals of services with one fault each, recorded by the library itself. Their minutes pass on a virtual clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.journal import Journal, journal
from aiopurgatory.testing import ManualClock

from .journals import NOON

MINUTES = 6


class Fetch(DelayedOperation[None]):
    """Completes when it is told to."""

    is_ready = False

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()


class Order(Fetch):
    """Another class of them."""


class Service:
    """A purgatory on a virtual clock, and tasks that use it."""

    def __init__(self, purgatory: Purgatory, clock: ManualClock) -> None:
        self.purgatory, self.clock, self.random = purgatory, clock, random.Random(5)
        self.tasks: set[asyncio.Task[Any]] = set()
        #: What is due at a time, in seconds.
        self.due: dict[int, list[Callable[[], object]]] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def fetch(
        self,
        key: object,
        after: float | None,
        timeout: float | None = 30.0,
        *,
        told: bool = True,
        kind: type[Fetch] = Fetch,
    ) -> Fetch:
        """Watch an operation that is ready *after* some seconds. Its key is checked then, if it is *told*."""
        op = self.purgatory.watch(kind(timeout), [key])

        def ready() -> None:
            op.is_ready = True
            if told:
                self.purgatory.check_and_complete(key)

        if after is not None:
            self.at(after, ready)
        return op

    def at(self, after: float, call: Callable[[], object]) -> None:
        self.due.setdefault(round((self.clock.time() + after) * 10), []).append(call)

    async def tick(self) -> None:
        """A tenth of a second passes."""
        await self.clock.advance(0.1)
        for call in self.due.pop(round(self.clock.time() * 10), []):
            call()

    def block(self, seconds: float) -> None:
        """Time passes while the loop stands still."""
        self.clock._now += round(seconds * 1e9)


Step = Callable[[Service, int], None]


def record(folder: Path, step: Step) -> None:
    """Write a journal to *folder*: a *step* in each tenth of a second, with the number of the step."""
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(_record(folder, step, patch))


async def _record(folder: Path, step: Step, patch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    now = {"time": lambda: NOON.timestamp() + clock.time(), "monotonic": clock.time}
    patch.setattr(journal, "time", SimpleNamespace(strftime=time.strftime, gmtime=time.gmtime, **now))
    # Its task looks at the clock each 20 ms of real time: a shorter time than settle() needs would keep that busy.
    written = Journal(folder, keep_keys=True, snapshot_seconds=0.02, rows_per_file=1_000_000)
    written._time = now["time"]
    async with written, Purgatory("fetch", clock=clock, observers=[written]) as purgatory:
        service = Service(purgatory, clock)
        for number in range(MINUTES * 600):
            step(service, number)
            await service.tick()
            if number % 100 == 0:
                await asyncio.sleep(0.025)
        for task in service.tasks:
            task.cancel()
        await asyncio.gather(*service.tasks, return_exceptions=True)
        await asyncio.sleep(0.025)


def healthy(service: Service, number: int) -> None:
    """Twenty operations a second. Most are answered within a second, and some expire."""
    for n in range(2):
        never = service.random.random() < 0.05
        service.fetch(f"topic-{(2 * number + n) % 97}", None if never else service.random.uniform(0.1, 1.2), 1.5)


def leak(service: Service, number: int) -> None:
    """Two of four operations never end. They are no tasks, since settle() visits all tasks in each step."""
    healthy(service, number)
    for _ in range(2):
        service.fetch(f"gone-{number}", None, None)


def timeout_too_short(service: Service, number: int) -> None:
    for n in range(2):
        service.fetch(f"topic-{(2 * number + n) % 97}", service.random.uniform(0.1, 4.0), 0.5)


def timeout_too_long(service: Service, number: int) -> None:
    for n in range(2):
        never = service.random.random() < 0.1
        service.fetch(f"topic-{(2 * number + n) % 97}", None if never else service.random.uniform(0.1, 0.3), 30.0)


def coarse_keys(service: Service, number: int) -> None:
    """Two hundred wait for a row each, all under the key of the table. An event changes one row."""
    rows: set[int] = service.__dict__.setdefault("rows", set())

    async def wait(row: int) -> None:
        async def read() -> bool:
            return row in rows

        await service.purgatory.wait_for(read, ["rows"], timeout=600.0)

    if number == 0:
        for row in range(200):
            service.spawn(wait(row))
    if number % 10 == 5:
        rows.add(number // 10)
        service.purgatory.check_and_complete("rows")
        service.spawn(wait(200 + number // 10))


def coarse_operations(service: Service, number: int) -> None:
    """The same with operations."""
    waiting: list[Fetch] = service.__dict__.setdefault("waiting", [])
    while len(waiting) < 200:
        waiting.append(service.fetch("rows", None, 600.0))
    if number % 10 == 5:
        waiting.pop(0).is_ready = True
        service.purgatory.check_and_complete("rows")


def hot_key(service: Service, number: int) -> None:
    for _ in range(2):
        key = "main" if service.random.random() < 0.6 else f"topic-{service.random.randrange(500)}"
        service.fetch(key, service.random.uniform(0.1, 1.0), 5.0)


def pauses(service: Service, number: int) -> None:
    healthy(service, number)
    if number in (1_700, 1_750):
        service.block(3.0)


def missed_checks(service: Service, number: int) -> None:
    """Each tenth of the news of orders is not told."""
    healthy(service, number)
    told = service.random.random() < 0.9
    service.fetch(("order", number), service.random.uniform(0.1, 1.0), 30.0, told=told, kind=Order)


def keys_of_another_type(service: Service, number: int) -> None:
    """Integers are watched. One of two writers checks strings."""
    healthy(service, number)
    op = service.fetch(number, None, 1.5)

    def ready() -> None:
        op.is_ready = True
        service.purgatory.check_and_complete(number if number % 2 else str(number))

    service.at(0.4, ready)
