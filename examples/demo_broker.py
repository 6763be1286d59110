"""Kafka's own clients produce to and consume from the example broker for 30 s: make demo-broker.

    python examples/demo_broker.py [--seconds 30] [--rate 300]

A producer waits for all replicas. A group of consumers grows to three and shrinks to one. A follower stalls for a
while: no record of its partition is acked until it resumes. At the end, every record is accounted for. It exits with 0
if every figure is as expected.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # Ctrl-C while the rest is imported

import argparse
import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from broker.pages import pages
from broker.server import Broker, BrokerSettings
from confluent_kafka import Consumer, Producer
from demo_display import Row, console, exit_code, form, in_ms, verdict
from rich.live import Live
from rich.table import Table

TOPIC = "orders"
PARTITIONS = 4
MEMBERS = 3


class Clients:
    """Kafka's clients, each in its own thread, and their records."""

    def __init__(self, address: str, rate: float) -> None:
        self.sent = 0
        self.errors: list[str] = []
        #: Seconds from sending a record to its ack.
        self.acked_after: list[float] = []
        #: By partition, the offset and number of each record in the order of consumption.
        self.consumed: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._servers = {"bootstrap.servers": address, "log_level": 0}
        self._rate = rate
        self._stops: list[tuple[threading.Event, threading.Thread]] = []

    def start(self, work: Callable[[threading.Event], None]) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=work, args=(stop,), daemon=True)
        self._stops.append((stop, thread))
        thread.start()

    async def stop(self, number: int = -1) -> None:
        """Stop the client that was started as *number*; default: the last one."""
        stop, thread = self._stops.pop(number)
        stop.set()
        await asyncio.to_thread(thread.join, 15.0)

    async def stop_all(self) -> None:
        while self._stops:
            await self.stop()

    @property
    def members(self) -> int:
        return len(self._stops) - 1

    @property
    def received(self) -> int:
        return sum(map(len, self.consumed.values()))

    def produce(self, stop: threading.Event) -> None:
        producer = Producer(self._servers | {"acks": "all", "enable.idempotence": True, "linger.ms": 2})
        while not stop.is_set():
            producer.produce(
                TOPIC, str(self.sent), key=str(self.sent % 50), on_delivery=partial(self._acked, time.monotonic())
            )
            self.sent += 1
            producer.poll(1 / self._rate)
        if left := producer.flush(15.0):
            self.errors.append(f"{left} records never acked")

    def consume(self, stop: threading.Event) -> None:
        consumer = Consumer(
            self._servers
            | {
                "group.id": "shop",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
        )
        consumer.subscribe([TOPIC], on_revoke=lambda member, _: self._commit(member))
        while not stop.is_set():
            for message in consumer.consume(100, timeout=0.1):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() or partition is None or offset is None or value is None:
                    self.errors.append(str(message.error()))
                else:
                    self.consumed[partition].append((offset, int(value)))
        consumer.close()  # releases its partitions, which commits

    def _acked(self, begun: float, error: object, _: object) -> None:
        if error:
            self.errors.append(str(error))
        else:
            self.acked_after.append(time.monotonic() - begun)

    def _commit(self, member: Consumer) -> None:
        with contextlib.suppress(Exception):  # there is nothing new to commit
            member.commit(asynchronous=False)


def figures(broker: Broker, clients: Clients) -> Table:
    """The figures to show during the run."""
    grid = Table.grid(padding=(0, 2))
    ends = f"acked {len(clients.acked_after):,}, consumed {clients.received:,}"
    grid.add_row("records sent", f"{clients.sent:,}", ends)
    grid.add_row("members", f"{clients.members}", "")
    for purgatory in broker.purgatories:
        found = purgatory.statistics()
        ended = f"completed {found.completed:,}, expired {found.expired:,}"
        grid.add_row(f"pending in {found.name}", f"[bold]{found.pending:,}", ended)
    return grid


async def story(broker: Broker, clients: Clients, seconds: float) -> None:
    """Start and stop clients and stall a follower, spread over *seconds*."""
    part = seconds / 15
    clients.start(clients.produce)
    for _ in range(MEMBERS):
        console.print("a consumer joins the group")
        clients.start(clients.consume)
        await asyncio.sleep(2 * part)
    follower = broker.topics[TOPIC][0].followers[0]
    console.print("a follower of partition 0 stalls: its records are not acked")
    follower.stall(True)
    await asyncio.sleep(2 * part)
    console.print("the follower resumes")
    follower.stall(False)
    for _ in range(MEMBERS - 1):
        await asyncio.sleep(2 * part)
        console.print("a consumer leaves the group")
        await clients.stop()
    await asyncio.sleep(2 * part)
    await clients.stop(0)  # the producer
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(15.0):
            while clients.received < clients.sent:  # noqa: ASYNC110 their threads announce nothing
                await asyncio.sleep(0.1)


async def show(broker: Broker, clients: Clients) -> None:
    if not console.is_interactive:
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(figures(broker, clients), refresh=True)
            await asyncio.sleep(0.2)


async def run(seconds: float, rate: float) -> bool:
    """Run the demo. Returns: whether every figure is as expected."""
    broker = Broker(BrokerSettings(partitions=PARTITIONS))
    await broker.start()
    broker.topics.make(TOPIC)
    clients = Clients(f"{broker.host}:{broker.port}", rate)
    async with pages(broker, broker.host, 0) as url:
        console.print(f"Broker at {broker.host}:{broker.port}, live page {url}/purgatory/. Ctrl-C ends it.")
        showing = asyncio.create_task(show(broker, clients))
        try:
            await story(broker, clients, seconds)
        finally:
            showing.cancel()
            await clients.stop_all()
            await broker.close()
    return report(broker, clients, seconds)


def report(broker: Broker, clients: Clients, seconds: float) -> bool:
    """Print the figures. Returns: whether all are as expected."""
    numbers = Counter(number for records in clients.consumed.values() for _, number in records)
    lost = clients.sent - len(numbers)
    doubled = numbers.total() - len(numbers)
    disordered = sum(a >= b for records in clients.consumed.values() for (a, _), (b, _) in pairwise(records))
    stalled = max(clients.acked_after, default=0.0)
    generations = broker.groups["shop"].generation
    pending = sum(purgatory.statistics().pending for purgatory in broker.purgatories)
    rows: list[Row] = [
        ("records sent, acked by all", f"{len(clients.acked_after):,} of {clients.sent:,}", "all", not clients.errors),
        ("sent to acked, p50 / p99", in_ms(clients.acked_after, 0.5, 0.99), "", True),
        ("longest ack: a follower stalled", f"{stalled:.1f} s", f">= {seconds / 10:.1f} s", stalled >= seconds / 10),
        ("generations of the group", f"{generations}", f">= {MEMBERS}", generations >= MEMBERS),
        ("lost", f"{lost:,}", "0", lost == 0),
        ("consumed twice", f"{doubled:,}", "0", doubled == 0),
        ("out of order in a partition", f"{disordered:,}", "0", disordered == 0),
        ("pending at the end", f"{pending:,}", "0", pending == 0),
    ]
    for error in clients.errors[:3]:
        console.print(error, markup=False)
    return verdict(rows, f"{form()}, librdkafka")


def main() -> int:
    parser = argparse.ArgumentParser(description="Kafka's own clients at work on the example broker.")
    parser.add_argument("--seconds", type=float, default=30, help="duration (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300, help="records per second (default: %(default)s)")
    options = parser.parse_args()
    return exit_code(partial(run, options.seconds, options.rate))


if __name__ == "__main__":
    sys.exit(main())
