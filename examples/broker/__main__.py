"""python -m examples.broker: a broker for Kafka's clients, with metrics and the live page of its purgatories."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from aiopurgatory.metrics import Metrics

from .pages import pages
from .replication import Settings
from .server import Broker, BrokerSettings


async def serve(host: str, port: int, http_port: int, settings: BrokerSettings) -> None:
    """Run until SIGTERM or Ctrl-C, then answer the waiting requests and stop."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    broker = Broker(settings, [Metrics()])
    await broker.start(host, port)
    async with pages(broker, host, http_port) as url:
        print(f"{host}:{broker.port}  metrics {url}/metrics/  live page {url}/purgatory/", flush=True)
        await stopped.wait()
        await broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.broker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port for Kafka's clients (default: a free one)")
    parser.add_argument("--http-port", type=int, default=0, help="port of metrics and live page (default: a free one)")
    parser.add_argument("--partitions", type=int, default=2, help="partitions of a new topic (default: %(default)s)")
    parser.add_argument("--lag", type=float, default=0.0, help="seconds before each fetch of a follower (default: 0)")
    parser.add_argument("--min-in-sync", type=int, default=2, help="in-sync replicas for acks=all (default: 2)")
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings = BrokerSettings(
        partitions=options.partitions, partition=Settings(lag=options.lag, min_in_sync=options.min_in_sync)
    )
    asyncio.run(serve(options.host, options.port, options.http_port, settings))


if __name__ == "__main__":
    main()
