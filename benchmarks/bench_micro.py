"""python benchmarks/bench_micro.py -o micro.json: measure our single operations with pyperf, in CPU time.

Each operation is watched and completed by a check before the next one. Nobody awaits it, and 100,000 others are
pending. For comparison: asyncio's call_later() and cancel() in a loop without other timers.

bench_jvm.py has the same loops for Kafka's own classes.
"""

from __future__ import annotations

import asyncio
import gc
import random
from functools import cache
from time import process_time

import pyperf  # type: ignore[import-untyped]
from buses.member import FORM

from aiopurgatory import DelayedOperation, Purgatory

BLOCK = 1_000
OTHERS = 100_000

ready = False


class Plain(DelayedOperation[None]):
    """An operation without attributes of its own."""

    __slots__ = ()

    def try_complete(self) -> bool:
        return ready and self.force_complete()


class Constructed(Plain):
    """The same with a constructor of its own."""

    __slots__ = ()

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)


@cache
def new_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def waiting_purgatory(others: int) -> Purgatory:
    async def start() -> Purgatory:
        purgatory = Purgatory()
        await purgatory.start()
        for number in range(others):
            purgatory.watch(Plain(random.uniform(3000, 6000)), (number,))
        return purgatory

    purgatory = new_loop().run_until_complete(start())
    gc.collect()
    gc.freeze()
    return purgatory


def watch_and_complete(loops: int, keys_each: int, others: int, kind: type[Plain] = Plain) -> float:
    purgatory = waiting_purgatory(others)
    watched = keys_of_block(keys_each)

    async def run() -> float:
        global ready
        watch, check = purgatory.watch, purgatory.check_and_complete
        begin = process_time()
        for _ in range(loops):
            for keys in watched:
                watch(kind(30.0), keys)
                ready = True
                check(keys[0])
                ready = False
        return process_time() - begin

    return new_loop().run_until_complete(run())


def watch_with_timeout(loops: int, keys_each: int, others: int) -> float:
    """The same, but watch() is given the timeout."""
    purgatory = waiting_purgatory(others)
    watched = keys_of_block(keys_each)

    async def run() -> float:
        global ready
        watch, check = purgatory.watch, purgatory.check_and_complete
        begin = process_time()
        for _ in range(loops):
            for keys in watched:
                watch(Plain(), keys, timeout=30.0)
                ready = True
                check(keys[0])
                ready = False
        return process_time() - begin

    return new_loop().run_until_complete(run())


def keys_of_block(keys_each: int) -> list[tuple[str, ...]]:
    return [tuple(f"{i} {k}" for k in range(keys_each)) for i in range(BLOCK)]


def check_nobody(loops: int, others: int) -> float:
    check = waiting_purgatory(others).check_and_complete
    begin = process_time()
    for _ in range(loops * BLOCK):
        check("nobody waits here")
    return process_time() - begin


def call_later(loops: int) -> float:
    """The loop iteration counts as well, since the loop drops cancelled timers in it."""
    loop = new_loop()

    async def run() -> float:
        begin = process_time()
        for _ in range(loops):
            for _ in range(BLOCK):
                loop.call_later(30.0, print).cancel()
            await asyncio.sleep(0)
        return process_time() - begin

    return loop.run_until_complete(run())


def pass_on(command: list[str], args: object) -> None:
    """pyperf's workers are processes of their own."""
    command += ["--others", str(args.others)]  # type: ignore[attr-defined]


def main() -> None:
    runner = pyperf.Runner(add_cmdline_args=pass_on)
    runner.argparser.add_argument("--others", type=int, default=OTHERS)
    others = runner.parse_args().others

    def bench(operation: str, design: str, *function: object) -> None:
        metadata = {"operation": operation, "design": design, "pending": others, "form": FORM}
        runner.bench_time_func(f"{design}, {operation}", *function, inner_loops=BLOCK, metadata=metadata)

    bench("call_later + cancel", "asyncio", call_later)
    for keys_each in (1, 3, 10):
        name = f"watch + complete, {keys_each} key{'s' * (keys_each > 1)}"
        bench(name, "ours", watch_and_complete, keys_each, others)
        if keys_each < 10:
            bench(f"{name}, own constructor", "ours", watch_and_complete, keys_each, others, Constructed)
            bench(f"{name}, timeout to watch()", "ours", watch_with_timeout, keys_each, others)
    bench("check, nobody waits", "ours", check_nobody, others)


if __name__ == "__main__":
    main()
