"""Random programs of items and waiters: an item is put under a key, which is checked, and one of the waiters takes it.

A program is a list of moves. Each waiter has a random generator of its own, so that a program without some of its moves
goes on like before: shrink() leaves out what a failure does not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from aiopurgatory import DeadlineError, DelayedOperation, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

KEYS: Final = "abc"
#: Seconds. A program takes less than the long timeout; the rest at its end, less than the short one.
SHORT, LONG = 30.0, 1e6
REST: Final = 15.0

#: The name of a method of World, and its arguments.
Move: TypeAlias = tuple[Any, ...]


class Oops(Exception):  # noqa: N818
    """The error of a look."""


class Spec(NamedTuple):
    """A waiter to be made.

    Args:
        kind: a key of World.kinds.
        every: takes each item so many only, such as 2: those with an even number. 1: any; 0: none.
        fails: the chance that a look fails at a moment at which it may.
        puts: the chance that a look puts another item first, and checks its key within.
    """

    kind: str
    keys: str
    timeout: float | None
    every: int
    hands_out: bool
    options: dict[str, Any]
    fails: float
    puts: float
    seed: int


class Program(NamedTuple):
    """Args: options: of the Purgatory."""

    moves: list[Move]
    options: dict[str, Any]


class World:
    """The items, the waiters, and what has become of both."""

    def __init__(self, purgatory: Purgatory, clock: ManualClock) -> None:
        self.purgatory, self.clock = purgatory, clock
        self.queues: dict[str, list[int]] = {key: [] for key in KEYS}
        self.puts = self.looks = 0
        self.taken: list[int] = []
        self.waiters: list[Waiter] = []
        #: Checks of puts, to be made later.
        self.checks: list[tuple[str, str, int | None]] = []
        #: Looks may fail, and be cancelled.
        self.is_open = True
        self.wrong: list[str] = []

    # moves

    def wait(self, spec: Spec) -> None:
        KINDS[spec.kind](self, spec)

    def put(self, key: str, count: int, way: str, limit: int | None, is_late: bool) -> None:
        for _ in range(count):
            self.puts += 1
            self.queues[key].append(self.puts)
        self.checks.append((way, key, limit))
        if not is_late:
            self.check(-1)

    def check(self, back: int) -> None:
        if self.checks:
            way, key, limit = self.checks.pop(back % len(self.checks))
            getattr(self.purgatory, way)([key] if way == "check_each" else key, limit=limit)

    def leave(self, back: int) -> None:
        there = [waiter for waiter in self.waiters if waiter.may_leave and not waiter.task.done()]
        if there:
            there[back % len(there)].task.cancel()

    def call(self, method: str, *arguments: object) -> None:
        getattr(self.purgatory, method)(*arguments)

    def forget_looks(self) -> None:
        self.looks = 0

    async def run(self, iterations: int) -> None:
        for _ in range(iterations):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    # the end

    async def rest(self) -> None:
        """Let all come to an end that does, but for the long timeouts."""
        self.is_open = False
        while self.checks:
            self.check(0)
        await self.clock.settle()
        await self.clock.advance(REST)

    def judge(self) -> None:
        """Note what is wrong at rest (C5)."""
        check_invariants(self.purgatory)
        for waiter in self.waiters:
            if not waiter.task.done():
                if waiter.is_looking:
                    self.wrong.append(f"{waiter} still looks")
                found = [item for key in waiter.spec.keys for item in self.queues[key] if waiter.wants(item)]
                if found:
                    self.wrong.append(f"{waiter} would take {found}")

    def count(self) -> None:
        """Note the items that were lost or doubled."""
        there = sorted(self.taken + [item for queue in self.queues.values() for item in queue])
        if there != list(range(1, self.puts + 1)):
            self.wrong.append(f"of {self.puts} items, there are {there}")


class Waiter:
    """A task that waits for one item."""

    def __init__(self, world: World, spec: Spec) -> None:
        self.world, self.spec, self.random = world, spec, Random(spec.seed)
        self.number = len(world.waiters)
        self.looks = 0
        self.is_looking = False
        #: Its task may be cancelled without losing an item.
        self.may_leave = True
        world.waiters.append(self)
        self.task = asyncio.create_task(self.live())

    def __repr__(self) -> str:
        return f"<{self.number}: {self.spec.kind} {self.spec.keys}>"

    async def live(self) -> None:
        try:
            item = await self.wait()
        except (Oops, DeadlineError, PurgatoryClosedError):
            return
        if item is not None:
            self.world.taken.append(item)

    async def wait(self) -> int | None:
        """Wait for an item. Returns: None: it has come too late."""
        raise NotImplementedError

    def wants(self, item: int) -> bool:
        return self.spec.every > 0 and item % self.spec.every == 0

    def find(self) -> tuple[list[int], int] | None:
        """Return the first item that it wants, behind its queue."""
        for key in self.spec.keys:
            for item in self.world.queues[key]:
                if self.wants(item):
                    return self.world.queues[key], item
        return None

    def look(self) -> int | None:
        """Take an item, all at once."""
        self.begin_look()
        self.may_fail()
        item = self.take()
        if item is not None:
            try:
                self.may_fail()
            except Oops:
                self.put_back(item)
                raise
        return item

    def begin_look(self) -> None:
        self.looks += 1
        self.world.looks += 1
        if self.world.is_open and self.random.random() < self.spec.puts:
            way = self.random.choice(["check_and_complete", "notify", "check_each"])
            self.world.put(self.random.choice(KEYS), 1, way, 1, False)

    def take(self) -> int | None:
        found = self.find()
        if found is None:
            return None
        queue, item = found
        queue.remove(item)
        self.key = next(key for key, each in self.world.queues.items() if each is queue)
        return item

    def put_back(self, item: int) -> None:
        """Put back what it took. Some check that key, some forget it, some fail thereafter."""
        self.world.queues[self.key].insert(0, item)
        match self.random.randrange(8):
            case 0:
                self.world.purgatory.check_and_complete(self.key, limit=1)
            case 1:
                self.world.purgatory.notify(self.key, limit=1)

    def may_fail(self) -> None:
        """Looks fail while the program runs, but few first ones: then nothing would wait."""
        fails = self.spec.fails if self.looks > 1 else self.spec.fails / 4
        if self.world.is_open and self.random.random() < fails:
            raise Oops


class Function(Waiter):
    """Waits by wait_for(), with a function."""

    async def wait(self) -> int:
        spec = self.spec
        # Otherwise, what a check has found for it is lost if it is cancelled in that iteration: so its users write.
        self.may_leave = spec.hands_out or "every" in spec.options or "retry_on" in spec.options
        hand_out: dict[str, Any] = {"on_undelivered": self.put_back} if spec.hands_out else {}
        found = await self.world.purgatory.wait_for(
            self.read, list(spec.keys), timeout=spec.timeout, **hand_out, **spec.options
        )
        assert isinstance(found, int)
        return found

    def read(self) -> Any:
        return self.look()


class Awaited(Function):
    """Waits by wait_for(), with an ``async def``."""

    async def read(self) -> int | None:
        assert not self.is_looking
        self.is_looking = True
        self.begin_look()
        item = None
        try:
            await self.pause()
            self.may_fail()
            item = self.take()
            await self.pause()
            self.may_fail()
        except BaseException as exc:
            if isinstance(exc, asyncio.CancelledError) and self.spec.hands_out:
                self.world.wrong.append(f"{self}: a read of a hand-out was cancelled")
            if item is not None:
                self.put_back(item)
            if isinstance(exc, asyncio.CancelledError) and self.random.random() < 0.1:
                return None  # it swallows its cancellation
            if isinstance(exc, asyncio.CancelledError) and self.random.random() < 0.2:
                raise Oops from exc  # as some drivers do
            raise
        finally:
            self.is_looking = False
        return item

    async def pause(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 3, 6])):
            await asyncio.sleep(0)


class Following(Waiter):
    """Follows its keys, and takes nothing: a call passes it by."""

    async def wait(self) -> int | None:
        async for _ in self.world.purgatory.follow(list(self.spec.keys), self.read):
            self.world.looks += 1
        return None

    async def read(self, since: int | None) -> tuple[int, bool] | None:
        await asyncio.sleep(0)
        self.may_fail()
        return (self.looks + 1, True) if self.random.random() < 0.5 else None

    def wants(self, item: int) -> bool:
        return False


class Take(DelayedOperation[int | None]):
    """Takes an item when it is tried."""

    __slots__ = ("item", "waiter")

    def __init__(self, waiter: Taking) -> None:
        self.waiter = waiter
        self.item: int | None = None

    def try_complete(self) -> bool:
        self.item = self.waiter.look()
        return self.item is not None and self.force_complete()

    def on_complete(self) -> int | None:
        return self.item

    def on_undelivered(self, result: int | None) -> None:
        if result is not None:
            self.waiter.put_back(result)


class TakeLate(Take):
    """Takes an item when it completes."""

    __slots__ = ()

    def try_complete(self) -> bool:
        self.waiter.begin_look()
        self.waiter.may_fail()
        return self.waiter.find() is not None and self.force_complete()

    def on_complete(self) -> int | None:
        return None if self.expired else self.waiter.take()


class Carry(TakeLate):
    """Takes an item, and puts it under the next key, within the hook."""

    __slots__ = ()

    def on_complete(self) -> int | None:
        item, waiter = super().on_complete(), self.waiter
        if item is not None:
            key = KEYS[(KEYS.index(waiter.key) + 1) % len(KEYS)]
            waiter.world.queues[key].append(item)
            way = waiter.random.choice(["check_and_complete", "notify"])
            getattr(waiter.world.purgatory, way)(key, limit=1)
        return None


class Taking(Waiter):
    """Waits for an operation of its own."""

    operation: type[Take] = Take

    async def wait(self) -> int | None:
        return await self.world.purgatory.watch(self.operation(self), list(self.spec.keys), timeout=self.spec.timeout)


class TakingLate(Taking):
    operation = TakeLate


class Carrying(Taking):
    operation = Carry


KINDS: Final[dict[str, Callable[[World, Spec], Waiter]]] = {
    kind.__name__: kind for kind in (Function, Awaited, Taking, TakingLate, Carrying, Following)
}


class Writer:
    """Writes programs: a crowd of waiters comes first, because each newcomer looks by itself, and hides a lost call."""

    def __init__(self, seed: int | str) -> None:
        self.random = random = Random(seed)
        takers = [kind for kind in KINDS if kind != "Following"]
        self.kinds = random.choice([[*KINDS], [*takers], ["Awaited"], *([kind] for kind in takers)])
        self.keys = random.choice(["a", "ab", "ab", KEYS])
        #: How many keys the waiters of the crowd have, and the newcomers.
        self.sizes = random.choice([[1], [1, 2], [1, 1, 2, 3]])
        self.is_mixed = True
        self.late = random.choice([0.2, 0.6])
        self.fails = random.choice([0.0, 0.1, 0.4])
        self.puts = random.choice([0.0, 0.0, 0.0, 0.1])
        self.picky = random.choice([0.0, 0.0, 0.3])
        self.unlimited = random.choice([0.0, 0.0, 0.1])
        newcomers, leaves = random.choice([0, 0, 5, 30]), random.choice([0, 20, 40])
        if random.random() < 0.3:  # those in front wait for both keys, and may take the one's item for the other's call
            self.keys, self.sizes, self.is_mixed, self.late = "ab", [2, 2, 1], False, 0.6
            self.unlimited, newcomers, leaves = 0.0, 0, 0
        self.moves = ("wait", "put", "check", "leave", "advance", "call")
        self.weights = (newcomers, random.choice([20, 40]), 20, leaves, 3, 2)

    def write(self) -> Program:
        """Return a program of everything at random."""
        random = self.random
        crowd: list[Move] = [("wait", self.spec(place)) for place in range(random.randint(2, 12))]
        rest = [each for _ in range(random.randint(2, 12)) for each in (self.move(), self.iterations())]
        options = {"purge_interval": random.choice([0, 0, 3]), "turn_budget": random.choice([0.005, 0.005, 1e-9])}
        return Program([*crowd, ("run", 8), *rest], options)

    def write_queue(self) -> Program:
        """Return a program of hand-outs alone, all of one kind of item, with more of them than items."""
        self.kinds, self.fails, self.puts = ["Function", "Awaited"], 0.05, 0.0
        self.picky = self.unlimited = 0.0
        self.weights = (0, 50, 20, 10, 0, 0)
        crowd: list[Move] = [("wait", self.spec(place)._replace(hands_out=True)) for place in range(15)]
        rest = [each for _ in range(10) for each in (self.move(), self.iterations())]
        return Program([*crowd, ("run", 30), ("forget_looks",), *rest], {})

    def iterations(self) -> Move:
        return "run", self.random.choice([0, 0, 0, 1, 1, 2, 4, 8])

    def move(self) -> Move:
        random = self.random
        match random.choices(self.moves, self.weights)[0]:
            case "wait":
                return "wait", self.spec(random.randrange(3))
            case "put":
                count = random.choice([1, 1, 1, 1, 2, 3])
                limit = None if random.random() < self.unlimited else count
                way = random.choice(["check_and_complete", "notify", "check_each"])
                return "put", random.choice(self.keys), count, way, limit, random.random() < self.late
            case "advance":
                return "advance", random.choice([0.06, 0.3, 1.0, SHORT])
            case "call":
                key = random.choice(self.keys)
                calls: list[tuple[object, ...]] = [("expire_all",), ("purge",), ("fail_for_key", key, Oops())]
                calls += [("cancel_for_key", key), ("complete_for_key", key)]
                return "call", *random.choice([*calls, ("notify_all",)])
            case name:  # the oldest is called first
                return name, random.choice([0, 0, 0, 1, 2, 5])

    def spec(self, place: int) -> Spec:
        random = self.random
        size = random.choice(self.sizes) if self.is_mixed else self.sizes[min(place, len(self.sizes) - 1)]
        kind = random.choice(self.kinds)
        is_condition = kind in ("Function", "Awaited")
        hands_out = is_condition and random.random() < 0.7
        every = 1 if hands_out or random.random() >= self.picky else random.choice([0, 2, 3])
        choices: list[dict[str, Any]] = [{}, {}, {"retry_on": Oops}, {"every": LONG}]
        options = random.choice(choices) if is_condition else {}
        keys = "".join(random.sample(self.keys, min(size, len(self.keys))))
        timeout = random.choice([None, None, None, None, None, LONG, LONG, SHORT, 0.0])
        return Spec(kind, keys, timeout, every, hands_out, options, self.fails, self.puts, random.randrange(1 << 30))


class Result(NamedTuple):
    wrong: list[str]
    looks: int
    puts: int


async def play(program: Program) -> Result:
    """Play *program*, and let it come to rest."""
    loop = asyncio.get_running_loop()
    clock = ManualClock()
    purgatory = Purgatory(clock=clock, **program.options)
    world = World(purgatory, clock)
    loop.set_exception_handler(lambda _, context: note_report(world, context))
    async with purgatory:
        for name, *arguments in program.moves:
            moved: Coroutine[Any, Any, None] | None = getattr(world, name)(*arguments)
            if moved is not None:
                await moved
        await world.rest()
        world.judge()
        world.count()
    await clock.settle()
    if not world.wrong:
        world.count()
        world.wrong += [f"{waiter} is left" for waiter in world.waiters if not waiter.task.done()]
        for waiter in world.waiters:
            if waiter.task.done() and not waiter.task.cancelled() and waiter.task.exception() is not None:
                world.wrong.append(f"{waiter}: {waiter.task.exception()!r}")
    loop.set_exception_handler(None)
    return Result(world.wrong, world.looks, world.puts)


def note_report(world: World, context: dict[str, Any]) -> None:
    """Only errors of looks may be reported, whose tasks have left."""
    if not isinstance(context.get("exception"), Oops):
        world.wrong.append(f"reported: {context}")


async def shrink(program: Program) -> Program:
    """Leave out the moves that *program* does not need to end badly."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for place in reversed(range(len(program.moves))):
            less = program._replace(moves=program.moves[:place] + program.moves[place + 1 :])
            if (await play(less)).wrong:
                program, is_smaller = less, True
    return program
