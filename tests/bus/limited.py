"""A process whose waits end one by one: python -m bus.limited URL FILE. They wait until FILE is there.

For each line on stdin, it prints how many have ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiopurgatory import Purgatory

from .servers import bus_on

WAITS = 9


async def waits_of(purgatory: Purgatory, file: Path) -> list[asyncio.Task[bool]]:
    wait = purgatory.wait_for
    waits = [asyncio.create_task(wait(file.exists, ["jobs"], timeout=None)) for _ in range(WAITS)]
    while purgatory.num_delayed < WAITS:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return waits


async def main(url: str, file: Path) -> None:
    async with Purgatory() as purgatory, bus_on(url, [purgatory]):
        waits = await waits_of(purgatory, file)
        while await asyncio.to_thread(sys.stdin.readline):
            print(sum(wait.done() for wait in waits), flush=True)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
