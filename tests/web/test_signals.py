"""Stop signals reach the purgatory and the server, with any handler."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.web import LongPolling, close_on_stop, signals
from aiopurgatory.web.signals import STOP_SIGNALS, on_stop_signal

from .polls import Counters, until


@pytest.fixture
def order() -> list[str]:
    """What has happened. A stop signal reaches the server's handler."""
    order: list[str] = []
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: order.append("server"))
    return order


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stop_signal_closes_everything_that_asked_in_the_next_turn(order: list[str], number: int) -> None:
    for name in ("a", "b"):
        on_stop_signal(lambda name=name: order.append(name))  # type: ignore[misc]
    signal.raise_signal(number)
    assert order == ["server"]
    await asyncio.sleep(0.01)
    assert order == ["server", "a", "b"]


def test_stop_signal_in_many_loops_goes_through_one_handler(order: list[str]) -> None:
    """Each loop of a test run would put another handler on top, until Ctrl-C ends in a RecursionError."""

    async def main(name: int) -> None:
        on_stop_signal(lambda: order.append(f"closed {name}"))
        if name == 1_999:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)

    for name in range(2_000):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main(name))
        loop.close()
    assert order == ["server", "closed 1999"]


async def test_stop_signal_after_a_server_put_back_a_handler(order: list[str]) -> None:
    on_stop_signal(lambda: order.append("closed"))
    ours = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: order.append("second"))
    on_stop_signal(lambda: order.append("closed again"))
    signal.signal(signal.SIGTERM, ours)
    signal.raise_signal(signal.SIGTERM)
    assert order == ["server"]


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
@pytest.mark.parametrize("by_loop", [True, False])
async def test_handlers_that_a_server_installs_later_are_found(
    order: list[str], monkeypatch: pytest.MonkeyPatch, before: Any, by_loop: bool
) -> None:
    """Sanic starts the app first, and ignores the signals meanwhile."""
    monkeypatch.setattr(signals, "AGAIN", (0.01, 0.05))
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGTERM, before)
    on_stop_signal(lambda: order.append("closed"))
    if by_loop:
        loop.add_signal_handler(signal.SIGTERM, order.append, "server")
    else:
        signal.signal(signal.SIGTERM, lambda *_: order.append("server"))
    await asyncio.sleep(0.1)
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: len(order) > 1)
    assert sorted(order) == ["closed", "server"]
    loop.remove_signal_handler(signal.SIGTERM)


async def test_stop_signal_that_nobody_handles_is_left_alone() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    on_stop_signal(lambda: None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


@pytest.mark.parametrize("place", ["main thread", "other thread"])
def test_stop_signal_after_the_loop_is_gone_reaches_the_server(order: list[str], place: str) -> None:
    async def main() -> None:
        on_stop_signal(lambda: order.append("closed"))

    if place == "main thread":
        asyncio.run(main())
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, main()).result()
    signal.raise_signal(signal.SIGTERM)
    assert order == ["server"]


def test_stop_signal_in_the_next_run_cancels_its_main_task() -> None:
    """As if nothing had asked for the signal in the run before."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order: list[str] = []

    async def poll() -> None:
        on_stop_signal(lambda: order.append("closed"))

    async def main(first: bool) -> None:
        await asyncio.create_task(poll())
        if first:
            return
        try:
            signal.raise_signal(signal.SIGINT)
            order.append("raised")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            order.append("cancelled")
            raise

    asyncio.run(main(first=True))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main(first=False))
    assert order == ["raised", "closed", "cancelled"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("when", ["as it ends", "as its loop closes"])
def test_stop_signal_asked_for_late_in_a_run_harms_no_later_run(when: str) -> None:
    """Once the main task is done, or asyncio.run() has put back Python's own handler: by that one the next run knows
    that it may set another.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked: list[object] = []
    opened: list[AsyncIterator[None]] = []

    def ask(run: object) -> None:
        on_stop_signal(asked.clear)
        asked.append(run)

    async def left_open() -> AsyncIterator[None]:
        try:
            yield
        finally:
            ask("closing")

    async def main(when: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        match when:
            case "as it ends":
                task.add_done_callback(ask)
            case "as its loop closes":
                opened.append(left_open())
                await anext(opened[0])
            case _:
                ask(task)

    for each in (when, "at once"):
        asyncio.run(main(each))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert len(asked) == 2


async def test_close_on_stop_closes_the_purgatory_once(purgatory: Purgatory, order: list[str]) -> None:
    for _ in range(100):  # as by a handler, at each request
        close_on_stop(purgatory)
    assert len([ref for _, ref in signals._callbacks if ref() == purgatory.close]) == 1
    waiting = asyncio.create_task(purgatory.wait_for(lambda: False, ["key"], timeout=None))
    await asyncio.sleep(0)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(PurgatoryClosedError):
        await waiting
    assert order == ["server"]


def test_close_on_stop_without_a_running_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        close_on_stop(Purgatory())


@pytest.mark.parametrize("stop_signals", [True, False])
@pytest.mark.usefixtures("order")
async def test_stop_signals_of_long_polls_can_be_left_alone(stop_signals: bool) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with LongPolling(Purgatory(), Counters(), stop_signals=stop_signals) as polling:
        assert (signal.getsignal(signal.SIGTERM) is before) != stop_signals
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)
        assert polling.purgatory.is_open != stop_signals


async def test_what_was_closed_is_not_kept_for_a_stop_signal() -> None:
    polling, purgatory = LongPolling(Purgatory(), Counters()), Purgatory()
    async with polling, purgatory:
        close_on_stop(purgatory)
    left = ref(polling), ref(purgatory)
    del polling, purgatory
    await asyncio.sleep(0)
    gc.collect()
    assert [each() for each in left] == [None, None]
