"""python -m brokers.grouped {"port": ...}: consumers in groups that receive nothing. Prints lines as the worker does.

They are aiokafka's. Each fetches every 500 ms from its share of the partitions, and sends a heartbeat every 3 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from buses.member import calm_the_collector, loop_factory

_TOPIC = "grouped"
_GROUPS = 4


async def run(config: dict[str, Any]) -> None:
    """Args: config: the ``port``, and how many ``consumers`` there are, a multiple of 4."""
    address, count = f"127.0.0.1:{config['port']}", config["consumers"]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(_TOPIC, count, 1)])
    await admin.close()
    consumers = [
        AIOKafkaConsumer(
            _TOPIC,
            bootstrap_servers=address,
            group_id=f"group-{number % _GROUPS}",
            heartbeat_interval_ms=3_000,
            session_timeout_ms=10_000,
            fetch_max_wait_ms=500,
            enable_auto_commit=False,
        )
        for number in range(count)
    ]
    await asyncio.gather(*[consumer.start() for consumer in consumers])
    # In a group of 6, each has 4 of the 24 partitions; before all have joined, some have more.
    while any(len(consumer.assignment()) != _GROUPS for consumer in consumers):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    calm_the_collector()
    print(json.dumps("ready"), flush=True)
    while await lines.readline():
        print(json.dumps({"cpu": time.process_time()}), flush=True)
    await asyncio.gather(*[consumer.stop() for consumer in consumers])


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
