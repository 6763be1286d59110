"""Kafka's join-group barrier: members of a group wait for each other. python examples/join_group.py

A generation is formed when every known member has joined again. Members that have not joined by the rebalance timeout
are dropped. An empty group waits for a short delay, extended while members join. Uses ``aiopurgatory.operations``.
"""

from __future__ import annotations

import asyncio
import time

from aiopurgatory import Purgatory
from aiopurgatory.operations import JoinBarrier

start = time.monotonic()


async def join(group: JoinBarrier[str], member: str, delay: float = 0.0) -> None:
    await asyncio.sleep(delay)
    print(f"{time.monotonic() - start:.1f} s: {member} joins")
    generation = await group.join(member)
    if member == generation.members[0]:  # the leader, as in Kafka
        print(
            f"{time.monotonic() - start:.1f} s: generation {generation.number}: {', '.join(generation.members)}", end=""
        )
        print(f"; dropped: {', '.join(generation.dropped)}" if generation.dropped else "")


async def main() -> None:
    async with Purgatory("rebalance") as purgatory:
        group = JoinBarrier[str](purgatory, "billing", rebalance_timeout=2.0, initial_delay=0.8)
        await asyncio.gather(join(group, "ann"), join(group, "bob", 0.4), join(group, "cy", 1.0))
        # dan is new, so all others join again
        await asyncio.gather(*(join(group, member) for member in ["dan", "ann", "bob", "cy"]))
        # cy does not join again
        await asyncio.gather(*(join(group, member) for member in ["ann", "bob", "dan"]))


if __name__ == "__main__":
    asyncio.run(main())
