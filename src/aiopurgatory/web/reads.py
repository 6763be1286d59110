"""Reads of a source: what it returns is checked, and kept for others that want the same. Awaited reads are shared by
polls that want the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, Final, Generic, TypeVar, final

from ..arguments import require_int, require_methods
from ..core.kit import NO_CHECK
from .answer import MAX_VERSION, Outages, SourceBusyError, is_entity_tag
from .request import K

V = TypeVar("V")
#: A version, and the body at that version.
State = tuple[str, bytes]

#: Seconds that a read may queue for one of the ``max_reads`` after its poll's time is up.
MAX_QUEUE = 0.5
#: Bytes of the versions that are kept.
MAX_VERSIONS: Final = 1 << 20


#: Nothing is kept for a client's version or a resource of more characters than this. Clients may send anything.
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

    def keep(self, wanted: tuple[Any, ...], value: V, size: int) -> None:
        """Keep *value*, of *size* bytes, in place of an earlier one, unless the resource or version is a long one."""
        self._drop(wanted)
        size += _ENTRY
        if size <= self._max_bytes and len(wanted[1] or "") <= MAX_KEY and len(str(wanted[0])) <= MAX_KEY:
            self._entries[wanted] = value, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, wanted: tuple[Any, ...]) -> None:
        _, size = self._entries.pop(wanted, (None, 0))
        self.bytes -= size


@final
class Line:
    """The calls of *read*, by their arguments.

    Args: kept: has results, with Call.check of each. size: the bytes of a result.
    """

    __slots__ = ("begun", "kept", "read", "size", "waiting")

    def __init__(
        self, read: Callable[..., Coroutine[Any, Any, Any]], kept: Kept[tuple[int, Any]], size: Callable[[Any], int]
    ) -> None:
        #: Calls that have not begun.
        self.waiting: OrderedDict[tuple[Any, ...], Call] = OrderedDict()
        #: By arguments: the newest call that has begun and not ended.
        self.begun: dict[tuple[Any, ...], Call] = {}
        self.read, self.kept, self.size = read, kept, size

    def find(self, wanted: tuple[Any, ...], check: int) -> Call | None:
        """Return a call for a poll that the check with this number has woken."""
        call = self.begun.get(wanted)
        return call if call is not None and call.check >= check else self.waiting.get(wanted)


@final
class Call:
    """A call of the source with the arguments *wanted*, and the polls that wait for its result."""

    __slots__ = ("check", "line", "polls", "task", "wanted")

    def __init__(self, line: Line, wanted: tuple[Any, ...]) -> None:
        self.line, self.wanted = line, wanted
        #: What each poll awaits, in their order. Not shield(): cancelled, it reports a later error, from 3.14 on.
        self.polls: dict[asyncio.Future[Any], None] = {}
        #: None until it begins.
        self.task: asyncio.Task[Any] | None = None
        #: The newest check that this call is known to follow; 0: none.
        self.check = 0

    def begin(self, done: Callable[[Call], object]) -> None:
        """Begin: later polls need one that begins later, unless a check before this woke them."""
        read = self.line.read(*self.wanted)
        try:
            # Not create_task(): the app's own task factory may begin it at once. In an empty context: its result is for
            # many requests.
            self.task = asyncio.Task(read, loop=asyncio.get_running_loop(), context=Context())
        except BaseException:
            read.close()
            raise
        self.task.add_done_callback(partial(self._end, done))
        del self.line.waiting[self.wanted]
        self.line.begun[self.wanted] = self

    def drop(self) -> None:
        """Nobody is to join this any more."""
        for calls in (self.line.waiting, self.line.begun):
            if calls.get(self.wanted) is self:
                del calls[self.wanted]

    def _end(self, done: Callable[[Call], object], task: asyncio.Task[Any]) -> None:
        self.drop()
        exc = asyncio.CancelledError() if task.cancelled() else task.exception()
        for poll in [poll for poll in self.polls if not poll.done()]:
            if exc is None:
                poll.set_result(task.result())
            else:
                poll.set_exception(exc)
                poll.exception()  # retrieved, even if the poll is cancelled before it could raise it
        if self.check and exc is None:
            found = task.result()
            self.line.kept.keep(self.wanted, (self.check, found), self.line.size(found))
        done(self)


class Asking:
    """What awaits calls for one client. Once its time is up, it waits MAX_QUEUE seconds at most for a call to begin."""

    __slots__ = ("_give_up", "_since", "_timer", "is_late")

    def __init__(self) -> None:
        #: Whether its time is up.
        self.is_late = False
        #: Ends its wait for a call, unless that has begun.
        self._give_up: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: Call, poll: asyncio.Future[Any]) -> None:
        self._give_up = partial(_give_up, call, poll)
        self._since = asyncio.get_running_loop().time()
        if self.is_late:
            self.hurry()

    def hurry(self) -> None:
        """Its time is up."""
        self.is_late = True
        if self._give_up is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._since + MAX_QUEUE, self._give_up)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._give_up = self._timer = None


def _give_up(call: Call, poll: asyncio.Future[Any]) -> None:
    if call.task is None and not poll.done():
        poll.set_exception(SourceBusyError("the source is busy: a read could not begin in time"))


class Reader(Generic[K]):
    """Reads *source*: in memory, or by awaited calls that polls share.

    A poll never shares a call that may have missed its change. Such a call has begun before the poll asked or, if a
    check has woken the poll, before that check. So all polls that a check wakes, in any number of slices, share a call.
    Its result is kept for later ones.

    A call that no poll waits for any more is not begun, or is cancelled. Otherwise a source that does not answer would
    keep all *max_reads* calls for clients that have left.

    Bodies come before versions: each ends the polls that wait for it.

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

    def _enter(self) -> None:
        """Begin anew in another event loop: calls belong to one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._free = self._max_reads
            self._is_beginning = False
            self._bodies = Line(self._read_body, self.kept, lambda read: len(read[0]) + len(read[1]))
            self._versions = Line(self._read_version, Kept(MAX_VERSIONS), len)

    def version_now(self, resource: K) -> str:
        """The version of *resource*, in memory."""
        assert self.peek is not None
        return require_version(self._name, self.peek(resource))

    def body_now(self, wanted: tuple[K, str | None, str]) -> State:
        """The version and body from memory. Args: wanted: the arguments of Source.read()."""
        found: State | None = self.kept.get(wanted)
        if found is None:
            resource, since, version = wanted
            found = require_read(self._name, version, self._read(resource, since, version))
            self.kept.keep(wanted, found, len(version) + len(found[1]))
        return found

    def version(self, resource: K, check: int, asked: Asking) -> Awaitable[str]:
        """Await the version of *resource*. Args: check: the newest check that called for it; NO_CHECK: none did."""
        self._enter()
        return self._share(self._versions, (resource, None), check, asked)

    def body(self, wanted: tuple[K, str | None, str], check: int, asked: Asking) -> Awaitable[State]:
        """Await the version and body. Args: wanted: the arguments of Source.read(). check: as for version()."""
        self._enter()
        return self._share(self._bodies, wanted, check, asked)

    async def _read_version(self, resource: K, since: None) -> str:
        return require_version(self._name, await self._outages.watch(lambda: self._source.version(resource)))

    async def _read_body(self, *wanted: Any) -> State:
        read = await self._outages.watch(lambda: self._source.read(*wanted))
        return require_read(self._name, wanted[2], read)

    async def _share(self, line: Line, wanted: tuple[Any, ...], check: int, asked: Asking) -> Any:
        kept = line.kept.get(wanted)
        if kept is not None and kept[0] >= check:
            return kept[1]
        call = line.find(wanted, check)
        if call is None:
            call = line.waiting[wanted] = Call(line, wanted)
        if call.task is None:
            self._begin_soon()
        if call.task is None and check != NO_CHECK:
            call.check = max(call.check, check)
        poll = asyncio.get_running_loop().create_future()
        call.polls[poll] = None
        asked.begin(call, poll)
        try:
            return await poll
        finally:
            del call.polls[poll]
            asked.end()
            if not call.polls:
                call.drop()
                if call.task is not None:
                    call.task.cancel()
            del call, poll, asked  # an exception keeps this frame

    def _begin_soon(self) -> None:
        """Begin calls on the next loop iteration: polls that are woken in this one share them."""
        if self._free > 0 and not self._is_beginning:
            # In an empty context: each call that ends begins the next, so the first poll's would live on.
            asyncio.get_running_loop().call_soon(self._begin, context=Context())
            self._is_beginning = True  # now that it is true: a signal handler may raise in between

    def _begin(self) -> None:
        self._is_beginning = False
        try:
            while self._free > 0 and (self._bodies.waiting or self._versions.waiting):
                line = self._bodies if self._bodies.waiting else self._versions
                next(iter(line.waiting.values())).begin(self._end)
                self._free -= 1
        except BaseException:  # of a signal handler
            self._begin_soon()
            raise

    def _end(self, call: Call) -> None:
        if call.line in (self._bodies, self._versions):  # else it is of an earlier loop
            self._free += 1
            self._begin()
