"""Real clients of Consul, Nacos and Apollo watch keys, on one worker and on two, through kills and a restart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import consul
import nacos
import pytest
import requests
from private_servers import Redis

from .ledger import App, Ledger

pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")]

KEYS = [f"key-{number}" for number in range(8)]
Put = Callable[[str, str], object]


def consul_put(app: App) -> Put:
    client = consul.Consul(host="127.0.0.1", port=app.port)
    return lambda key, value: client.kv.put(key, value)


def nacos_put(app: App) -> Put:
    client = nacos.NacosClient(f"127.0.0.1:{app.port}", namespace="", logDir="/tmp")
    return lambda key, value: client.publish_config(key, "g", value)


def apollo_put(app: App) -> Put:
    session = requests.Session()
    url = f"{app.url}/configs/app/default/"
    return lambda key, value: session.put(url + key, json={"value": value}, timeout=10).raise_for_status()


PUTS = {"consul": consul_put, "nacos": nacos_put, "apollo": apollo_put}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", PUTS)
def test_watches_miss_nothing_and_repeat_nothing(redis: Redis, name: str, workers: int) -> None:
    chance = random.Random(workers)
    with App(name, redis.url(), workers, MAX_WAIT="2") as app:
        put, ledger = PUTS[name](app), Ledger(KEYS)

        def write(key: str) -> None:
            ledger.written[key] += 1
            put(key, str(ledger.written[key]))

        try:
            for _ in range(3):
                ledger.start(f"watch_{name}", app.url)
            for key in KEYS:
                write(key)
            ledger.settle()
            before = {
                id(watcher): {key: len(seen) for key, seen in watcher.seen.items()} for watcher in ledger.watchers
            }
            # Each write is seen by all before the next: so each must be seen, once.
            for _ in range(40):
                write(chance.choice(KEYS))
                ledger.settle()
            for watcher in ledger.watchers:
                seen = sum(len(seen) - before[id(watcher)][key] for key, seen in watcher.seen.items())
                assert seen == 40
            # Polls that find nothing end, and the clients poll again.
            time.sleep(3)
            # Clients are killed at random while others, and new ones, are served.
            for _ in range(4):
                for _ in range(25):
                    write(chance.choice(KEYS))
                    time.sleep(chance.random() / 50)
                ledger.kill(chance.choice(ledger.watchers))
                ledger.start(f"watch_{name}", app.url)
                ledger.settle()
            # The server restarts, with polls parked.
            assert app.stop() < 5
            app.start()
            for key in KEYS:
                write(key)
            ledger.settle()
        finally:
            ledger.close()
    print(f"{name}, {workers} workers: {ledger.delivered} deliveries, 0 missed, 0 twice, 0 lost")
