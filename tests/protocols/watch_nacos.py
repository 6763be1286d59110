"""Listen to configurations with nacos-sdk-python, in one poll: python watch_nacos.py URL NAMES...

Prints "name value" for each new value.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from typing import Any

import nacos


def show(params: dict[str, Any]) -> None:
    print(f"{params['data_id']} {params['content']}\n", end="", flush=True)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    client = nacos.NacosClient(sys.argv[1].removeprefix("http://"), namespace="", logDir=folder)
    client.set_options(pulling_timeout=2, snapshot_base=folder, failover_base=folder + "-none")
    for name in sys.argv[2:]:
        known = client.get_config(name, "g")
        client.add_config_watcher(name, "g", show, content=known)
        if known is not None:
            print(f"{name} {known}\n", end="", flush=True)
        print(f"{name} ready\n", end="", flush=True)
    threading.Event().wait()
