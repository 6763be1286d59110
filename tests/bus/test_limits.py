"""publish() with a limit, on real servers: it wakes so many in each process."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

from private_servers import Server

from aiopurgatory import Purgatory

from .limited import WAITS, waits_of
from .servers import bus_on
from .waits import until


async def test_publish_limit_wakes_so_many_in_each_of_two_processes(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "there"
    there = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bus.limited", server.url(), file, stdin=-1, stdout=-1, cwd=Path(__file__).parents[1]
    )
    assert there.stdin is not None and there.stdout is not None  # noqa: PT018 both are pipes

    async def ended() -> int:
        """How many waits of the other process have ended."""
        assert there.stdin is not None and there.stdout is not None  # noqa: PT018
        there.stdin.write(b"\n")
        return int(await asyncio.wait_for(there.stdout.readline(), 30.0))

    async def until_ended(count: int) -> None:
        deadline = time.monotonic() + 10.0
        while await ended() < count:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    try:
        async with Purgatory() as purgatory, bus_on(server.url(), [purgatory]) as bus:
            waits = await waits_of(purgatory, file)
            assert await ended() == 0
            file.touch()
            for limit in (1, 2, 1):
                bus.publish("jobs", limit)
            await bus.flush()
            await until_ended(4)
            await until(lambda: purgatory.num_delayed <= WAITS - 4)
            await asyncio.sleep(0.1)
            assert (await ended(), purgatory.num_delayed) == (4, WAITS - 4)
            bus.publish("jobs", 1)
            bus.publish("jobs")
            await until_ended(WAITS)
            await asyncio.gather(*waits)
        there.stdin.close()
        assert await there.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            there.kill()  # else the loop's end waits for it
