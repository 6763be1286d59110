"""notify_threadsafe() called, or interrupted, between any two instructions of the hand-over: nothing is lost or mute.

A trace function stands for the signal handler. Unlike a signal, it comes at a chosen instruction.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from core.parts import turns  # type: ignore[import-not-found]

from aiopurgatory import Purgatory
from aiopurgatory import handover as module


class Alarm(Exception):  # noqa: N818
    """Raised by a signal handler."""


#: Python runs signal handlers after these only: a lock is never taken and then not released.
CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")


class Interruption:
    """Calls *handler* once, at the *number*-th place of the hand-over where a signal handler might run."""

    def __init__(self, number: int, handler: Callable[[], object]) -> None:
        self.left = number
        self.handler = handler
        self.before = ""

    def has_come(self) -> bool:
        return self.left < 0

    @contextmanager
    def armed(self) -> Iterator[None]:
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for one such frame when tracing begins
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != module.__file__ or self.has_come():
            return None
        frame.f_trace = self._instruction  # Python 3.13 needs it before the next line
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode" and not self.has_come():
            before, self.before = self.before, dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self.left -= before.startswith(CHECKED)
            if self.has_come():
                self.handler()
        return self._instruction


async def test_threadsafe_from_a_signal_handler_is_never_lost(purgatory: Purgatory) -> None:
    number = 0
    while True:
        flag: list[int] = []

        def handle(flag: list[int] = flag) -> None:
            flag.append(1)
            purgatory.notify_threadsafe("signal")

        interruption = Interruption(number, handle)
        waiting = asyncio.create_task(purgatory.wait_for(partial(len, flag), ["signal"], timeout=None))
        await turns(1)
        with interruption.armed():
            purgatory.notify_threadsafe("other")
            await turns(5)
        if not interruption.has_come():
            waiting.cancel()
            break
        await turns(5)
        assert waiting.done(), f"lost at place {number}"
        number += 1
    assert number > 10


def test_threadsafe_interrupted_by_an_exception_is_not_mute() -> None:
    purgatory, stop = Purgatory(), asyncio.Event()
    started = threading.Event()

    async def main() -> None:
        async with purgatory:
            started.set()
            await stop.wait()

    def fail() -> None:
        raise Alarm

    async def wait() -> str:
        async with asyncio.timeout(5):
            return await purgatory.wait_for(lambda: "woken" if flag else None, ["key"], timeout=None)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=[main()])
    thread.start()
    try:
        assert started.wait(10)
        number = 0
        while True:
            flag: list[int] = []
            asyncio.run_coroutine_threadsafe(turns(5), loop).result(10)  # what came before is through
            interruption = Interruption(number, fail)
            try:
                with interruption.armed():
                    purgatory.notify_threadsafe("other")
            except Alarm:
                pass
            if not interruption.has_come():
                break
            waiting = asyncio.run_coroutine_threadsafe(wait(), loop)
            asyncio.run_coroutine_threadsafe(turns(5), loop).result(10)
            assert purgatory.num_delayed == 1
            flag.append(1)
            purgatory.notify_threadsafe("key")
            assert waiting.result(10) == "woken"
            number += 1
        assert number > 1
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
