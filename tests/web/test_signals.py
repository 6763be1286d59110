"""Stop signals reach the purgatory and the server, whoever handles them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from aiopurgatory.web.signals import on_stop_signal

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stop_signal_closes_before_the_server_sees_the_next_turn(number: int) -> None:
    order: list[str] = []
    signal.signal(number, lambda *_: order.append("server"))
    undo = on_stop_signal(lambda: order.append("closed"))
    signal.raise_signal(number)
    assert order == ["server"]
    await asyncio.sleep(0.01)
    assert order == ["server", "closed"]
    undo()
    signal.raise_signal(number)
    await asyncio.sleep(0.01)
    assert order == ["server", "closed", "server"]


async def test_stop_signal_handled_by_the_loop_reaches_both() -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, order.append, "loop")
    try:
        undo = on_stop_signal(lambda: order.append("closed"))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.02)
        assert sorted(order) == ["closed", "loop"]
        undo()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.02)
        assert sorted(order) == ["closed", "loop", "loop"]
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_stop_signal_that_nobody_handles_is_left_alone() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    on_stop_signal(lambda: None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


async def test_stop_signal_handler_put_on_top_stays() -> None:
    def below(number: int, frame: FrameType | None) -> None: ...
    def on_top(number: int, frame: FrameType | None) -> None: ...

    signal.signal(signal.SIGTERM, below)
    undo = on_stop_signal(lambda: None)
    signal.signal(signal.SIGTERM, on_top)
    undo()
    assert signal.getsignal(signal.SIGTERM) is on_top


def test_stop_signal_after_the_loop_is_gone_reaches_the_server() -> None:
    order: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: order.append("server"))

    async def main() -> None:
        on_stop_signal(lambda: order.append("closed"))

    asyncio.run(main())
    signal.raise_signal(signal.SIGTERM)
    assert order == ["server"]


def test_stop_signal_in_another_thread_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> Callable[[], None]:
        return on_stop_signal(lambda: None)

    thread = threading.Thread(target=lambda: asyncio.run(main())())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
