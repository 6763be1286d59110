"""Messages that come together with the confirmation of a subscription."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable
from contextlib import suppress

import pytest

pytest.importorskip("redis")

from aiopurgatory.bus import BusConnectError
from aiopurgatory.bus.redis import RedisBus

CONFIRMED = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
ANSWERS = {b"SETINFO": b"+OK\r\n", b"HELLO": b"-ERR unknown command\r\n", b"INFO": b"$0\r\n\r\n"}


def message(text: bytes) -> bytes:
    return b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%b\r\n" % (len(text), text)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a Redis that sends messages in the packet that confirms the subscription."""
    with suppress(ConnectionError):
        while asked := await reader.read(10_000):
            for found in re.findall(rb"\n(SETINFO|HELLO|INFO|SUBSCRIBE)\r", asked):
                writer.write(ANSWERS.get(found) or CONFIRMED + message(b"1") + message(b"2"))
    writer.transport.abort()


class Told:
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        self.what: list[Hashable] = []

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        self.what.append(key)

    def notify_all(self) -> None:
        self.what.append("everything")


async def test_open_message_with_the_confirmation_is_heard_after_it() -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        told = Told()
        bus = RedisBus(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", [told], name="c", timeout=0.2)
        with pytest.raises(BusConnectError, match="did not acknowledge a message in time"):
            await bus.start()
        assert told.what[:3] == ["everything", 1, 2]
