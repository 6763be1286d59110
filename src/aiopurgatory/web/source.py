"""Sources: the state that clients poll. What a source returns is checked, and kept for others that want the same."""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, Final, Generic, Protocol, TypeVar, final

from ..arguments import require_methods
from .answer import MAX_VERSION, is_entity_tag
from .prefer import K

K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
V = TypeVar("V")

#: A version, and the body at that version.
State = tuple[str, bytes]

#: Nothing is kept for a client's version or a resource of more characters than this. Clients may send anything.
MAX_KEY: Final = 200
#: Bytes that an entry counts in addition to its own.
_ENTRY: Final = 500


class Source(Protocol[K_contra]):
    """The polled state. Both methods are plain functions, or both are ``async def``.

    What they return is for all clients that want the same. So they are called in an empty context, without the context
    variables of any request: ``user.get()`` raises LookupError there. A user, or a tenant, belongs into the resource:
    ``resource=lambda scope: (user_of(scope), ...)``.

    Plain methods read memory. They are called in the event loop and must not block it.

    Make them ``async def`` if reading takes I/O, as in a database. Then polls and streams that want the same share a
    call, unless it may have missed a change. Those that one notification wakes share the calls that begin after it, in
    however many slices they are woken: 10,000 polls of a topic make two calls. If notifications of the same key come
    between the slices, each slice may make calls of its own. A poll that has just come, and one at the end of its time,
    share only calls that have not begun.

    Give each such call a timeout: a poll waits for a call that has begun, even beyond its own wait. A call must begin
    within that wait, or within 0.5 s if the wait is over. Otherwise the poll is answered 304 if it has read the version
    before and no check came since, or 503 if not. A poll that ends because its client leaves, or because the purgatory
    closes, does not wait for its call. A call that no poll waits for any more is cancelled. A poll that may not wait
    takes a place in the purgatory, too, while it reads.

    An exception of an ``async def`` answers the polls of that call with 503. Exceptions that stand for an answer are
    raised, as from plain methods: GoneError, NotFoundError, HTTPException of Starlette, FastAPI, Litestar, Quart or
    aiohttp, and Http404 and PermissionDenied of Django. The first failure is logged with its traceback, then one a
    minute, with their number.
    """

    def version(self, resource: K_contra, /) -> str | Awaitable[str]:
        """Return the version of *resource*: printable ASCII without spaces and quotes.

        It becomes the ETag, and the client resumes from it. One of more than 1,000 characters, such as for many
        resources, becomes a digest there. One version must never stand for two states: if your counters restart with
        the process, add a random prefix. Keep it cheap: it is called on every check. Make an ``async def`` one short
        query.

        Raises: NotFoundError: there is no such resource.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes | State | Awaitable[bytes | State]:
        """Return the body for a client at version *since*, when the state is at *version*.

        If the state may change between version() and read(), return ``(version, body)``: the version that the body is
        of, for instance from one query. Otherwise the ETag may be older than the body, and the client gets a part
        twice.

        Called once for all clients that want the same. If *since* or ``str(resource)`` is longer than 200 characters,
        called for each: the body is not cached.

        Args: since: as the client sent it, so it may be anything; None: the client sent no version, or several. Of a
            long version, a client has the digest, unless the version comes by a function of the route.
        Raises: GoneError: a client cannot resume from *since*. NotFoundError: there is no such resource.
        """
        ...


def is_async_source(source: Source[K]) -> bool:
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
        self._entries: dict[Hashable, tuple[V, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, wanted: Hashable) -> V | None:
        return self._entries.get(wanted, (None, 0))[0]

    def keep(self, wanted: Hashable, value: V, size: int) -> None:
        """Keep *value*, of *size* bytes, in place of an earlier one."""
        self._drop(wanted)
        size += _ENTRY
        if size <= self._max_bytes:
            self._entries[wanted] = value, size
            self.bytes += size
            while self.bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, wanted: Hashable) -> None:
        _, size = self._entries.pop(wanted, (None, 0))
        self.bytes -= size


def is_short(resource: Any, since: str | None) -> bool:
    """Whether to keep the body for a client with these."""
    return len(since or "") <= MAX_KEY and len(str(resource)) <= MAX_KEY
