"""A fetch is answered as soon as there is enough to read, or at its deadline: python examples/quickstart.py"""

import asyncio

from aiopurgatory import DelayedOperation, Purgatory


class DelayedFetch(DelayedOperation[list[str]]):
    def __init__(self, log: list[str], min_records: int, timeout: float) -> None:
        super().__init__(timeout)
        self.log, self.min_records = log, min_records

    def try_complete(self) -> bool:
        return len(self.log) >= self.min_records and self.force_complete()

    def on_complete(self) -> list[str]:
        return self.log.copy()


async def main() -> None:
    log: list[str] = []
    async with Purgatory("fetch") as purgatory:
        fetch = purgatory.watch(DelayedFetch(log, 1, timeout=30.0), keys=["orders"])
        log.append("order 1")
        purgatory.check_and_complete("orders")  # from the append path
        print("answered by an append:", await fetch)
        print("timed out with", await purgatory.watch(DelayedFetch(log, 2, timeout=0.1), keys=["orders"]))


asyncio.run(main())
