"""Real clients of five protocols watch keys, on one worker and on two, through kills and a restart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from json import dumps, loads
from typing import Any

import consul
import nacos
import pytest
import requests
from private_servers import Redis

from .ledger import App, AtLeastOnce, Ledger

pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")]

KEYS = [f"key-{number}" for number in range(8)]
Put = Callable[[str, str], object]


def consul_put(app: App) -> Put:
    client = consul.Consul(host="127.0.0.1", port=app.port)
    return lambda key, value: client.kv.put(key, value)


def nacos_put(app: App) -> Put:
    client = nacos.NacosClient(f"127.0.0.1:{app.port}", namespace="", logDir="/tmp")
    return lambda key, value: client.publish_config(key, "g", value)


def plain_put(method: str, path: str, **body: Any) -> Callable[[App], Put]:
    """A request with the value in the place of VALUE."""

    def put_of(app: App) -> Put:
        session = requests.Session()

        def put(key: str, value: str) -> None:
            filled = {name: loads(dumps(part).replace("VALUE", value)) for name, part in body.items()}
            session.request(method, f"{app.url}{path}/{key}", timeout=10, **filled).raise_for_status()

        return put

    return put_of


def matrix_put(app: App) -> Put:
    session = requests.Session()
    session.headers["authorization"] = "Bearer @writer:localhost"
    url = f"{app.url}/_matrix/client/v3/rooms/"

    def put(key: str, value: str) -> None:
        content = {"msgtype": "m.text", "body": value}
        session.put(f"{url}{key}/send/m.room.message/{key}-{value}", json=content, timeout=10).raise_for_status()

    return put


PUTS = {
    "apollo": plain_put("PUT", "/configs/app/default", json={"value": "VALUE"}),
    "consul": consul_put,
    "engineio": plain_put("PUT", "/values", data="VALUE"),
    "kubernetes": plain_put("PUT", "/api/v1/namespaces/default/configmaps", json={"data": {"value": "VALUE"}}),
    "matrix": matrix_put,
    "nacos": nacos_put,
}
#: Their clients see each value, not only the newest.
OF_EVENTS = {"kubernetes", "matrix"}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", PUTS)
def test_watches_miss_nothing_and_repeat_nothing(redis: Redis, name: str, workers: int) -> None:
    chance = random.Random(workers)
    with App(name, redis.url(), workers, MAX_WAIT="2") as app:
        put, ledger = PUTS[name](app), Ledger(KEYS, of_events=name in OF_EVENTS)

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
            assert app.stop() < 10
            app.start()
            for key in KEYS:
                write(key)
            ledger.settle()
        finally:
            ledger.close()
    print(f"{name}, {workers} workers: {ledger.delivered} deliveries, 0 missed, 0 twice, 0 lost")


@pytest.mark.parametrize("workers", [1, 2])
def test_updates_are_kept_until_they_are_confirmed(redis: Redis, workers: int) -> None:
    chance = random.Random(workers)
    with App("telegram", redis.url(), workers) as app:
        put, ledger = plain_put("POST", "/chats", json={"text": "VALUE"})(app), AtLeastOnce(KEYS)

        def write() -> None:
            key = chance.choice(KEYS)
            ledger.written[key] += 1
            put(key, str(ledger.written[key]))

        try:
            for _ in range(5):
                ledger.start("watch_telegram", app.url)
                for _ in range(40):
                    write()
                    time.sleep(chance.random() / 100)
                ledger.kill(ledger.watchers[0])  # whatever it does; what it did not confirm comes again
            ledger.start("watch_telegram", app.url)
            assert app.stop() < 10
            app.start()
            write()
            received = ledger.settled()
        finally:
            ledger.close()
    again = received.total() - len(received)
    assert again <= 5 * len(KEYS)  # at most the last update of each killed bot
    print(f"telegram, {workers} workers: {len(received)} updates, 0 lost, {again} again after a kill")
