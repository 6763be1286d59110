"""What a bus must not keep: an exception of a signal handler at a bad moment, and the session of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory.bus import LocalBus
from aiopurgatory.testing import MemoryBus, MemoryServer

from .waits import Recorder, until

Interrupt = Callable[[str, str], type[BaseException]]


class Raising(Recorder):
    """Its next call raises *error*, if there is one."""

    def __init__(self) -> None:
        super().__init__(self.fault)
        self.error: type[BaseException] | None = None

    def fault(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


async def test_start_interrupted_at_its_task_can_be_repeated(interrupt: Interrupt) -> None:
    bus = MemoryBus(MemoryServer(), [])
    with pytest.raises(interrupt("create_task", "aiopurgatory.bus.reconnecting")):
        await bus.start()
    async with asyncio.timeout(10.0), bus:
        assert bus.statistics().connected


async def test_link_interrupted_at_its_timer_still_notices_a_gap(
    interrupt: Interrupt, reported: list[dict[str, Any]]
) -> None:
    async with MemoryBus(MemoryServer(), [], heartbeat=0.1, timeout=0.1) as bus:
        interrupted = interrupt("call_at", "aiopurgatory.bus.reconnecting")  # of a probe
        await until(lambda: reported)
        assert [type(context["exception"]) for context in reported] == [interrupted]
        bus.lose()
        await until(lambda: bus.statistics().gaps == 1)


class Stopped(BaseException):
    """As pytest's own exceptions."""


@pytest.mark.parametrize("spread", [0.0, 0.05])
async def test_check_interrupted_is_repeated_by_the_next_link(spread: float, reported: list[dict[str, Any]]) -> None:
    """With a spread, a timer makes it. Otherwise the link would have no timer any more, either."""
    server, target = MemoryServer(), Raising()
    async with (
        MemoryBus(server, [target], heartbeat=0.1, timeout=0.1, spread=spread) as bus,
        MemoryBus(server, []) as other,
        asyncio.TaskGroup() as tasks,
    ):
        if spread:
            tasks.create_task(bus.gap())
            await until(lambda: not bus.statistics().connected)
        target.error = Stopped
        before = target.everything
        if not spread:
            other.publish("key")
        await until(lambda: target.error is None)
        await until(lambda: target.everything > before + bool(spread))
        await until(lambda: bus.statistics().connected)
        bus.lose()
        gaps = bus.statistics().gaps
        await until(lambda: bus.statistics().gaps > gaps)
    assert [type(context["exception"]) for context in reported] == [Stopped]


async def test_local_start_interrupted_by_a_target_can_be_repeated() -> None:
    target = Raising()
    target.error = Stopped
    async with LocalBus([]) as other:
        bus = LocalBus([target])
        with pytest.raises(Stopped):
            await bus.start()
        assert not bus.statistics().connected
        async with bus:
            assert target.everything == 2
            other.publish("key")
            await until(lambda: target.keys == ["key"])


# a bus that a request starts outlives it


async def test_bus_started_in_a_request_does_not_keep_its_session(requests: Any) -> None:
    async with MemoryBus(MemoryServer(), [], heartbeat=0.05) as other:
        bus = MemoryBus(MemoryServer(), [Recorder()], heartbeat=0.05)
        session = await requests.handle(bus.start)
        await asyncio.sleep(0.1)
        assert bus.statistics().connected
        assert requests.are_over(session)
        await bus.aclose()
        assert other.statistics().connected


async def test_targets_see_no_session_of_the_request_that_started_the_bus(requests: Any) -> None:
    server, seen = MemoryServer(), list[object]()
    target = Recorder(lambda: seen.append(requests.session.get()))
    bus = MemoryBus(server, [target], heartbeat=0.05, spread=0.01)
    await requests.handle(bus.start)
    async with MemoryBus(server, []) as other:
        other.publish("key")
        await until(lambda: target.keys == ["key"])
        await bus.gap()  # a timer checks everything
        await until(lambda: target.everything == 2)
    await bus.aclose()
    assert set(seen) == {None}
