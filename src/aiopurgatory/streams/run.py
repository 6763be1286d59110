"""A run: the only producer of its topic, with a lease."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, final

from .event import EndedError, StoreDownError, require_event, require_reason
from .rules import PAUSE, Appending, Beginning, Decide, Keep, Renewing
from .writer import Writer

logger = logging.getLogger("aiopurgatory")

#: Makes a change by a writer, within so many seconds of an outage.
WriteTo = Callable[[Writer, Decide, float], Awaitable[str]]


@final
class Run:
    """What ``EventLog.run()`` returns: use it with ``async with``, once.

    Leaving the block ends the run, with the reason ``done``, or ``cancelled`` or ``failed`` if a cancellation or
    another exception leaves it.
    """

    def __init__(self, write: WriteTo, writer: Writer, topic: str, lease: float, resume: bool, keep: Keep) -> None:
        self.topic: Final = topic
        self._write_to, self._writer, self._lease, self._resume, self._keep = write, writer, lease, resume, keep
        self._producer: Final = secrets.token_hex(8)
        self._count = 0
        self._written_at = 0.0
        self._is_over = False
        self._last_id: str | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def last_id(self) -> str | None:
        """The id of the newest event; None: there is none yet. Listeners that resume after it get what comes next."""
        return self._last_id

    async def __aenter__(self) -> Self:
        if self._renewing is not None:
            raise RuntimeError("a run can be entered once; ask the log for another one")
        found = await self._write(Beginning(self._producer, self._lease, self._resume))
        self._last_id = None if found.endswith("-0") else found
        self._renewing = asyncio.create_task(self._renew(), name=f"aiopurgatory log: lease of {self.topic[:50]}")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._renewing is not None
        self._renewing.cancel()
        if exc_type is None:
            await self.end()
            return
        reason = "cancelled" if issubclass(exc_type, (asyncio.CancelledError, GeneratorExit)) else "failed"
        try:
            await self.end(reason)
        except StoreDownError as down:
            logger.warning(
                "the run %r ended (%s), and its listeners learn it by the lease: %s", self.topic, reason, down
            )

    async def append(self, data: str, name: str | None = None) -> str:
        """Append an event. Through an outage of the server, this waits for as long as the lease.

        Args:
            data: its text, at most 1 MiB.
            name: its kind, for the listeners: 1 to 100 printable characters, and not ``end``, ``error``, ``gone``,
                ``open`` or ``replaced``. None (default): no kind.

        Returns: its id.

        Raises:
            EndedError: the run has ended, as by ``EventLog.end()``; another producer has taken it over; or the lease
                was over, and listeners have ended it as ``abandoned``. Stop producing.
            StoreDownError: the server was down for longer than the lease. The event may be there nevertheless.
            TypeError, ValueError: an argument is invalid.
        """
        require_event(data, name)
        if self._is_over:
            raise EndedError("the run has ended")
        self._count += 1
        appending = Appending(data, name, self._keep, self._producer, self._count)
        self._last_id = await self._write(appending)
        return self._last_id

    async def end(self, reason: str = "done") -> None:
        """End the run before its block is left. A second call, or one after another's end, does nothing.

        Args: reason: the data of the last event.
        Raises: StoreDownError: the server was down for longer than the lease. TypeError, ValueError: *reason*.
        """
        require_reason(reason)
        if self._is_over:
            return
        self._count += 1
        appending = Appending(reason, None, self._keep, self._producer, self._count, is_end=True)
        with suppress(EndedError):
            self._last_id = await self._write(appending)
        self._is_over = True

    async def _write(self, decide: Decide) -> str:
        made = await self._write_to(self._writer, decide, self._lease)
        self._written_at = asyncio.get_running_loop().time()
        return made

    async def _renew(self) -> None:
        """Renew the lease as long as the run lasts (S6)."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._written_at + self._lease * PAUSE - loop.time()
            if left > 0:  # every commit renews it
                await asyncio.sleep(left)
                continue
            try:
                await self._write(Renewing(self._producer))
            except EndedError:
                return  # the next append() says so
            except Exception:
                self._written_at = loop.time()
                logger.warning("the lease of run %r could not be renewed", self.topic, exc_info=True)
