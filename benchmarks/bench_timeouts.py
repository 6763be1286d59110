"""python benchmarks/bench_timeouts.py --compiled build/compiled --json timeouts.json: timeouts for blocks of code.

    cost    CPU ns to enter and leave `async with timeout(30)` around nothing. The loop iterates after every 1,000,
            where asyncio and uvloop drop cancelled timers
    traced  bytes of a timeout as its block waits, by tracemalloc: the difference between 10,000 tasks with and without

Competitors are asyncio's own, and anyio's, if installed. With --compiled, both forms of ours
are measured, otherwise the one on the path. Prints a line of JSON for each, round by round, then the targets, and
medians with their ranges. Each figure comes from a process of its own, in turns, so the ratios compare runs side by
side. A cost is the median of 100 batches.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from buses.member import FORM, calm_the_collector, loop_factory
from rounds import child, chosen, parser_of, printing, turns
from tables.machine import Printer

from aiopurgatory import Purgatory

Line = dict[str, Any]

SOURCES = Path(__file__).resolve().parents[1] / "src"
PACKAGES = ["aiopurgatory", "uvloop", "anyio"]
SECONDS = 30.0
BLOCK = 1_000


@dataclass(frozen=True)
class Size:
    rounds: int = 5
    batches: int = 100
    parked: int = 10_000
    loops: tuple[str, ...] = ("asyncio", "uvloop")


SMOKE = Size(rounds=1, batches=2, parked=200, loops=("asyncio",))


class Ours:
    async def enter(self, purgatory: Purgatory) -> None:
        for _ in range(BLOCK):
            async with purgatory.timeout(SECONDS):
                pass

    async def wait(self, purgatory: Purgatory, event: asyncio.Future[None]) -> None:
        async with purgatory.timeout(SECONDS):
            await event


class OfAsyncio:
    async def enter(self, purgatory: Purgatory) -> None:
        for _ in range(BLOCK):
            async with asyncio.timeout(SECONDS):  # noqa: ASYNC100 that is measured
                pass

    async def wait(self, purgatory: Purgatory, event: asyncio.Future[None]) -> None:
        async with asyncio.timeout(SECONDS):
            await event


class Anyio:
    def __init__(self) -> None:
        from anyio import fail_after

        self.fail_after = fail_after

    async def enter(self, purgatory: Purgatory) -> None:
        for _ in range(BLOCK):
            with self.fail_after(SECONDS):
                pass

    async def wait(self, purgatory: Purgatory, event: asyncio.Future[None]) -> None:
        with self.fail_after(SECONDS):
            await event


class Without:
    """No timeout at all."""

    async def enter(self, purgatory: Purgatory) -> None:
        for _ in range(BLOCK):
            pass

    async def wait(self, purgatory: Purgatory, event: asyncio.Future[None]) -> None:
        await event


COMPETITORS: dict[str, Callable[[], Any]] = {
    "without": Without,
    "ours": Ours,
    "asyncio": OfAsyncio,
    "anyio": Anyio,
}


# in a child process


async def cost(competitor: Any, size: Size) -> float:
    """CPU ns."""
    spent = []
    async with Purgatory() as purgatory:
        await competitor.enter(purgatory)
        await asyncio.sleep(0)
        calm_the_collector()
        for _ in range(size.batches):
            begin = process_time()
            await competitor.enter(purgatory)
            await asyncio.sleep(0)
            spent.append(process_time() - begin)
    return median(spent) / BLOCK * 1e9


async def traced(competitor: Any, size: Size) -> float:
    """Bytes for each task, with all that it holds."""
    async with Purgatory() as purgatory:
        event = asyncio.get_running_loop().create_future()
        tracemalloc.start()
        first = asyncio.create_task(competitor.wait(purgatory, event))
        await asyncio.sleep(0.01)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        tasks = [asyncio.create_task(competitor.wait(purgatory, event)) for _ in range(size.parked)]
        await asyncio.sleep(0.01)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        event.set_result(None)
        await asyncio.gather(first, *tasks)
    return grown / size.parked


MEASURES: dict[str, Callable[[Any, Size], Coroutine[Any, Any, float]]] = {"cost": cost, "traced": traced}


def measured_here(what: str, competitor: str, loop: str, size: Size) -> Line:
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        value = runner.run(MEASURES[what](COMPETITORS[competitor](), size))
    return {"value": value, "form": FORM}


# in the parent


def apart(library: Path | None, what: str, competitor: str, loop: str, size: Size) -> Line:
    found: Line = child([__file__, "--one", json.dumps([what, competitor, loop, asdict(size)])], library)
    return found


def measure(size: Size, libraries: Sequence[Path | None], told: Printer) -> None:
    names = [name for name in COMPETITORS if name != "anyio" or find_spec(name)]
    for number in range(size.rounds):
        for library in libraries:
            for loop in filter(find_spec, size.loops):
                for what in MEASURES:
                    found = {name: apart(library, what, name, loop, size) for name in turns(names, number)}
                    told.lines({"round": number, **line} for line in lines_of(what, loop, found))


def lines_of(what: str, loop: str, found: dict[str, Line]) -> Iterator[Line]:
    """The cost of each timeout over none."""
    without = found["without"]["value"]
    for name, line in found.items():
        if name != "without":
            yield {"what": what, "competitor": name, "loop": loop, **line, "value": line["value"] - without}


def main() -> None:
    args = parser_of(__doc__, Size.rounds).parse_args()
    if args.one:
        what, competitor, loop, size = args.one
        print(json.dumps(measured_here(what, competitor, loop, Size(**size))))
        return
    libraries = [Path(args.compiled), SOURCES] if args.compiled else [None]
    with printing("timeouts", args, PACKAGES) as told:
        measure(chosen(args, Size(), Size(rounds=1), SMOKE), libraries, told)


if __name__ == "__main__":
    main()
