"""python benchmarks/bench_broker.py --compiled build/compiled --json broker.json: a broker with our waits or Events.

*ours* is examples/broker. *event* is the same broker, but each request waits in a task, with asyncio.Event and
asyncio.timeout (brokers/with_event.py). Everything else is the same: connections, and kio, which reads and writes
requests.

    clients  confluent-kafka: records/s produced with acks=all and consumed, 100 bytes each; latency from produce() to
             the consumer at 200 records/s without linger, and the operations that waited meanwhile
    parked   1,000 consumers on 50 partitions wait up to 500 ms for 1 byte; 100 acks=all produce requests/s arrive for
             random partitions. Appends complete two thirds of the fetches; a third expires
    many     as parked, but consumers wait up to 30 s for 4,096 bytes, which takes 9 appends
    idle     as parked, but nothing is produced: each fetch expires after 500 ms. And "grouped": 24 of aiokafka's
             consumers in 4 groups, with heartbeats every 3 s: percent of a core

parked, many and idle measure CPU us of the broker's process, user and system, per request answered. Prints a line of
JSON for each, round by round, then the targets, and medians with their ranges. Broker and load are processes that share
the machine. Each line has the load's CPU share, which must stay below one core. Both use uvloop, if it is installed.
The broker sets the garbage collector as the README advises. Cores are kept awake (buses/awake.py).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from brokers.processes import python_path, serving, started
from buses.awake import cores_awake
from rounds import chosen, parser_of, printing, turns
from tables.machine import Printer

Line = dict[str, Any]

PACKAGES = ["aiopurgatory", "uvloop", "kio", "confluent-kafka", "aiokafka"]


@dataclass(frozen=True)
class Size:
    rounds: int = 3
    #: Of clients.
    records: int = 200_000
    paced: float = 5.0
    #: Of the others.
    consumers: int = 1_000
    grouped: int = 24
    partitions: int = 50
    rate: float = 100.0
    warm_up: float = 2.0
    seconds: float = 9.0


SMOKE = Size(
    rounds=1, records=2_000, paced=0.3, consumers=20, grouped=4, partitions=5, rate=50.0, warm_up=0.2, seconds=0.6
)
VARIANTS: dict[str, dict[str, Any]] = {
    "parked": {},
    # Each partition gets 2 batches of 470 bytes per second in the mean, and 9 make it enough.
    "many": {"min_bytes": 4096, "value_bytes": 400, "wait": 30.0, "stagger": 9},
    "idle": {"rate": 0},
}


def clients(broker: str, size: Size) -> Iterator[Line]:
    config = {"records": size.records, "rate": 200.0, "seconds": size.paced}
    with (
        serving(broker, counts=True) as (worker, port),
        started("brokers.clients", {"port": port, **config}) as load,
    ):
        load.answer()
        worker.ask("calm")
        before = worker.ask("report")
        fast = load.ask("throughput")
        middle = worker.ask("report")
        slow = load.ask("latency")
        after = worker.ask("report")
    cpu = (middle["cpu"] - before["cpu"]) / size.records
    line = {**fast, "broker_cpu_us_per_record": cpu * 1e6, **slow}
    if broker == "ours":
        names = [name for name in after if name == "parked" or name.endswith(("completed", "expired"))]
        line |= {name: after[name] - middle[name] for name in names}
    yield {"what": "clients", "broker": broker, "form": after["form"], "loop": after["loop"], **line}


def parked(what: str, broker: str, size: Size) -> Iterator[Line]:
    config = {"min_bytes": 1, "value_bytes": 100, "wait": 0.5, "stagger": 1, "rate": size.rate}
    config |= {"consumers": size.consumers, "partitions": size.partitions, **VARIANTS[what]}
    with serving(broker) as (worker, port), started("brokers.parked", {"port": port, **config}) as load:
        load.answer()
        worker.ask("calm")
        time.sleep(size.warm_up)
        start, before, counted = time.monotonic(), worker.ask("report"), load.ask("report")
        time.sleep(size.seconds)
        elapsed, after, counted_last = time.monotonic() - start, worker.ask("report"), load.ask("report")
    found = {name: counted_last[name] - counted[name] for name in counted}
    cpu, answers = after["cpu"] - before["cpu"], found["fetched"] + found["produced"]
    line = {
        "broker_cpu_us_per_answer": cpu / max(answers, 1) * 1e6,
        "answers_per_second": answers / elapsed,
        "produced_per_second": found["produced"] / elapsed,
        "expired_share": found["fetched_nothing"] / max(found["fetched"], 1),
        "broker_cpu_share": cpu / elapsed,
        "load_cpu_share": found["cpu"] / elapsed,
        "load_average": os.getloadavg()[0],
    }
    yield {"what": what, "broker": broker, "form": after["form"], "loop": after["loop"], **line}


def grouped(broker: str, size: Size) -> Iterator[Line]:
    with (
        serving(broker) as (worker, port),
        started("brokers.grouped", {"port": port, "consumers": size.grouped}) as load,
    ):
        load.answer()
        worker.ask("calm")
        time.sleep(size.warm_up)
        start, before, load_before = time.monotonic(), worker.ask("report"), load.ask("report")["cpu"]
        time.sleep(size.seconds)
        elapsed, after, load_after = time.monotonic() - start, worker.ask("report"), load.ask("report")["cpu"]
    line = {
        "broker_cpu_percent": (after["cpu"] - before["cpu"]) / elapsed * 100,
        "load_cpu_share": (load_after - load_before) / elapsed,
        "load_average": os.getloadavg()[0],
    }
    yield {"what": "grouped", "broker": broker, "form": after["form"], "loop": after["loop"], **line}


def idle(broker: str, size: Size) -> Iterator[Line]:
    yield from parked("idle", broker, size)
    yield from grouped(broker, size)


MEASURES: dict[str, Callable[[str, Size], Iterator[Line]]] = {
    "clients": clients,
    **{what: lambda broker, size, what=what: parked(what, broker, size) for what in VARIANTS},  # type: ignore[misc]
    "idle": idle,
}


def measure(size: Size, chosen: Sequence[str], told: Printer) -> None:
    for number in range(size.rounds):
        for what in chosen:
            for broker in turns(("ours", "event"), number):
                told.lines({"round": number, **line} for line in MEASURES[what](broker, size))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, Size.rounds)
    parser.add_argument("--only", choices=MEASURES, action="append", help="only this measurement; may be repeated")
    parser.add_argument("--seconds", type=float, help="duration of parked, many and idle; default: 9")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    os.environ["PYTHONPATH"] = python_path(args.compiled)
    size = chosen(args, Size(), Size(rounds=1), SMOKE, "seconds")
    with cores_awake(), printing("brokers", args, PACKAGES) as told:
        measure(size, args.only or list(MEASURES), told)


if __name__ == "__main__":
    main()
