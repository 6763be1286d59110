"""python -m buses.alone gap|turn|reads SETTINGS: measure within one process. Prints a line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import aiopurgatory
from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.web import LongPolling, Policy

from .member import calm_the_collector, loop_factory
from .servers import Proxy, bus_on


class Noting:
    """A target that notes when everything was checked."""

    def __init__(self) -> None:
        self.checked = asyncio.Event()

    def notify(self, key: object) -> None:
        pass

    def notify_all(self) -> None:
        self.checked.set()


async def gap(settings: dict[str, Any]) -> dict[str, Any]:
    """Deafen several idle buses, each at another point of its heartbeat. Busy ones would notice sooner."""

    async def notice(number: int) -> float:
        target = Noting()
        async with Proxy(settings["port"]) as proxy:
            url = settings["url"].replace(str(settings["port"]), str(proxy.port))
            async with bus_on(url, [target], heartbeat=settings["heartbeat"], timeout=settings["timeout"]):
                await asyncio.sleep(settings["heartbeat"] * (1 + (number + 0.5) / settings["times"]))
                target.checked.clear()
                assert proxy.deafen() == 1
                start = time.monotonic()
                await target.checked.wait()
                return time.monotonic() - start

    return {"noticed_s": sorted(await asyncio.gather(*map(notice, range(settings["times"]))))}


class Waiter(DelayedOperation[None]):
    """Ends when it is checked after the gap."""

    __slots__ = ()
    moved = False

    def try_complete(self) -> bool:
        return Waiter.moved and self.force_complete()


class Ticker:
    """Runs on each loop iteration, and keeps the longest time from one to the next. Args: is_over: when to stop."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self.longest = 0.0
        self.over = asyncio.Event()
        self._is_over = is_over
        self._last = time.perf_counter()
        asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        now = time.perf_counter()
        self.longest, self._last = max(self.longest, now - self._last), now
        if self._is_over():
            self.over.set()
        else:
            asyncio.get_running_loop().call_soon(self._tick)


async def turn(settings: dict[str, Any]) -> dict[str, Any]:
    """The longest time from one loop iteration to the next while all end that wait, and how long that takes."""
    ended = 0

    async def wait(op: Waiter) -> None:
        nonlocal ended
        await op
        ended += 1

    async with Purgatory("polls") as purgatory:
        ops = [purgatory.watch(Waiter(3600.0), [("orders", number)]) for number in range(settings["waiters"])]
        tasks = [asyncio.create_task(wait(op)) for op in ops] if settings["awaited"] else []
        del ops
        await asyncio.sleep(0)
        calm_the_collector()
        await asyncio.sleep(0.1)
        Waiter.moved = True
        start, ticker = time.perf_counter(), Ticker(lambda: not purgatory.num_delayed and ended == len(tasks))
        purgatory.notify_all()
        await ticker.over.wait()  # asyncio.wait(tasks) would itself take a long turn
        elapsed = time.perf_counter() - start
        own = purgatory.statistics().longest_turn
    return {"longest_turn_ms": ticker.longest * 1e3, "by_its_statistics_ms": own * 1e3, "all_ended_ms": elapsed * 1e3}


class CountingSource:
    """A source where each call takes as long as a query."""

    def __init__(self) -> None:
        self.now = 0
        self.versions = self.reads = 0

    async def version(self, topic: str) -> str:
        self.versions += 1
        now = self.now
        await asyncio.sleep(0.005)
        return str(now)

    async def read(self, topic: str, since: str | None, version: str) -> bytes:
        self.reads += 1
        await asyncio.sleep(0.005)
        return version.encode()


async def reads(settings: dict[str, Any]) -> dict[str, Any]:
    """Count the calls of a source when one event ends all polls of a topic."""
    source = CountingSource()
    async with Purgatory("polls") as purgatory:
        polling = LongPolling(purgatory, source, policy=Policy(max_wait=600.0))
        headers = {"if-none-match": '"0"', "prefer": "wait=600"}
        polls = [asyncio.create_task(polling.answer("orders", headers)) for _ in range(settings["polls"])]
        await asyncio.sleep(1.0)
        before = source.versions, source.reads
        source.now += 1
        start = time.perf_counter()
        polling.notify("orders")
        answers = await asyncio.gather(*polls)
        elapsed = time.perf_counter() - start
        assert {(answer.status, answer.body) for answer in answers} == {(200, b"1")}
    versions, bodies = source.versions - before[0], source.reads - before[1]
    return {
        "reads": versions + bodies,
        "version_calls": versions,
        "read_calls": bodies,
        "all_answered_ms": elapsed * 1e3,
    }


def main() -> None:
    what, settings = sys.argv[1], json.loads(sys.argv[2])
    measure = {"gap": gap, "turn": turn, "reads": reads}[what]
    calm_the_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        found = runner.run(measure(settings))
    print(json.dumps({**found, "form": "compiled" if aiopurgatory.COMPILED else "interpreted"}))


if __name__ == "__main__":
    main()
