"""Keeps a bus connected, one link after another, and completes its flushes."""

from __future__ import annotations

import asyncio
from random import random
from typing import final

from .drive import Drive
from .engine import BusClosedError, Engine
from .rules import Rules, pause


@final
class Reconnecting:
    """Opens a new link whenever one breaks.

    Args: timeout: seconds that connecting may take.
    """

    __slots__ = (
        "_attempt",
        "_drive",
        "_engine",
        "_flushes",
        "_is_stopped",
        "_loop",
        "_rules",
        "_timeout",
        "error",
        "up",
    )

    def __init__(self, engine: Engine, rules: Rules, timeout: float) -> None:
        self._engine, self._rules, self._timeout = engine, rules, timeout
        self._loop = asyncio.get_running_loop()
        self._drive: Drive | None = None
        #: Attempts to connect since the bus was last up. A connection alone does not reset it: an echo does.
        self._attempt = 0
        self._is_stopped = False
        #: For each waiting flush(), the number of its last key.
        self._flushes: dict[asyncio.Future[None], int] = {}
        #: Why the last link broke or could not be opened.
        self.error: Exception | None = None
        #: Done at the first echo, or fails with the reason why there was none.
        self.up: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Connect, and reconnect after each break. Returns after stop(), or if the first link did not come up."""
        try:
            while not self._is_stopped:
                self._drive = Drive(self._engine, self._rules, self._timeout, self._look)
                try:
                    await self._drive.run()
                except Exception as exc:
                    self.error = exc
                if not self.up.done():
                    self.up.set_exception(self.error or AssertionError())
                    return
                self._attempt += 1
                await asyncio.sleep(pause(self._attempt, random()))
        finally:
            self.stop()

    def wake(self) -> None:
        """Wake the link: there is something to send."""
        if self._drive is not None:
            self._drive.wake()

    def stop(self) -> None:
        """Drop the connections now, and fail the waiting flushes. Idempotent."""
        self._is_stopped = True
        if self._drive is not None:
            self._drive.abort()
        for flush in self._flushes:
            if not flush.done():
                flush.set_exception(BusClosedError("the bus was closed before the server acknowledged every key"))
        self._flushes.clear()

    async def flush(self) -> None:
        mark = self._rules.outbox.mark()
        if self._rules.outbox.acknowledged_up_to() >= mark:
            return
        flush = self._loop.create_future()
        self._flushes[flush] = mark
        try:
            await flush
        finally:
            self._flushes.pop(flush, None)

    def _look(self) -> None:
        """Update `up` and the flushes after an echo or an acknowledgement."""
        if self._rules.connected:
            self._attempt = 0
            if not self.up.done():
                self.up.set_result(None)
        if self._flushes:
            acknowledged = self._rules.outbox.acknowledged_up_to()
            for flush, mark in self._flushes.items():
                if mark <= acknowledged and not flush.done():
                    flush.set_result(None)
