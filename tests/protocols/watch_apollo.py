"""Follow namespaces with apollo-config-client, in one poll: python watch_apollo.py URL NAMESPACES...

Prints "namespace value" for each new value.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from typing import Any

from apollo_config.client import ApolloClient


def show(namespace: str, changes: dict[str, Any]) -> None:
    if "value" in changes:
        print(f"{namespace} {changes['value']['new']}\n", end="", flush=True)


if __name__ == "__main__":
    names = sys.argv[2:]
    client = ApolloClient(
        "app", sys.argv[1], namespaces=names, cache_dir=tempfile.mkdtemp(), poll_interval=0.1, max_retry_backoff=0.2
    )
    client.register_callback(show)
    client.start()
    for name in names:
        print(f"{name} ready\n", end="", flush=True)
    threading.Event().wait()
