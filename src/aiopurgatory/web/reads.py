"""Reads of a source: what it returns is checked, and kept for others that want the same. Awaited reads are shared by
polls that want the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import Context
from functools import partial
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, Final, Generic, TypeVar, final

from ..arguments import require_int, require_methods
from ..core.kit import NO_CHECK
from .answer import MAX_VERSION, Outages, is_entity_tag
from .request import K

V = TypeVar("V")
#: A version, and the body at that version.
State = tuple[str, bytes]

#: Bytes of the versions that are kept.
MAX_VERSIONS: Final = 1 << 20


#: Nothing is kept for a resource or a client's version of more characters than this. Clients may send anything.
MAX_KEY: Final = 200
#: Bytes that an entry counts in addition to its own.
_ENTRY: Final = 500


def is_async_source(source: Any) -> bool:
    """Return whether the methods of *source* have to be awaited.

    Raises: TypeError: it is a class, or lacks a method; or one method is an ``async def`` and the other is not.
    """
    require_methods("source", source, ("version", "read"), "Source")
    is_async, reads_async = iscoroutinefunction(source.version), iscoroutinefunction(source.read)
    if is_async != reads_async:
        one, other = ("version", "read") if is_async else ("read", "version")
        raise TypeError(
            f"source must have two plain methods or two async ones, got {source!r}: {one}() is an async def and "
            f"{other}() is not"
        )
    return is_async


def require_version(source: str, version: Any, method: str = "version") -> str:
    """Return *version*, which *method* of the class named *source* has returned.

    Raises: TypeError: it is no str; ValueError: it is short, and would not come back unchanged from an ETag.
    """
    what = "as the version " if method == "read" else ""
    if not isinstance(version, str):
        raise TypeError(f"{source}.{method}() must return {what}a str, got {_shown(version)}")
    if len(version) <= MAX_VERSION and not is_entity_tag(version):
        rule = (
            "1 or more characters of printable ASCII without spaces or quotes, and not end in a compression suffix "
            "such as -gzip"
        )
        shown = repr(version[:100]) + (f"... of {len(version):,} characters" if len(version) > 100 else "")
        raise ValueError(f"{source}.{method}() must return {what}{rule}; got {shown}")
    return version


def require_read(source: str, version: str, found: Any) -> State:
    """Return the version and the body of *found*, which read() of the class named *source* has returned.

    Args: version: the version that read() was called with.

    Raises: TypeError: it is neither bytes nor such a pair; ValueError: its version cannot be an ETag.
    """
    if isinstance(found, bytes):
        return version, found
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(f"{source}.read() must return bytes or (version, bytes), got {_shown(found)}")
    newer, body = found
    if not isinstance(body, bytes):
        raise TypeError(f"{source}.read() must return bytes or (version, bytes), got a pair with {_shown(body)}")
    return require_version(source, newer, "read"), body


def _shown(returned: Any) -> str:
    """Describe a value of a wrong type by its type: it may be long, or secret."""
    if isinstance(returned, CoroutineType):
        returned.close()  # else Python also warns of it
        return "a coroutine; make both methods async def, or none"
    return f"{type(returned).__name__}"


@final
class Kept(Generic[V]):
    """Keeps the newest entries, up to *max_bytes* in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[tuple[Any, ...], tuple[V, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, wanted: tuple[Any, ...]) -> V | None:
        return self._entries.get(wanted, (None, 0))[0]

    def keep(self, wanted: tuple[Any, ...], value: V, found: str | State) -> None:
        """Keep *value*, which has *found*, in place of an earlier one, unless the arguments are long."""
        self._drop(wanted)
        size = _ENTRY + (len(found) if isinstance(found, str) else len(found[0]) + len(found[1]))
        if size <= self._max_bytes and all(len(str(part)) <= MAX_KEY for part in wanted[:2]):
            self._entries[wanted] = value, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, wanted: tuple[Any, ...]) -> None:
        _, size = self._entries.pop(wanted, (None, 0))
        self.bytes -= size


@final
class Call:
    """A call of the source, and the polls that wait for its result."""

    __slots__ = ("check", "has_begun", "polls", "task")

    def __init__(self) -> None:
        #: What each poll awaits, in their order. Not shield(): cancelled, it reports a later error, from 3.14 on.
        self.polls: dict[asyncio.Future[Any], None] = {}
        #: The newest check that this call is known to follow; 0: none.
        self.check = 0
        self.has_begun = False
        self.task: asyncio.Task[Any]

    def leave(self, poll: asyncio.Future[Any]) -> None:
        """*poll* waits no longer. A call that no poll waits for is not begun, or is cancelled."""
        del self.polls[poll]
        if not self.polls:
            self.task.cancel()


@final
class Calls:
    """The calls of one method by their arguments, in one event loop.

    Args:
        read: awaits the method.
        kept: has ended calls.
        free: has as many places as calls of all methods may run.
        gate: what a call has to pass before it queues for a place.
    """

    def __init__(
        self,
        read: Callable[..., Coroutine[Any, Any, Any]],
        kept: Kept[Any],
        free: asyncio.Semaphore,
        gate: AbstractAsyncContextManager[Any],
    ) -> None:
        self._read, self._kept, self._free, self._gate = read, kept, free, gate
        #: Calls that have not begun; and the newest that have begun, and not ended.
        self._waiting: dict[tuple[Any, ...], Call] = {}
        self._begun: dict[tuple[Any, ...], Call] = {}

    def find(self, wanted: tuple[Any, ...], check: int) -> Call:
        """Return a call for a poll. Args: check: the newest check that called for it; NO_CHECK: none did."""
        kept: Call | None = self._kept.get(wanted)
        if kept is not None and kept.check >= check:
            return kept
        call = self._begun.get(wanted)
        if call is None or call.check < check or not call.polls:
            call = self._waiting.get(wanted)
            if call is None or not call.polls:
                call = self._waiting[wanted] = self._new(wanted)
            if check != NO_CHECK:
                call.check = max(call.check, check)
        return call

    def _new(self, wanted: tuple[Any, ...]) -> Call:
        call = Call()
        # Not create_task(): the app's own task factory may begin it at once, and polls that are woken in this loop
        # iteration are to share it. In an empty context: its result is for many requests.
        call.task = asyncio.Task(self._run(call, wanted), loop=asyncio.get_running_loop(), context=Context())
        call.task.add_done_callback(partial(self._end, call, wanted), context=Context())
        return call

    async def _run(self, call: Call, wanted: tuple[Any, ...]) -> Any:
        async with self._gate:
            await self._free.acquire()  # half the time of ``async with``
            try:
                # From now on, polls need one that begins later, unless a check before this woke them.
                call.has_begun = True
                self._begun[wanted] = self._waiting.pop(wanted)
                return await self._read(*wanted)
            finally:
                self._free.release()

    def _end(self, call: Call, wanted: tuple[Any, ...], task: asyncio.Task[Any]) -> None:
        for calls in (self._waiting, self._begun):
            if calls.get(wanted) is call:
                del calls[wanted]
        exc = None if task.cancelled() else task.exception()
        for poll in [poll for poll in call.polls if not poll.done()]:
            if task.cancelled():
                poll.cancel()
            elif exc is not None:
                poll.set_exception(exc)
                poll.exception()  # retrieved, even if the poll is cancelled before it could raise it
            else:
                poll.set_result(task.result())
        if call.check and exc is None and not task.cancelled():
            self._kept.keep(wanted, call, task.result())


class Reader(Generic[K]):
    """Reads *source*: in memory, or by awaited calls that polls share.

    A poll never shares a call that may have missed its change. Such a call has begun before the poll asked or, if a
    check has woken the poll, before that check. So all polls that a check wakes, in any number of slices, share a call.
    Its result is kept for later ones.

    A call that no poll waits for any more is not begun, or is cancelled. Otherwise a source that does not answer would
    keep all *max_reads* calls for clients that have left.

    Args: max_body_bytes, max_reads: as for LongPolling.

    Raises: TypeError, ValueError: an argument has a wrong type, or is out of its range.
    """

    def __init__(self, source: Any, max_body_bytes: int, max_reads: int) -> None:
        is_async = is_async_source(source)
        require_int("max_body_bytes", max_body_bytes, 0)
        require_int("max_reads", max_reads, 1)
        self._source: Final = source
        self._name: Final = type(source).__name__
        # In an empty context: what they return is for many requests.
        version, read = self._source.version, self._source.read
        #: Source.version, unchecked, for the checks of parked polls; None: it has to be awaited.
        self.peek: Callable[[K], str] | None = None if is_async else lambda name: Context().run(version, name)
        self._read: Callable[..., Any] = lambda name, since, version: Context().run(read, name, since, version)
        self.kept: Final = Kept[Any](max_body_bytes)
        self._max_reads: Final = max_reads
        self._outages: Final = Outages(f"the source {self._name}")
        self._loop: asyncio.AbstractEventLoop | None = None

    def version_now(self, resource: K) -> str:
        """The version of *resource*, in memory."""
        assert self.peek is not None
        return require_version(self._name, self.peek(resource))

    def body_now(self, wanted: tuple[K, str | None, str]) -> State:
        """The version and body from memory. Args: wanted: those of Source.read()."""
        found: State | None = self.kept.get(wanted)
        if found is None:
            resource, since, version = wanted
            found = require_read(self._name, version, self._read(resource, since, version))
            self.kept.keep(wanted, found, found)
        return found

    def calls(self) -> tuple[Calls, Calls]:
        """The calls of version(), and of read(), for a source that has to be awaited."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            # Versions have a gate: otherwise bodies would queue behind all of them, though each ends its polls.
            free, gate = asyncio.Semaphore(self._max_reads), asyncio.Semaphore(self._max_reads)
            self._versions = Calls(self._version, Kept(MAX_VERSIONS), free, gate)
            self._bodies = Calls(self._body, self.kept, free, nullcontext())
        return self._versions, self._bodies

    async def _version(self, resource: K) -> str:
        with self._outages:
            found = await self._source.version(resource)
        return require_version(self._name, found)

    async def _body(self, resource: K, since: str | None, version: str) -> State:
        with self._outages:
            found = await self._source.read(resource, since, version)
        return require_read(self._name, version, found)
