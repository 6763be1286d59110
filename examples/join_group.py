"""Kafka's join-group barrier: members of a group wait for each other. python examples/join_group.py

A generation is formed when every known member has joined again; who has not by the rebalance timeout is dropped. An
empty group knows of nobody to wait for: it gives others a short delay to come, and again after each who does.
"""

from __future__ import annotations

import asyncio
import time

from aiopurgatory import DelayedOperation, Purgatory

INITIAL_DELAY = 0.2
REBALANCE_TIMEOUT = 0.8
start = time.monotonic()


class DelayedJoin(DelayedOperation[None]):
    """The barrier: open when all known members have joined, or when time is up."""

    def __init__(self, group: Group, timeout: float) -> None:
        super().__init__(timeout)
        self.group = group

    def try_complete(self) -> bool:
        return all(self.group.members.values()) and self.force_complete()

    def on_complete(self) -> None:
        self.group.form_generation()


class InitialDelayedJoin(DelayedJoin):
    """The barrier of an empty group: a delay that starts anew if somebody came, within REBALANCE_TIMEOUT in all."""

    def __init__(self, group: Group, remaining: float) -> None:
        super().__init__(group, min(INITIAL_DELAY, remaining))
        self.remaining = remaining - min(INITIAL_DELAY, remaining)
        self.members = len(group.members)

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if len(self.group.members) > self.members and self.remaining > 0:
            self.group.wait_with(InitialDelayedJoin(self.group, self.remaining))
        else:
            super().on_complete()


class Group:
    def __init__(self, purgatory: Purgatory, name: str) -> None:
        self.purgatory = purgatory
        self.name = name
        self.generation = 0
        self.barrier: DelayedJoin | None = None
        #: Who has joined waits for the generation; None: a member of the last one that has not joined again.
        self.members: dict[str, asyncio.Future[list[str]] | None] = {}

    async def join(self, member: str) -> list[str]:
        """Returns: the members of the generation that it is in."""
        print(f"{time.monotonic() - start:.1f} s: {member} joins")
        joined: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.members[member] = joined
        if self.barrier is not None:
            self.purgatory.check_and_complete(self.name)
        elif self.generation == 0:
            self.wait_with(InitialDelayedJoin(self, REBALANCE_TIMEOUT))
        else:
            self.wait_with(DelayedJoin(self, REBALANCE_TIMEOUT))
        return await joined

    def wait_with(self, barrier: DelayedJoin) -> None:
        self.barrier = barrier
        self.purgatory.watch(barrier, keys=[self.name])

    def form_generation(self) -> None:
        self.barrier = None
        self.generation += 1
        joined = {member: future for member, future in self.members.items() if future and not future.cancelled()}
        dropped = self.members.keys() - joined
        self.members = dict.fromkeys(joined)
        for future in joined.values():
            future.set_result(list(joined))
        print(f"{time.monotonic() - start:.1f} s: generation {self.generation}: {', '.join(joined)}", end="")
        print(f"; dropped: {', '.join(dropped)}" if dropped else "")


async def main() -> None:
    async with Purgatory("rebalance") as purgatory:
        group = Group(purgatory, "billing")

        async def join_after(delay: float, member: str) -> None:
            await asyncio.sleep(delay)
            await group.join(member)

        await asyncio.gather(join_after(0, "ann"), join_after(0.1, "bob"), join_after(0.25, "cy"))
        await asyncio.gather(*(group.join(member) for member in ["dan", "ann", "bob", "cy"]))
        await asyncio.gather(*(group.join(member) for member in ["ann", "bob", "dan"]))


if __name__ == "__main__":
    asyncio.run(main())
