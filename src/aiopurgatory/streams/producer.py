"""A run: the only producer of its topic, with a lease."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from contextvars import Context
from types import TracebackType
from typing import Final, Self, final

from ..clock import running_loop
from ..errors import PurgatoryClosedError
from .event import EndedError, StoreDownError, require_event, require_reason
from .tasks import Tasks
from .topic_state import RENEWAL, Keep
from .writer import Writer
from .writes import Appending, Beginning, Decide, Renewing

logger = logging.getLogger("aiopurgatory")

#: Seconds that a task which was cancelled, or has failed, waits until the end of its run is written.
PARTING: Final = 1.0


@final
class Run:
    """The result of ``EventLog.run()``: use it with ``async with``, once.

    Leaving the block ends the run, with the reason ``done``, or ``cancelled`` or ``failed`` if a cancellation or
    another exception leaves it. Then the end is written in the background, if it takes longer than a second, as in an
    outage. If the log closes before, the reason is ``abandoned``.

    A run with ``resume=True`` ends only as ``done``. Otherwise it is left to the next try.
    """

    def __init__(self, writer: Writer, runs: Runs, topic: str, lease: float, resume: bool, keep: Keep) -> None:
        self.topic: Final = topic
        self._writer, self._runs, self._lease, self._resume, self._keep = writer, runs, lease, resume, keep
        self._producer: Final = secrets.token_hex(8)
        self._written_at = 0.0
        self._is_entered = self._is_over = False
        self._last_id: str | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def last_id(self) -> str | None:
        """The id of the newest event; None: there is none yet. Listeners that resume after it get the later events."""
        return self._last_id

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError("a run can be entered once; ask the log for another one")
        self._is_entered = True
        try:
            found = await self._write(Beginning(self._producer, self._lease, self._resume, self._keep))
        except BaseException:
            self._is_entered = False  # the same run may be entered again: it may have begun
            raise
        self._last_id = None if found.endswith("-0") else found
        # In an empty context: a run may be left elsewhere than in the request that enters it.
        name = f"aiopurgatory log: lease of {self.topic[:50]}"
        self._renewing = asyncio.create_task(self._renew(), name=name, context=Context())
        self._runs.open.add(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._renewing is not None
        self._runs.open.discard(self)
        if self._renewing.get_loop().is_closed():
            return  # the coroutine is garbage
        self._renewing.cancel()
        if self._is_over:
            return
        self._is_over = True
        reason = "done"
        if exc_type is not None:
            if self._resume:
                return  # the next try takes it over
            reason = "cancelled" if issubclass(exc_type, (asyncio.CancelledError, GeneratorExit)) else "failed"
        # A task of its own: to cancel this one again, as anyio does at each await, must not lose the end.
        ending = self._begin_end(reason)
        await asyncio.wait([ending], timeout=None if exc_type is None else PARTING)
        if exc_type is None:
            ending.result()  # raises why it could not be written

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
            RuntimeError: the run was not entered.
            TypeError, ValueError: an argument is invalid.
        """
        require_event(data, name)
        self._require_begun()
        if self._is_over:
            raise EndedError(f"topic {self.topic!r}: the run has ended, or its block was left")
        self._last_id = await self._write(Appending(data, name, self._keep, self._producer, self._writer.stamp()))
        return self._last_id

    async def end(self, reason: str = "done") -> None:
        """End the run before its block is left. A second call, or one after another's end, does nothing.

        Args: reason: the data of the last event.

        Raises:
            StoreDownError: the server was down for longer than the lease.
            RuntimeError: the run was not entered.
            TypeError, ValueError: *reason* is invalid.
        """
        require_reason(reason)
        self._require_begun()
        if not self._is_over:
            await self._end(reason)
            self._is_over = True

    def _abandon(self) -> None:
        """The log closes: begin to end the run, unless another try is to come."""
        if not (self._resume or self._is_over):
            self._begin_end("abandoned")

    def _require_begun(self) -> None:
        if self._renewing is None:
            raise RuntimeError(f"the run of topic {self.topic!r} was not entered; use 'async with'")

    async def _end(self, reason: str) -> None:
        ending = Appending(reason, None, self._keep, self._producer, self._writer.stamp(), is_end=True)
        with suppress(EndedError):
            self._last_id = await self._write(ending)

    def _begin_end(self, reason: str) -> asyncio.Task[None]:
        return self._runs.endings.begin(self._write_end(reason), f"end of {self.topic[:50]}")

    async def _write_end(self, reason: str) -> None:
        """End the run, or log why that could not be written."""
        try:
            await self._end(reason)
        except Exception as exc:
            logger.warning("the run %r is %s, and its listeners learn it by the lease: %s", self.topic, reason, exc)
            raise

    async def _write(self, decide: Decide) -> str:
        began = running_loop().time()
        made = await self._writer.write(decide, self._lease)
        self._written_at = began  # it was made then, or later
        return made

    async def _renew(self) -> None:
        """Renew the lease as long as the run lasts (S6)."""
        loop = asyncio.get_running_loop()
        while not self._is_over:  # a client library may have lost the cancellation
            left = self._written_at + self._lease * RENEWAL - loop.time()
            if left > 0:  # every commit renews it
                await asyncio.sleep(left)
                continue
            try:
                await self._write(Renewing(self._producer))
            except EndedError:
                return  # the next append() says so
            except StoreDownError as exc:  # it has waited
                logger.warning("the lease of the run %r could not be renewed: %s", self.topic, exc)
            except PurgatoryClosedError:  # the log may be started again
                self._written_at = loop.time()
            except Exception:
                self._written_at = loop.time()
                logger.warning("the lease of the run %r could not be renewed", self.topic, exc_info=True)


@final
class Runs:
    """The runs of a log in this process that are open, and the ends that are being written."""

    def __init__(self) -> None:
        #: Those whose blocks were entered, and not left.
        self.open: Final[set[Run]] = set()
        self.endings: Final = Tasks()

    async def aclose(self) -> None:
        """End the open runs, as far as that takes a second."""
        for run in tuple(self.open):
            run._abandon()
        await self.endings.aclose(PARTING)
