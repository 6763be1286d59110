"""Messages that come together with the confirmation of a subscription."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest

pytest.importorskip("redis")

from aiopurgatory.bus.redis import RedisEngine

CONFIRMED = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
ANSWERS = {b"SETINFO": b"+OK\r\n", b"HELLO": b"-ERR unknown command\r\n", b"INFO": b"$0\r\n\r\n"}


def message(text: bytes) -> bytes:
    return b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%b\r\n" % (len(text), text)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a Redis that sends messages in the packet that confirms the subscription."""
    with suppress(ConnectionError):
        while asked := await reader.read(10_000):
            for found in re.findall(rb"\n(SETINFO|HELLO|INFO|SUBSCRIBE)\r", asked):
                writer.write(ANSWERS.get(found) or CONFIRMED + message(b"one") + message(b"two"))
    writer.transport.abort()


async def test_open_message_with_the_confirmation_is_heard_after_it() -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        heard: list[str] = []
        lost: list[Exception] = []
        engine = RedisEngine(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", "c")
        link = await engine.open(heard.append, lost.append)
        assert heard == []  # the bus does not know yet that it is connected
        await asyncio.sleep(0.01)
        assert heard == ["one", "two"]
        link.abort()
        await asyncio.sleep(0.01)
        assert lost == []
