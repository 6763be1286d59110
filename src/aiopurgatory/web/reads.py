"""Reads of an asynchronous source, shared by polls that want the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextvars import copy_context
from typing import Any, Final, Generic, final

from .outages import Outages
from .prefer import K
from .source import AsyncSource, Read, SourceBusyError, require_read, require_version

#: Seconds that a read may queue for one of the ``max_reads`` after its poll's time is up.
MAX_QUEUE = 0.5


@final
class Call:
    """A call of the source, and the polls that wait for it."""

    __slots__ = ("_call", "_context", "_polls", "task")

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._call = call
        self._context = copy_context()  # of the first poll that asks, not of the one whose call has just ended
        self._polls: set[asyncio.Future[Any]] = set()
        #: None until it begins.
        self.task: asyncio.Task[Any] | None = None

    def begin(self, done: Callable[[asyncio.Task[Any]], object]) -> None:
        # Not create_task(): the app's own task factory may begin it at once.
        self.task = asyncio.Task(self._call(), loop=asyncio.get_running_loop(), context=self._context)
        self.task.add_done_callback(self._pass_on)
        self.task.add_done_callback(done)

    def join(self) -> asyncio.Future[Any]:
        """Return a future that gets the result. Pass it to leave()."""
        poll = asyncio.get_running_loop().create_future()
        self._polls.add(poll)
        return poll

    def leave(self, poll: asyncio.Future[Any]) -> bool:
        """Returns: whether no poll is left."""
        self._polls.discard(poll)
        if poll.done() and not poll.cancelled():
            poll.exception()  # retrieved, even if its poll was cancelled before it could raise it
        return not self._polls

    def _pass_on(self, task: asyncio.Task[Any]) -> None:
        exc = None if task.cancelled() else task.exception()
        for poll in self._polls:
            if poll.done():
                pass
            elif task.cancelled():
                poll.cancel()
            elif exc is not None:
                poll.set_exception(exc)
            else:
                poll.set_result(task.result())


class Reads(Generic[K]):
    """Calls *source* for polls: one call for all that want the same, and at most *most* calls at a time.

    Belongs to one event loop. A poll never shares a call that has already begun, since that may have missed a change. A
    call that no poll waits for any more is not begun, or is cancelled: otherwise a source that does not answer would
    keep all *most* calls for clients that have left.

    Bodies come before versions: each ends the polls that wait for it.
    """

    def __init__(self, source: AsyncSource[K], most: int, outages: Outages) -> None:
        self._source = source
        self._name: Final = type(source).__name__
        self._outages = outages
        self._free = most
        self._is_beginning = False
        #: Calls that have not begun.
        self._bodies: OrderedDict[Hashable, Call] = OrderedDict()
        self._versions: OrderedDict[Hashable, Call] = OrderedDict()

    async def version(self, resource: K, asked: Asked | None = None) -> str:
        found = await self._share(self._versions, resource, lambda: self._source.version(resource), asked)
        return require_version(self._name, found)

    async def body(self, resource: K, since: str | None, version: str, asked: Asked | None = None) -> Read:
        wanted = (resource, since, version)
        found = await self._share(self._bodies, wanted, lambda: self._source.read(resource, since, version), asked)
        return require_read(self._name, version, found)

    async def _share(
        self,
        queue: OrderedDict[Hashable, Call],
        wanted: Hashable,
        read: Callable[[], Awaitable[Any]],
        asked: Asked | None,
    ) -> Any:
        call = queue.get(wanted)
        if call is None:
            call = queue[wanted] = Call(lambda: self._outages.watch(read))
            self._begin_soon()
        poll = call.join()
        if asked is not None:
            asked.begin(call, poll)
        try:
            return await poll
        finally:
            if asked is not None:
                asked.end()
            if call.leave(poll):
                if call.task is not None:
                    call.task.cancel()
                elif queue.get(wanted) is call:
                    del queue[wanted]
            del call, poll, asked  # what is raised keeps this frame

    def _begin_soon(self) -> None:
        """Begin calls on the next loop iteration: polls that are woken in this one share them."""
        if self._free > 0 and not self._is_beginning:
            self._is_beginning = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_beginning = False
        while self._free > 0 and (queue := self._bodies or self._versions):
            _, call = queue.popitem(last=False)  # later polls need a call that begins later
            self._free -= 1
            call.begin(self._end)

    def _end(self, _: object) -> None:
        self._free += 1
        self._begin()


@final
class Asked:
    """What a poll waits for now. Once its time is up, it waits MAX_QUEUE seconds at most for a call to begin."""

    __slots__ = ("_call", "_is_late", "_poll", "_since", "_timer")

    def __init__(self, is_late: bool) -> None:
        """Args: is_late: it has no time from the start."""
        self._is_late = is_late
        self._call: Call | None = None
        self._poll: asyncio.Future[Any] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: Call, poll: asyncio.Future[Any]) -> None:
        self._call, self._poll = call, poll
        self._since = asyncio.get_running_loop().time()
        if self._is_late:
            self.hurry()

    def hurry(self) -> None:
        """The poll's time is up."""
        self._is_late = True
        if self._poll is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._since + MAX_QUEUE, self._give_up)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._call = self._poll = self._timer = None

    def _give_up(self) -> None:
        if self._call is not None and self._call.task is None and self._poll is not None and not self._poll.done():
            self._poll.set_exception(SourceBusyError("the source is busy: a read could not begin in time"))
