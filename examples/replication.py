"""acks=all: a produce request is answered once every in-sync replica has its records. python examples/replication.py

One leader and two followers in one process, with ``aiopurgatory.operations``.
"""

from __future__ import annotations

import asyncio
import time

from aiopurgatory import Purgatory
from aiopurgatory.operations import Replicas, produce

FETCH_DELAYS = {"follower 1": 0.02, "follower 2": 0.08}  # seconds between two fetches


class NotLeaderError(Exception):
    pass


class Partition:
    """A log, and its replicas' offsets as the leader knows them."""

    def __init__(self, purgatory: Purgatory, name: str) -> None:
        self.name = name
        self.end = 0
        self.replicas = Replicas(purgatory, name, ["leader", *FETCH_DELAYS])

    def append(self) -> int:
        """Append a record. Returns: the offset that the replicas must reach to have it."""
        self.end += 1
        self.replicas.update("leader", self.end)
        return self.end

    async def follow(self, follower: str) -> None:
        """Run a replica: its fetches report its offset to the leader."""
        while True:
            await asyncio.sleep(FETCH_DELAYS[follower])
            self.replicas.update(follower, self.end)


async def append_to_all(purgatory: Purgatory, partitions: list[Partition], timeout: float) -> dict[str, str]:
    """Append to several partitions in one request. Returns: an error code for each."""
    required = {partition.name: (partition.replicas, partition.append()) for partition in partitions}
    answers = await produce(purgatory, required, timeout=timeout)
    return {name: "NONE" if error is None else "REQUEST_TIMED_OUT" for name, error in answers.items()}


async def main() -> None:
    async with Purgatory("produce") as purgatory, asyncio.TaskGroup() as group:
        payments = Partition(purgatory, "payments")
        partitions = [Partition(purgatory, "orders"), payments]
        followers = {
            (partition, follower): group.create_task(partition.follow(follower))
            for partition in partitions
            for follower in FETCH_DELAYS
        }

        start = time.monotonic()
        acked = await append_to_all(purgatory, partitions, timeout=30.0)
        print(f"acked by all after {time.monotonic() - start:.2f} s: {acked}")

        followers[payments, "follower 2"].cancel()
        start = time.monotonic()
        acked = await append_to_all(purgatory, partitions, timeout=1.0)
        print(f"a follower has stopped, {time.monotonic() - start:.2f} s: {acked}")

        start = time.monotonic()
        acked_by_all = asyncio.create_task(payments.replicas.acked(payments.append(), timeout=30.0))
        await asyncio.sleep(0)  # until it waits
        payments.replicas.fail(NotLeaderError(f"this broker no longer leads {payments.name}"))
        try:
            await acked_by_all
        except NotLeaderError as exc:
            print(f"leadership lost, {time.monotonic() - start:.2f} s: NotLeaderError: {exc}")

        for follower in followers.values():
            follower.cancel()


if __name__ == "__main__":
    asyncio.run(main())
