"""Follow values with python-socketio, by polling: python watch_engineio.py URL NAMES... Prints "name value"."""

from __future__ import annotations

import sys

import socketio

client = socketio.Client(reconnection_delay=0.1, reconnection_delay_max=0.5)
seen: dict[str, str] = {}


def show(name: str, value: str) -> None:
    if seen.get(name) != value:  # a new session, after a restart, begins with the values as they are
        seen[name] = value
        print(f"{name} {value}\n", end="", flush=True)


def connected() -> None:
    for name in sys.argv[2:]:
        print(f"{name} ready\n", end="", flush=True)


if __name__ == "__main__":
    client.on("value", show)
    client.on("connect", connected)
    client.connect(sys.argv[1], transports=["polling"])
    client.wait()
