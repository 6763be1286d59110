"""acks=all: a produce is answered once every replica has its records. python examples/replication.py

One leader and two followers in one process. The produce waits under the key of every partition it wrote to.
"""

from __future__ import annotations

import asyncio
import time

from aiopurgatory import DelayedOperation, Purgatory

FETCH_DELAYS = {"follower 1": 0.02, "follower 2": 0.08}  # seconds between two fetches


class NotLeaderError(Exception):
    pass


class Partition:
    """What the leader knows of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.end = 0  # of the leader's own log
        self.fetched = dict.fromkeys(FETCH_DELAYS, 0)
        self.is_leader = True

    @property
    def high_watermark(self) -> int:
        """Up to here every replica has it."""
        return min(self.end, *self.fetched.values())


class DelayedProduce(DelayedOperation[dict[str, str]]):
    """Waits until every high watermark has reached what this produce appended. Its result: an error code for each."""

    def __init__(self, required: dict[Partition, int], timeout: float) -> None:
        super().__init__(timeout)
        self.required = required

    def try_complete(self) -> bool:
        for partition in self.required:
            if not partition.is_leader:
                return self.fail(NotLeaderError(f"this broker no longer leads {partition.name}"))
        return all(map(self.is_acked, self.required)) and self.force_complete()

    def on_complete(self) -> dict[str, str]:
        return {p.name: "NONE" if self.is_acked(p) else "REQUEST_TIMED_OUT" for p in self.required}

    def is_acked(self, partition: Partition) -> bool:
        return partition.high_watermark >= self.required[partition]


def produce(purgatory: Purgatory, partitions: list[Partition], timeout: float) -> DelayedProduce:
    """Append a record to each of *partitions*."""
    for partition in partitions:
        partition.end += 1
    op = DelayedProduce({partition: partition.end for partition in partitions}, timeout)
    return purgatory.watch(op, keys=[partition.name for partition in partitions])


async def follow(purgatory: Purgatory, partition: Partition, follower: str) -> None:
    """A replica of *partition*: each of its fetches tells the leader how far it has come."""
    while True:
        await asyncio.sleep(FETCH_DELAYS[follower])
        partition.fetched[follower] = partition.end
        purgatory.check_and_complete(partition.name)


async def main() -> None:
    payments = Partition("payments")
    partitions = [Partition("orders"), payments]
    async with Purgatory("produce") as purgatory, asyncio.TaskGroup() as group:
        followers = {
            (partition, follower): group.create_task(follow(purgatory, partition, follower))
            for partition in partitions
            for follower in FETCH_DELAYS
        }

        start = time.monotonic()
        acked = await produce(purgatory, partitions, timeout=30.0)
        print(f"acked by all after {time.monotonic() - start:.2f} s: {acked}")

        followers[payments, "follower 2"].cancel()
        start = time.monotonic()
        acked = await produce(purgatory, partitions, timeout=0.3)
        print(f"a follower has stopped, {time.monotonic() - start:.2f} s: {acked}")

        start = time.monotonic()
        op = produce(purgatory, [payments], timeout=30.0)
        payments.is_leader = False
        purgatory.check_and_complete(payments.name)
        try:
            await op
        except NotLeaderError as exc:
            print(f"leadership lost, {time.monotonic() - start:.2f} s: NotLeaderError: {exc}")

        for follower in followers.values():
            follower.cancel()


if __name__ == "__main__":
    asyncio.run(main())
