"""python -m buses.alone gap|turn SETTINGS: measure within one process. Prints a line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from workload.driver import Turns

from aiopurgatory import DelayedOperation, Purgatory

from .member import FORM, calm_the_collector, loop_factory
from .servers import Proxy, bus_on


class Noting:
    """A target that notes when everything was checked."""

    def __init__(self) -> None:
        self.checked = asyncio.Event()

    def notify(self, key: object, limit: int | None = None) -> None:
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
        start = time.perf_counter()
        with Turns() as turns:
            purgatory.notify_all()
            while purgatory.num_delayed or ended < len(tasks):  # noqa: ASYNC110 asyncio.wait() takes a long turn
                await asyncio.sleep(0)
        elapsed = time.perf_counter() - start
        own = purgatory.statistics().longest_turn
    return {"longest_turn_ms": turns.longest_ms, "by_its_statistics_ms": own * 1e3, "all_ended_ms": elapsed * 1e3}


def main() -> None:
    what, settings = sys.argv[1], json.loads(sys.argv[2])
    measure = {"gap": gap, "turn": turn}[what]
    calm_the_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        found = runner.run(measure(settings))
    print(json.dumps({**found, "form": FORM}))


if __name__ == "__main__":
    main()
