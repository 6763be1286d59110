"""The public class of a log: runs, events of many writers, and listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import Any, Final, TypedDict

from ..arguments import require, require_int, require_methods, require_seconds, require_text
from ..clock import running_loop
from ..core.kit import Observer, core_of
from ..errors import PurgatoryClosedError
from ..lifecycle import Starting
from ..purgatory import Purgatory
from .event import StoreDownError, require_event, require_log_name, require_reason, require_topic
from .position import Follow, Position
from .producer import Run, Runs
from .store import NEWEST, Store, WatchedStore
from .tail import Tails
from .topic_state import Keep, in_force, state_of
from .writer import Writer
from .writes import Appending, Write, stamp_of

_logger: Final = logging.getLogger("aiopurgatory")

_NO_LIFESPAN: Final = (
    "log %r was given to an app as its lifespan, and is used before that was run; a server runs only the lifespan of "
    "the outermost app: give that lifespan=log.lifespan, or 'async with log' in its own; otherwise a worker that stops "
    "leaves the ends of its runs to their leases"
)
_LARGER_BOUND: Final = "log %r: topic %r keeps the keep_%s=%s of another process, not keep_%s=%s: give all the same"
#: append() remembers the state of at most so many topics.
_MAX_WRITERS: Final = 1_000

#: Seconds that the checks of listeners may take of a loop iteration. The next one runs the tasks that they have woken,
#: which takes longer than the checks.
_TURN_BUDGET: Final = 0.003


class LogOptions(TypedDict, total=False):
    """The options of every log; see EventLog."""

    name: str
    keep_events: int | None
    keep_bytes: int | None
    keep_seconds: float | None
    window_bytes: int
    unknown_timeout: float | None
    max_listeners: int | None
    observers: Iterable[Observer]


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A snapshot of a log in this process. Counts are since its last start.

    Args:
        name: the log's name.
        topics: topics with listeners here.
        listeners: the listeners of these topics.
        window_bytes: bytes of the newest events that are kept here for them.
        reads: reads of the store.
        appended: events appended here, as far as the server has acknowledged them.
        abandoned: runs that this process has ended as abandoned.
        error: why the server could not be used last, or why commits of other processes are not heard of now; None:
            neither, or it is back since.
    """

    name: str
    topics: int
    listeners: int
    window_bytes: int
    reads: int
    appended: int
    abandoned: int
    error: str | None


class EventLog(Starting):
    """Topics of events: each listener, in any process, gets each event once, in order, until the end.

        async with log.run("answers/7") as run:  # in one process
            async for token in model(prompt):
                await run.append(token)

        async for event in log.follow("answers/7", after=last_id):  # in any
            ...

    Use RedisLog, PostgresLog or MemoryLog. It starts at its first use, or by ``async with``, which raises
    StoreDownError if the server is down. It belongs to the event loop that started it.

    Args:
        store: where the events are.
        name: labels the log, and separates its topics from other logs on the same server; 1 to 40 letters,
            digits, ``_`` and ``-``; default "events".
        keep_events: events to keep of a topic, at most. None (default): as many as another process has given, or
            10,000. A bound that is given is stored with the topic at each append. Of two, the larger one holds, and the
            process with the smaller one logs a warning, once. Events are dropped in blocks, by later appends: of each
            bound, at least 15/16 is kept.
        keep_bytes: the same for bytes of data; without any, 16 MiB. The newest event stays in any case.
        keep_seconds: the same for the seconds to keep an event, and a topic after its last change; without any, a day.
        window_bytes: bytes of the newest events to hold for all listeners of this process; default 16 MiB. Each counts
            as text and as a server-sent event.
        unknown_timeout: seconds that a listener waits for a topic that does not exist yet; default 10. A random part of
            1/16 is added. EventRoute answers only then, so proxies must wait for longer. None: such a topic is an empty
            one. Listeners wait for its first event, and routes answer 200 at once, or an empty list at the deadline.
        max_listeners: refuse more listeners in this process than this, with PurgatoryFullError; default None: no limit.
        observers: told when this opens and closes, and when listeners end; default: none.

    Raises: TypeError, ValueError: an argument has the wrong type, or is out of its range.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "events",
        keep_events: int | None = None,
        keep_bytes: int | None = None,
        keep_seconds: float | None = None,
        window_bytes: int = 16 << 20,
        unknown_timeout: float | None = 10.0,
        max_listeners: int | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        require_methods("store", store, ("open", "aclose", "read", "commit"), "Store")
        require_log_name(name)
        most = {"keep_events": keep_events, "keep_bytes": keep_bytes, "max_listeners": max_listeners}
        for parameter, count in most.items():
            if count is not None:
                require_int(parameter, count, 1)
        if keep_seconds is not None:
            require_seconds("keep_seconds", keep_seconds, 1.0, 1e9)
        require_int("window_bytes", window_bytes, 0)
        if unknown_timeout is not None:
            require_seconds("unknown_timeout", unknown_timeout, 0.0, 1e6)
        self._store: Final = WatchedStore(store)
        #: The bounds that are given, and whether it was logged that a topic has larger ones.
        self._keep: Final = Keep(int(keep_events or 0), int(keep_bytes or 0), float(keep_seconds or 0.0))
        self._has_warned = False
        self._window_bytes = window_bytes
        #: Infinite: an unknown topic is an empty one.
        self.unknown_timeout: Final = inf if unknown_timeout is None else float(unknown_timeout)
        self.purgatory: Final = Purgatory(
            name, max_pending=max_listeners, turn_budget=_TURN_BUDGET, observers=observers
        )
        self._tails: Tails | None = None
        self._is_closed = False
        #: The loop that it runs in, or ran in last, and the lock under which it is started and closed there.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        #: Why the server could not be reached at the last start, and when that was.
        self._down: StoreDownError | None = None
        self._down_at = 0.0
        self._runs: Final = Runs()
        self._new_writer: Final = partial(Writer, self._store, ready=self._ready, made=self._note)
        self._writer: Final = lru_cache(_MAX_WRITERS)(self._new_writer)
        self._appended = 0
        #: Whether an app was given the lifespan, and has not run it.
        self._awaits_lifespan = False

    @property
    def name(self) -> str:
        """The name shown in statistics and metrics."""
        return self.purgatory.name

    def __repr__(self) -> str:
        state = "open" if self._tails is not None else "closed" if self._is_closed else "new"
        return f"<{type(self).__name__} {self.name!r} {state} listeners={self.purgatory.num_delayed}>"

    # life

    async def start(self) -> None:
        """Connect, in the running loop. Once it is open, a call does nothing.

        The first use calls this, and if it fails, each later use does so again.

        Raises:
            StoreDownError: it cannot connect; the message has the reason and the remedy.
            PurgatoryError: the server has no tables, and the like.
            RuntimeError: it runs in another loop, or was started before a fork.
        """
        loop = running_loop()
        began = loop.time()
        async with self._my_turn():
            if self._loop is not loop:
                raise RuntimeError(f"log {self.name!r} belongs to another event loop; start one in each loop")
            # Another call has tried while this one waited for its turn.
            if self._down is not None and self._down_at > began:
                raise StoreDownError(*self._down.args) from self._down.__cause__
            was_open = self.purgatory.is_open  # clients of a route wait there already
            await self.purgatory.start()
            if self._tails is not None:
                return
            tails = Tails(self._store, self.purgatory, self._window_bytes, self.unknown_timeout)
            try:
                await self._store.open(tails.notify, tails.notify_all)
            except BaseException as exc:
                if not was_open:
                    self.purgatory.close()
                with suppress(Exception):
                    await self._store.aclose()
                self._down, self._down_at = exc if isinstance(exc, StoreDownError) else None, loop.time()
                raise
            self._tails, self._is_closed, self._appended, self._down = tails, False, 0, None
            core_of(self.purgatory).observers.tell_opened(self)

    async def aclose(self) -> None:
        """End every listener with PurgatoryClosedError, and disconnect. A second call does nothing.

        Runs that are still in their blocks end as ``abandoned``, except those with ``resume=True``. Their ends are
        written within a second; otherwise, listeners learn of them when the lease is over.
        """
        async with self._my_turn():
            tails, self._is_closed = self._tails, True
            if tails is None:
                return
            core_of(self.purgatory).observers.tell_closed(self)
            try:
                await self.purgatory.aclose()
                await self._runs.aclose()
            finally:
                self._tails = None
                self._writer.cache_clear()
                try:
                    await tails.aclose()
                finally:
                    await self._store.aclose()

    @property
    def lifespan(self) -> Callable[..., AbstractAsyncContextManager[None]]:
        """Start with an app, and close with it: ``FastAPI(lifespan=log.lifespan)``, and so for Starlette.

        A server runs only the lifespan of the outermost app, not of mounted ones.
        """
        self._awaits_lifespan = True
        return self._live

    @asynccontextmanager
    async def _live(self, app: Any = None) -> AsyncIterator[None]:
        self._awaits_lifespan = False
        async with self:
            yield

    def statistics(self) -> LogStatistics:
        """Return a snapshot of this process' part of the log."""
        tails = self._tails
        return LogStatistics(
            name=self.name,
            topics=0 if tails is None else len(tails),
            listeners=self.purgatory.num_delayed,
            window_bytes=0 if tails is None else tails.windows.size,
            reads=0 if tails is None else tails.reads.count,
            appended=self._appended,
            abandoned=0 if tails is None else tails.reads.abandoned,
            error=None if tails is None else self._store.error,
        )

    # writing

    def run(self, topic: str, *, lease: float = 15.0, resume: bool = False) -> Run:
        """Return the run of *topic*: enter it with ``async with``, append to it, and leave it to end it.

        A topic has one run, for ever. If its process dies, or loses the server for longer than the lease, the listeners
        end the run as ``abandoned``. That is after the lease and a third of it. If the log closes before the block is
        left, it ends the run so at once.

        Args:
            topic: 1 to 200 characters.
            lease: seconds, from 0.1 to ``keep_seconds``; default 15. It is renewed as long as the block lasts.
            resume: the block is a try of a job that may be tried again; default False. It takes over the run of the
                former try, which gets EndedError, and ``run.last_id`` is the id of its last event. If there is
                none, the run begins. If an exception or a cancellation leaves the block, or the log closes, the run
                does not end, but waits for the next try. Choose a lease that is longer than the time to it.

        Entering raises:
            TopicExistsError: the topic has a run already, or many write to it.
            EndedError: its run has ended.
            StoreDownError: the server was down for as long as the lease.
        """
        require_topic(topic)
        require_seconds("lease", lease, 0.1, 1e6)
        longest = in_force(self._keep).seconds
        require(lease <= longest, "lease", f"at most keep_seconds={longest:g}", lease)
        require(isinstance(resume, bool), "resume", "a bool", resume)
        return Run(self._new_writer(topic), self._runs, topic, float(lease), resume, self._keep)

    async def append(
        self,
        topic: str,
        data: str,
        name: str | None = None,
        *,
        id: str | None = None,  # noqa: A002
        timeout: float = 15.0,
    ) -> str:
        """Append an event to a topic that many write to.

        Args:
            topic: 1 to 200 characters. It begins with its first event.
            data: the event's text, at most 1 MiB.
            name: its kind, as for ``Run.append()``.
            id: an id of your own, of 1 to 100 characters. A topic remembers its last 64 writers: each id is one, and
                each process that gives none. If it remembers this id, nothing is added. So a call that failed, or was
                cancelled, can be repeated. None (default): such a call may add the event twice. (Repeats by the log
                itself in an outage add it once, unless 64 others have written to the topic meanwhile.)
            timeout: seconds of an outage to wait through; default 15.

        Returns: the id of the event.

        Raises:
            TopicExistsError: the topic has a run: only its producer appends.
            EndedError: the topic has ended.
            StoreDownError: the outage was longer. The event may be there nevertheless.
            PurgatoryClosedError: the log is closed.
            TypeError, ValueError: an argument is invalid.
        """
        appending = self._appending(topic, data, name, id)
        require_seconds("timeout", timeout)
        writer = self._writer(topic)
        if id is None:
            appending.stamp = writer.stamp()
        return await writer.write(appending, timeout)

    async def end(self, topic: str, reason: str = "done", *, timeout: float = 15.0) -> str:
        """End a topic that many write to, or, from any process, a run: its producer gets EndedError.

        A topic that does not exist yet is ended before it begins: a run cannot be entered any more.

        Args: reason: the data of the last event. timeout: seconds of an outage to wait through; default 15.
        Returns: the id of the last event.
        Raises: EndedError: it has ended. StoreDownError: the outage was longer. TypeError, ValueError.
        """
        require_topic(topic)
        require_reason(reason)
        require_seconds("timeout", timeout)
        writer = self._writer(topic)
        return await writer.write(Appending(reason, None, self._keep, stamp=writer.stamp(), is_end=True), timeout)

    # listening

    def follow(self, topic: str, after: str | None = None) -> Follow:
        """Return an asynchronous iterator of the events of *topic*. Its last event has ``is_end``.

        Args:
            topic: 1 to 200 characters. If it does not exist yet, it is waited for.
            after: the id of the last event that the listener has; None (default): from the beginning. For a topic that
                many write to, that is the oldest event kept.

        Iterating raises:
            GoneError: events after *after*, or the beginning of a run, are not kept any more. To go on with the kept
                events, follow again after its ``after``.
            NotFoundError: there was no such topic for ``unknown_timeout`` seconds, if that is not None.
            PurgatoryClosedError: the log closes, or ``close_on_stop(log.purgatory)`` was called and the server stops.
            PurgatoryFullError: there are ``max_listeners`` already.
            StoreDownError: the server is down at the first use of the log. (A later outage is waited for.)
            StoreError: the topic cannot be read.
        """
        require_topic(topic)
        if after is not None:
            require_text("after", after)
        return Follow(self._ready, topic, after)

    async def last_id(self, topic: str) -> str | None:
        """Return the id of the newest event of *topic*, to follow only later events; None: there is none.

        Raises: StoreDownError, StoreError.
        """
        require_topic(topic)
        await self._ready()
        state = state_of(await self._store.read(topic, NEWEST, 1, 1))
        return state.id_of(state.last) if state is not None and state.last > 0 else None

    # inside

    async def _ready(self) -> Tails:
        if self._tails is None or self._loop is not asyncio.get_running_loop():
            if self._tails is None and self._is_closed:
                raise PurgatoryClosedError(f"log {self.name!r} is closed")
            if self._awaits_lifespan:
                self._awaits_lifespan = False
                _logger.warning(_NO_LIFESPAN, self.name)
            await self.start()
        assert self._tails is not None
        return self._tails

    def _my_turn(self) -> asyncio.Lock:
        """Return the lock for starting and closing. Forget an earlier loop, unless that still runs this."""
        loop = asyncio.get_running_loop()
        if self._loop is None or (self._loop is not loop and (self._tails is None or self._loop.is_closed())):
            self._loop, self._turn, self._tails, self._down = loop, asyncio.Lock(), None, None
            self._writer.cache_clear()
            self._runs.open.clear()
        return self._turn

    def _appending(self, topic: str, data: str, name: str | None, own_id: str | None) -> Appending:
        require_topic(topic)
        require_event(data, name)
        if own_id is not None:
            require_text("id", own_id)
            require(1 <= len(own_id) <= 100, "id", "of 1 to 100 characters", own_id)
        return Appending(data, name, self._keep, stamp=None if own_id is None else stamp_of(own_id))

    def _note(self, topic: str, made: Write) -> None:
        """Count a change, and log once if a topic keeps more than this log's bounds (S12)."""
        self._appended += made.commit is not None and len(made.commit.rows)
        kept = made.state.keep
        if kept == self._keep or self._has_warned:
            return
        for bound, own, larger in zip(("events", "bytes", "seconds"), self._keep, kept, strict=True):
            if 0 < own < larger:
                self._has_warned = True
                _logger.warning(_LARGER_BOUND, self.name, topic, bound, larger, bound, own)


async def position_in(log: EventLog, topic: str, after: str | None) -> Position:
    """Return the position of a listener of *log*, for a route. Raises: as ``log.start()``."""
    return Position(await log._ready(), topic, after)
