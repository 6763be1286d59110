"""A process with a bus that forks: python -m bus.forked URL. It prints the keys both hear, and the parent's gaps.

The child makes a bus of its own, on a loop of its own, while it still has the parent's loop and sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Hashable

from aiopurgatory.bus import Bus

from .servers import bus_on
from .waits import Recorder, until


async def child(url: str, inherited: Bus) -> list[Hashable]:
    """Returns: the keys it heard."""
    here = Recorder()
    await inherited.aclose()
    async with bus_on(url, [here]) as bus:
        bus.publish("of the child")
        await bus.flush()
        await until(lambda: len(here.keys) == 2)
    return here.keys


async def parent(url: str) -> None:
    here = Recorder()
    async with bus_on(url, [here]) as bus:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, json.dumps(asyncio.run(child(url, bus))).encode())
            os._exit(0)  # as multiprocessing does; asyncio itself would take the parent's sockets out of its epoll
        await until(lambda: here.keys)  # so that the child's bus is up
        bus.publish("of the parent")
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        bus.publish("later")
        await bus.flush()
        heard = {"child": json.loads(os.read(reading, 1000)), "parent": here.keys, "status": status}
        print(json.dumps(heard | {"gaps": bus.statistics().gaps}))


if __name__ == "__main__":
    asyncio.run(parent(sys.argv[1]))
