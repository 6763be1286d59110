"""A bus's life on an event loop, with the server in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.bus import BusClosedError, BusConnectError
from aiopurgatory.bus.engine import Hear, Lost
from aiopurgatory.bus.server import ServerBus, hear_data
from aiopurgatory.testing import MemoryBus, MemoryServer

from .test_misbehaving import Stubborn
from .waits import OwnLink, Recorder, Told, until


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


async def test_publish_server_down_is_kept_and_sent_later(server: MemoryServer) -> None:
    here, there = Recorder(), Recorder()
    async with MemoryBus(server, [here]) as one, MemoryBus(server, [there]) as other:
        server.is_down = True
        await until(lambda: not one.statistics().connected)
        one.publish("a")
        flush = asyncio.create_task(one.flush())
        await asyncio.sleep(0.05)
        assert here.keys == ["a"]
        assert not flush.done()
        assert one.statistics().outbox == 1
        await until(lambda: "down" in str(one.statistics().error))
        server.is_down = False
        await asyncio.wait_for(flush, 10.0)
        await until(lambda: other.statistics().connected and one.statistics().connected)
        assert one.statistics().error is None
        assert (one.statistics().outbox, one.statistics().gaps) == (0, 1)


async def test_memory_bus_of_a_class_is_refused() -> None:
    with pytest.raises(TypeError, match="server must be an instance of a MemoryServer, got the class MemoryServer"):
        MemoryBus(MemoryServer, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["new", "closed"])
async def test_loss_or_gap_of_a_bus_that_is_not_open_is_refused(server: MemoryServer, state: str) -> None:
    """Nothing would be lost, and a gap would never end."""
    bus = MemoryBus(server, [])
    if state == "closed":
        async with bus:
            bus.lose()
            await bus.gap()
    with pytest.raises(BusClosedError):
        bus.lose()
    async with asyncio.timeout(5.0):
        with pytest.raises(BusClosedError):
            await bus.gap()


@pytest.mark.parametrize("turns", range(4))
async def test_gap_after_an_outage_ends_once_connected(server: MemoryServer, turns: int) -> None:
    here = Recorder()
    async with MemoryBus(server, [here]) as bus:
        server.is_down = True
        for _ in range(turns):
            await asyncio.sleep(0)
        server.is_down = False
        before = here.everything
        async with asyncio.timeout(5.0):
            await bus.gap()
        assert bus.statistics().connected
        assert here.everything > before


async def test_gap_of_a_bus_that_closes_meanwhile_ends(server: MemoryServer) -> None:
    async with MemoryBus(server, []) as bus:
        server.is_down = True
        gap = asyncio.create_task(bus.gap())
        await asyncio.sleep(0.01)
        assert not gap.done()
    async with asyncio.timeout(5.0):
        with pytest.raises(BusClosedError):
            await gap


async def test_closed_bus_says_so(server: MemoryServer) -> None:
    bus = MemoryBus(server, [])
    with pytest.raises(
        BusClosedError, match=r"the bus is not started: use 'async with' .*; in a web app, in its lifespan"
    ):
        bus.publish("key")
    await bus.start()
    await bus.start()
    server.is_down = True
    bus.publish("key")
    flush = asyncio.create_task(bus.flush())
    await until(lambda: not bus.statistics().connected)
    await bus.aclose()
    await bus.aclose()
    with pytest.raises(BusClosedError, match="closed before the server acknowledged every key"):
        await flush
    with pytest.raises(BusClosedError, match="the bus is closed"):
        bus.publish("key")
    assert not bus.statistics().connected


async def test_bus_bad_arguments_are_refused(server: MemoryServer) -> None:
    with pytest.raises(ValueError, match=r"heartbeat must be from 0.01 to 3600 s, got 0"):
        MemoryBus(server, [], heartbeat=0)
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        MemoryBus(server, [], timeout="5")  # type: ignore[arg-type]


async def test_start_server_down_raises_and_leaves_nothing(server: MemoryServer) -> None:
    server.is_down = True
    tasks, told = asyncio.all_tasks(), Told()
    bus = MemoryBus(server, [], observers=[told])
    with pytest.raises(BusConnectError, match="the MemoryServer is down"):
        await bus.start()
    assert asyncio.all_tasks() == tasks
    assert told.what == ["opened", "closed"]
    server.is_down = False
    async with bus:
        assert bus.statistics().connected


# start and close at once, and ends that nobody asked for


@pytest.mark.parametrize("engine", [Stubborn("open", False), OwnLink()], ids=["open", "echo"])
@pytest.mark.parametrize("turns", range(5))
async def test_aclose_during_start_ends_it(engine: OwnLink, turns: int) -> None:
    bus = ServerBus(engine, [], timeout=30.0)
    starts = [asyncio.create_task(bus.start()) for _ in range(3)]
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    await asyncio.wait_for(bus.aclose(), 5.0)
    done, _ = await asyncio.wait(starts, timeout=5.0)
    assert {type(task.exception()) for task in done} == {BusClosedError}
    assert len(done) == 3
    assert len(asyncio.all_tasks()) == 1


async def test_start_three_at_once_share_their_failure() -> None:
    bus = ServerBus(OwnLink(), [], timeout=0.05)
    raised = await asyncio.gather(*(bus.start() for _ in range(3)), return_exceptions=True)
    assert [type(exc) for exc in raised] == [BusConnectError] * 3
    assert "what is wrong: NeverEchoed" in str(raised[2])
    with pytest.raises(BusClosedError):
        bus.publish("key")


async def test_start_first_one_cancelled_ends_the_others(reported: list[dict[str, Any]]) -> None:
    bus = ServerBus(Stubborn("open", False), [], timeout=30.0)
    first, second = (asyncio.create_task(bus.start()) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait([first, second], timeout=5.0)
    assert first.cancelled()
    assert isinstance(second.exception(), BusClosedError)
    await asyncio.sleep(0)
    assert reported == []


async def test_start_second_one_cancelled_harms_nobody(server: MemoryServer) -> None:
    bus = MemoryBus(server, [])
    first, second = (asyncio.create_task(bus.start()) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await first
    assert bus.statistics().connected
    await bus.aclose()


async def test_start_during_aclose_is_a_life_of_its_own(server: MemoryServer) -> None:
    """The first life still sends and hears. That must not disturb the second."""
    there = Recorder()
    bus = MemoryBus(server, [])
    async with MemoryBus(server, [there]):
        await bus.start()
        bus.publish("old")
        closing = asyncio.create_task(bus.aclose())
        await asyncio.sleep(0)
        await bus.start()
        bus.publish("new")
        await closing
        await bus.flush()
        assert bus.statistics().connected
        assert bus.statistics().published == 1
        await until(lambda: there.keys == ["old", "new"])
        await bus.aclose()


def its_task() -> asyncio.Task[Any]:
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "aiopurgatory bus")
    return task


async def test_task_cancelled_by_others_says_so(server: MemoryServer, caplog: pytest.LogCaptureFixture) -> None:
    told, here = Told(), Recorder()
    async with MemoryBus(server, [here], observers=[told]) as bus:
        flush = asyncio.create_task(bus.flush())
        bus.publish("key")
        its_task().cancel()
        await until(lambda: not bus.statistics().connected)
        assert "cancelled, but not by aclose()" in str(bus.statistics().error)
        with pytest.raises(BusClosedError, match="call aclose"):
            bus.publish("key")
        await asyncio.wait([flush])
        before = bus.statistics().outbox_age
        await until(lambda: bus.statistics().outbox_age > before > 0.0)
        assert here.everything == 2  # it hears nothing more
        assert told.what == ["opened"]  # its metrics say that it is not connected
        (record,) = (record for record in caplog.records if "cancelled, but not by aclose()" in record.getMessage())
        assert record.levelname == "WARNING"  # an ordinary shutdown may do so
    assert told.what == ["opened", "closed"]
    assert bus.statistics().error is None
    async with bus:
        assert bus.statistics().connected


async def test_task_cancelled_at_once_fails_start(server: MemoryServer) -> None:
    """Cancelled before its first step, a task runs none of its code."""
    bus = MemoryBus(server, [])
    starting = asyncio.create_task(bus.start())
    await asyncio.sleep(0)
    its_task().cancel()
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(starting, 5.0)
    async with bus:
        assert bus.statistics().connected


async def test_task_ended_by_an_exception_fails_start() -> None:
    class Ends(OwnLink):
        async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> Self:
            raise GeneratorExit

    bus = ServerBus(Ends(), [])
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(bus.start(), 5.0)
    with pytest.raises(GeneratorExit):
        await bus._reconnecting._task  # type: ignore[misc]


async def test_link_cancelled_from_within_after_a_lost_cancellation_is_a_gap(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library has lost a cancellation of the bus' task before: that task counts it for ever."""
    async with MemoryBus(server, []) as bus:

        async def lose(self: object, messages: list[str]) -> None:
            try:
                its_task().cancel()
                await asyncio.sleep(5.0)
            except asyncio.CancelledError:
                raise ConnectionResetError("the library has lost it") from None

        async def send(self: object, messages: list[str]) -> None:
            monkeypatch.undo()
            raise asyncio.CancelledError

        def has_gaps(number: int) -> bool:
            return bus.statistics().gaps == number

        for gaps, fault in enumerate((lose, send), 1):
            monkeypatch.setattr("aiopurgatory.testing.memory_bus._MemoryLink.send", fault)
            bus.publish("key")
            await until(partial(has_gaps, gaps), 5.0)
            monkeypatch.undo()
            await until(lambda: bus.statistics().connected or bus.statistics().error, 5.0)
        await asyncio.wait_for(bus.flush(), 5.0)


async def test_aclose_in_an_outage_says_what_is_lost(server: MemoryServer, caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryBus(server, []) as bus:
        bus.publish("sent")
        await bus.flush()
        server.is_down = True
        await until(lambda: not bus.statistics().connected)
        for number in range(30_000):
            bus.publish(number)
        await asyncio.sleep(0.02)
        assert bus.statistics().outbox == 30_000
        assert bus.statistics().outbox_age >= 0.02
    assert "ended with 30000 keys that the server has not acknowledged" in caplog.text
    caplog.clear()
    server.is_down = False
    async with bus:
        bus.publish("sent")
    assert caplog.text == ""


async def test_outage_is_logged_once_a_minute(
    server: MemoryServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryBus(server, []) as bus:
        await bus.gap()
        assert caplog.text == "", "the control: it is connected again at once"
        server.is_down = True
        await until(lambda: bool(caplog.records))
        await asyncio.sleep(0.3)  # some attempts more
        assert caplog.text.count("is not connected, and tries again: ") == 1
        assert "the MemoryServer is down" in caplog.text
        now = asyncio.get_running_loop().time
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now() + 60.0)
        await until(lambda: len(caplog.records) == 2, 5.0)


class Failing(OwnLink):
    """An engine that hangs when it connects again, and turns a cancellation into an error."""

    is_connected = False

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> Self:
        if self.is_connected:
            try:
                await asyncio.sleep(30.0)
            except asyncio.CancelledError:
                raise OSError("of the client library") from None
        self.is_connected, self.lost = True, lost
        return await super().open(channels, hear, lost)

    async def send(self, messages: list[str]) -> None:
        self.hear(messages[0])


async def test_close_while_it_connects_again_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    engine = Failing()
    async with ServerBus(engine, []) as bus:
        engine.lost(ConnectionResetError("gone"))
        await until(lambda: not bus.statistics().connected)
        await asyncio.sleep(0.2)
    assert caplog.text == ""


async def test_log_that_joins_a_bus_while_it_starts_fails_it_not(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    bus = MemoryBus(server, [])
    starting = asyncio.create_task(bus.start())
    await asyncio.sleep(0)
    hear_data(bus, "aiopurgatory.events")
    await starting
    assert bus.statistics().connected
    await bus.aclose()
    assert caplog.text == ""


def test_bus_of_a_closed_loop_goes_quietly(server: MemoryServer) -> None:
    """A warning, or an error that nobody could catch, would fail this."""
    bus = MemoryBus(server, [])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(bus.start())
    assert bus.statistics().connected
    loop.close()
    hear_data(bus, "aiopurgatory.events")
    assert not bus.statistics().connected
    assert "closed without aclose()" in str(bus.statistics().error)
    del bus, server, loop
    gc.collect()


# purgatories as targets


class Wait(DelayedOperation[None]):
    ready = False

    def try_complete(self) -> bool:
        return Wait.ready and self.force_complete()


async def iterations_to_end_all(turn_budget: float) -> int:
    """Return the loop iterations in which 100,000 waiters end after a gap."""
    server = MemoryServer()
    async with (
        Purgatory(turn_budget=turn_budget) as purgatory,
        MemoryBus(server, [purgatory], heartbeat=60.0, timeout=60.0) as bus,
    ):
        Wait.ready = False
        for number in range(100_000):
            purgatory.watch(Wait(600.0), [number])
        Wait.ready = True
        gap = asyncio.create_task(bus.gap())
        ended: set[int] = set()
        while purgatory.num_delayed or not gap.done():
            await asyncio.sleep(0)
            ended.add(purgatory.statistics().completed)
        assert purgatory.statistics().completed == 100_000
        return len(ended)


@pytest.mark.slow
async def test_gap_with_many_waiters_is_sliced() -> None:
    """Other tasks run in between. The control has a budget that is never used up."""
    assert await iterations_to_end_all(0.001) > 20
    assert await iterations_to_end_all(1000.0) <= 3
