"""Watch keys with py-consul, a thread each: python watch_consul.py URL KEYS... Prints "key value" for each new one."""

from __future__ import annotations

import sys
import threading
import time
from urllib.parse import urlsplit

import consul
import requests


def watch(host: str, port: int, key: str) -> None:
    client = consul.Consul(host=host, port=port)
    index = None
    while True:
        try:
            newest, entry = client.kv.get(key, index=index, wait="2s")
        except (consul.ConsulException, requests.RequestException):  # the server restarts
            time.sleep(0.1)
            continue
        if index is None:
            print(f"{key} ready\n", end="", flush=True)
        if newest != index and entry is not None:
            print(f"{key} {entry['Value'].decode()}\n", end="", flush=True)
        index = newest


if __name__ == "__main__":
    url = urlsplit(sys.argv[1])
    threads = [threading.Thread(target=watch, args=(url.hostname, url.port, key)) for key in sys.argv[2:]]
    for thread in threads:
        thread.start()
