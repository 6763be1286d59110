"""A key is sent again if its publishing breaks off (R2)."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from private_proxy import Proxy
from private_servers import Server

from aiopurgatory.bus.outbox import Outbox

from .servers import bus_on
from .test_model import ForgetsAtBreak
from .waits import Recorder, until


async def arrives(server: Server) -> bool:
    """The network swallows a key and resets the publisher's links. Returns: whether a healthy bus gets the key."""
    there = Recorder()
    async with (
        Proxy(server.port) as proxy,
        bus_on(server.url(), [there]) as other,
        bus_on(server.url(proxy.port), []) as one,
    ):
        assert proxy.mute() == 1
        one.publish("swallowed")
        await until(lambda: proxy.swallowed)
        proxy.cut()
        await until(lambda: one.statistics().gaps == 1 and one.statistics().connected)
        one.publish("later")
        await until(lambda: "later" in there.keys)
        assert other.statistics().gaps == 0
    return "swallowed" in there.keys


async def test_publish_swallowed_key_is_sent_again(server: Server) -> None:
    assert await arrives(server)


async def test_control_sent_counts_as_received_and_is_lost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "put_back", ForgetsAtBreak.put_back)
    assert not await arrives(server)


async def test_server_killed_in_the_middle_of_publishing(own_server: Server, reported: list[dict[str, Any]]) -> None:
    """asyncpg may then raise InternalClientError, and no error of a connection."""
    there = Recorder()
    patient = {"heartbeat": 60.0, "timeout": 60.0}  # the end of the connection tells, and not the missing echo
    async with bus_on(own_server.url(), [], **patient) as one, bus_on(own_server.url(), [there], **patient):
        for gaps, keys in enumerate((1, 9000), 1):
            own_server.signal(signal.SIGSTOP)
            for number in range(keys):
                one.publish(f"{number} {'x' * 100}")
            await asyncio.sleep(0.05)
            own_server.kill()
            await until(lambda gaps=gaps: one.statistics().gaps == gaps)  # type: ignore[misc]
            assert one.statistics().outbox == keys
            before = there.everything
            own_server.start()
            await asyncio.wait_for(one.flush(), 10.0)
            await until(lambda before=before: there.everything > before)  # type: ignore[misc]
    assert reported == []
