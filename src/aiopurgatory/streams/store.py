"""The protocol of stores, each of which keeps a log on one kind of server; and one that remembers its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from ..clock import cancellations
from ..errors import PurgatoryError
from .event import StoreDownError, StoreError

#: An event as a store keeps it: its number, and its text.
Row = tuple[int, str]

#: A number above all events, to read none.
NEWEST: Final = 1 << 52


@dataclass(slots=True)
class Page:
    """A topic as a store has it at one moment.

    Args:
        version: of its state; empty: there is no such topic.
        state: as the last commit stored it.
        idle: seconds since then, by the server's clock.
        now: the server's clock, in seconds.
        server: tells one life of the server's data from another: a failover, or a restart, changes it.
        rows: the oldest events after those asked for, in the order of their numbers.
        archive: as the last commit with one stored it.
    """

    version: str
    state: str
    idle: float
    now: float
    server: str
    rows: list[Row]
    archive: str = ""


@dataclass(slots=True)
class Commit:
    """A change of a topic.

    Args:
        expected: the version that it changes; empty: there is no such topic yet.
        server: the incarnation of the data that *expected* was read from. After a failover, newer versions may be lost
            although listeners saw them: then the change is refused, and decided again.
        version: the new version.
        state: the new state.
        rows: events to add.
        first: the number of the first event to keep.
        keep: seconds after which the topic may be deleted if nothing is committed any more.
        is_plain: it adds events, or nothing, and changes nothing else that listeners need: see Change.
        archive: a part of the state that few commits change; empty: it stays as it is.
    """

    expected: str
    server: str
    version: str
    state: str
    rows: list[Row]
    first: int
    keep: float
    is_plain: bool = False
    archive: str = ""


@dataclass(slots=True)
class Change:
    """A wake-up may tell this of a commit: a worker that knows the topic at version *expected* need not read it.

    Args:
        expected: the version that it changes.
        version: the new version.
        rows: the events that it has added.
    """

    expected: str
    version: str
    rows: list[Row]


Notify = Callable[[str, Change | None], object]


class Store(Protocol):
    """Keeps topics. It knows no rules: it compares versions, and stores the given rows.

    Any error of a connection is a StoreDownError; the log then tries again. Any other exception ends listeners.
    """

    async def open(self, notify: Notify, notify_all: Callable[[], object], /) -> None:
        """Connect. From then on, call *notify* with the topic of each commit of any process, soon after the commit.

        It may also get the change, if that is plain; else None.

        Call *notify_all* if such calls may have been lost. If this raises, aclose() follows.

        Raises:
            StoreDownError: it cannot connect; the message has the reason and the remedy.
            PurgatoryError: it can, but the log cannot be used there.
        """

    async def aclose(self) -> None:
        """Disconnect."""

    @property
    def error(self) -> str | None:
        """Why commits of other processes are not heard of now; None: they are."""
        return None

    def read(self, topic: str, after: int, rows: int, size: int, /) -> Coroutine[Any, Any, Page]:
        """A coroutine: return *topic* as it is now, with the events above the number *after*.

        Args: rows: the most events. size: bytes after which to add no further event.
        Raises: StoreDownError.
        """
        ...

    def commit(self, topic: str, commit: Commit, /) -> Coroutine[Any, Any, Page]:
        """A coroutine: make *commit*, and tell every process, in one atomic step (S11).

        It is made if the topic has the expected version, and the server's data the expected life.

        Returns: the topic as it is now, without events. If its version differs from the commit's, that was refused.
        Raises: StoreDownError: it may, or may not, have been made.
        """
        ...


@final
class WatchedStore(Store):
    """Passes everything on to *store*. Any error of its reads and commits is a StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Why the last read or commit failed. Reads may succeed while commits fail, as on a full disk.
        self._errors: dict[str, str] = {}

    @property
    def error(self) -> str | None:
        """Why the server cannot be used: the later failure of both, or because commits are not heard of."""
        return next(reversed(self._errors.values()), None) or self._store.error

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._errors.clear()

        def back() -> None:
            self._errors.clear()
            notify_all()

        await self._store.open(notify, back)

    async def aclose(self) -> None:
        await self._store.aclose()

    def read(self, topic: str, after: int, rows: int, size: int) -> Coroutine[Any, Any, Page]:
        return self._watched("read", self._store.read(topic, after, rows, size))

    def commit(self, topic: str, commit: Commit) -> Coroutine[Any, Any, Page]:
        return self._watched("commit", self._store.commit(topic, commit))

    async def _watched(self, what: str, answer: Awaitable[Page]) -> Page:
        try:
            page = await answer
        except (Exception, asyncio.CancelledError) as exc:
            error = _error_of(exc)
            if isinstance(error, StoreDownError):
                self._errors.pop(what, None)  # so that it comes last
                self._errors[what] = str(error)
            if error is exc:
                raise
            raise error from exc
        self._errors.pop(what, None)
        return page


def _error_of(exc: Exception | asyncio.CancelledError) -> BaseException:
    """Return the error to raise in place of *exc*, which comes from a store; or *exc* itself."""
    if isinstance(exc, PurgatoryError):
        return exc
    if not isinstance(exc, asyncio.CancelledError):
        return StoreError(f"the store has failed: {type(exc).__name__}: {exc}")
    # As a closed pool of connections may do.
    return exc if cancellations() else StoreDownError("the store has cancelled its answer")
