"""A fixed number of grants, handed out by operations that complete, expire and are cancelled at random, in one turn.

In any order of events: no grant is lost, none is handed out twice.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

GRANTS = 3
OPERATIONS = 12_500  # of a run; 100,000 over the parameters and both loops
RECENT = 12  # cancel and reschedule operations that are about to get their grant


class Take(DelayedOperation[int | None]):
    """Waits for a grant; None if time ran out."""

    __slots__ = ("run",)

    def __init__(self, run: Run, timeout: float) -> None:
        super().__init__(timeout)
        self.run = run

    def try_complete(self) -> bool:
        return bool(self.run.free) and self.force_complete()

    def on_complete(self) -> int | None:
        return None if self.expired else self.run.free.pop()

    def on_undelivered(self, result: int | None) -> None:
        if result is not None:
            self.run.returned += 1
            self.run.release(result)


class Run:
    """Grants are free, taken, or on their way to a task."""

    def __init__(self, purgatory: Purgatory, clock: ManualClock, seed: int) -> None:
        self.purgatory = purgatory
        self.clock = clock
        self.rng = random.Random(seed)
        self.free = list(range(GRANTS))
        self.taken: dict[Take, int] = {}
        self.ops: list[Take] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.returned = 0

    async def take(self) -> None:
        op = Take(self, self.rng.choice([0.0, 0.001, 0.025, 60.0]))
        self.ops.append(op)
        self.purgatory.watch(op, ["grants"] if self.rng.random() < 0.5 else ["other", "grants"])
        await self.share(op)

    async def share(self, op: Take) -> None:
        grant = await op
        if grant is not None:
            self.taken[op] = grant  # two tasks may share one operation, and its grant

    async def join(self, op: Take) -> None:
        if not op.done():
            await self.share(op)

    def release(self, grant: int) -> None:
        self.free.append(grant)
        checks = self.purgatory.check_and_complete, self.purgatory.notify
        self.rng.choice((*checks, self.purgatory.notify_threadsafe))("grants")

    def step(self) -> None:
        """One thing; others follow in the same turn."""
        op = self.rng.choice(self.ops[-RECENT:])
        match self.rng.randrange(10):
            case 0 | 1 | 2:
                self.tasks.append(asyncio.create_task(self.take()))
            case 3:
                self.tasks.append(asyncio.create_task(self.join(op)))
            case 4 | 5 if self.taken:
                self.release(self.taken.pop(self.rng.choice(list(self.taken))))
            case 6 | 7:
                self.rng.choice(self.tasks[-RECENT:]).cancel()
            case 8:
                op.cancel()
            case 9:
                self.purgatory.reschedule(op, self.rng.choice([0.0, 0.002, 60.0]))

    async def settle(self) -> None:
        """Everybody ends, and every grant is accounted for."""
        await self.clock.advance(61.0)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert sorted([*self.free, *self.taken.values()]) == list(range(GRANTS))
        assert self.purgatory.num_delayed == 0
        check_invariants(self.purgatory)
        del self.ops[:-1], self.tasks[:-1]


@pytest.mark.parametrize("purge_interval", [0, 5])
@pytest.mark.parametrize("seed", [1, 2])
async def test_grants_random_schedules_are_conserved(clock: ManualClock, seed: int, purge_interval: int) -> None:
    async with Purgatory(clock=clock, purge_interval=purge_interval) as purgatory:
        run = Run(purgatory, clock, seed)
        started = 0
        while started < OPERATIONS:
            run.tasks.append(asyncio.create_task(run.take()))
            await asyncio.sleep(0)
            for _ in range(40):
                for _ in range(run.rng.randrange(8)):
                    run.step()
                await (asyncio.sleep(0) if run.rng.random() < 0.9 else clock.advance(0.001))
            started += len(run.ops)
            await run.settle()
        ended = purgatory.statistics()
    # Each way was taken many times.
    assert min(ended.completed, ended.expired, ended.cancelled, run.returned) > 50
