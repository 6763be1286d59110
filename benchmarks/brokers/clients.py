"""python -m brokers.clients {"port": ...}: confluent-kafka's producer and consumer. Prints lines as the worker does."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

_PATIENCE = 60.0
#: Unmeasured records, during which connections are made: each takes tens of milliseconds.
_FIRST = 100


class Clients:
    """Args: config: the ``port``; ``records`` of do_throughput(); ``rate`` and ``seconds`` of do_latency()."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.address = {"bootstrap.servers": f"127.0.0.1:{config['port']}"}

    def run(self) -> None:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            (name,) = json.loads(line)
            print(json.dumps(getattr(self, f"do_{name}")()), flush=True)

    def do_throughput(self) -> dict[str, float]:
        records, value = self.config["records"], bytes(100)
        producer = self._producer()
        producer.list_topics("throughput", _PATIENCE)
        start = time.monotonic()
        for _ in range(records):
            producer.produce("throughput", value)
            producer.poll(0)
        left = producer.flush(_PATIENCE)
        assert not left, left
        produced = time.monotonic() - start
        start = time.monotonic()
        for _ in self._consumed("throughput", records, 1_000):
            pass
        consumed = time.monotonic() - start
        return {"produced_per_second": records / produced, "consumed_per_second": records / consumed}

    def do_latency(self) -> dict[str, float]:
        """Measure ms from produce() to the consumer, at a fixed rate. The first records do not count."""
        rate = self.config["rate"]
        count = _FIRST + int(rate * self.config["seconds"])
        producer = self._producer(**{"linger.ms": 0})
        producer.list_topics("latency", _PATIENCE)

        def send() -> None:
            due = time.monotonic() + 1.0  # by then the consumer waits
            for _ in range(count):
                time.sleep(max(due - time.monotonic(), 0))
                producer.produce("latency", str(time.monotonic_ns()))
                producer.poll(0)
                due += 1 / rate
            producer.flush(_PATIENCE)

        sender = threading.Thread(target=send)
        sender.start()
        latencies = [time.monotonic_ns() - int(each.value() or 0) for each in self._consumed("latency", count, 1)]
        sender.join()
        ranked = sorted(latencies[_FIRST:])
        return {f"p{share}_ms": ranked[len(ranked) * share // 100] / 1e6 for share in (50, 99)}

    def _producer(self, **settings: Any) -> Producer:
        return Producer({**self.address, "acks": "all", **settings})

    def _consumed(self, topic: str, count: int, at_once: int) -> Iterator[Message]:
        settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
        consumer = Consumer(self.address | settings)
        partitions = consumer.list_topics(topic, _PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        while count:
            found = consumer.consume(min(count, at_once), _PATIENCE)
            assert found, f"{count} more records were expected of {topic}"
            for message in found:
                assert message.error() is None, message.error()
                yield message
            count -= len(found)
        consumer.close()


if __name__ == "__main__":
    Clients(json.loads(sys.argv[1])).run()
