"""Clients that ask for much, and read it later or never."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

from ..replication import Settings
from ..server import BrokerSettings
from .asks import batch, create, fetch_values, produce
from .served import PATIENCE
from .wires import Wire, encoded, framed

TOPIC: Final = "much"
MIB: Final = 1 << 20
#: Larger than the buffers of sockets.
_BATCH: Final = batch(bytes(7 * MIB))


def settings(max_unread: int) -> BrokerSettings:
    return BrokerSettings(max_unread=max_unread, partition=Settings(max_batch=8 * MIB))


async def fill(port: int) -> int:
    """Produce two batches. Returns: their bytes."""
    async with await Wire.open(port) as wire:
        await create(wire, TOPIC)
        for _ in range(2):
            await produce(wire, TOPIC, _BATCH)
    return 2 * len(_BATCH)


async def ask(port: int, *, min_bytes: int = 1) -> socket.socket:
    """Ask for all of it, once there are *min_bytes*, and read nothing."""
    values = fetch_values(TOPIC, 0, wait=60.0, min_bytes=min_bytes, max_bytes=1 << 30)
    return await send(port, encoded("fetch", values))


async def ask_for_names(port: int) -> socket.socket:
    """Ask for 12 MiB of topics that do not exist, all of which the answer names, and read nothing."""
    topics = [{"name": f"{number:06}{'x' * 994}"} for number in range(12_500)]
    return await send(port, encoded("metadata", {"topics": topics, "allow_auto_topic_creation": False}))


async def send(port: int, request: bytes) -> socket.socket:
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    await asyncio.to_thread(client.connect, ("127.0.0.1", port))
    await asyncio.to_thread(client.sendall, framed(request))
    return client


async def size_of_answer(client: socket.socket) -> int:
    """Wait until the answer begins. Returns: its bytes."""
    return int.from_bytes(await asyncio.to_thread(client.recv, 4, socket.MSG_WAITALL))


async def read(client: socket.socket, size: int) -> int:
    """Read *size* bytes. Returns: how many there were, until the broker closed the connection."""
    return await asyncio.to_thread(_read, client, size)


def _read(client: socket.socket, size: int) -> int:
    left = size
    with suppress(ConnectionError):
        while left and (part := client.recv(min(left, 1 << 16))):
            left -= len(part)
    return size - left
