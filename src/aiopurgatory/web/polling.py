"""What is polled: a source, or an event log, for any web framework."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, final

from ..arguments import require_hashable, require_name, require_text
from ..core.kit import Observer, announce_check, checked_limit, core_of
from ..delayed_operation import DelayedOperation
from ..errors import PurgatoryFullError
from ..lifecycle import Starting
from ..purgatory import Purgatory
from .desk import Desk, Policy
from .poll import Answering, Content
from .reads import Reader
from .request import K
from .signals import require_purgatory
from .source import Source, States

if TYPE_CHECKING:
    from ..streams import EventLog


@dataclass(frozen=True, slots=True)
class LongPollStatistics:
    """A snapshot of a LongPolling. Counts are since it was created.

    Args:
        name: the name of the LongPolling.
        clients: parked polls and open streams of named clients.
        groups: groups with parked polls or open streams.
        streams: open event streams.
        bodies: bodies cached for other polls.
        body_bytes: their size, plus 500 bytes for each.
        answered: answers by status; 499 is a client that disconnected. A stream counts as 200 when it starts.
        refused: 503 answers by reason: ``full`` (max_pending), ``group`` (max_per_group), ``closed``, ``source``.
    """

    name: str
    clients: int
    groups: int
    streams: int
    bodies: int
    body_bytes: int
    answered: dict[int, int]
    refused: dict[str, int]


class LongPolling(Starting, Answering[K]):
    """Answers each poll of *source* as soon as there is something new or its wait is over.

        polling = LongPolling(purgatory, source)
        app = Starlette(routes=[Route("/{topic}", LongPollRoute(polling), methods=["GET"])])
        ...
        polling.notify(topic)  # when the state behind the topic has changed; in a thread: notify_threadsafe()

    The ETag of each answer is the version to resume from: the client sends it back as If-None-Match.

        200  there is something new: the body, and the new ETag
        304  the wait is over without anything new (204 if the version came by *since*, not by If-None-Match)
        400  the client's wait is not a number, or a function of the route cannot read the request
        404  NotFoundError: there is no such resource
        409  replaced by a newer poll of the same client, as in Telegram
        410  GoneError: start over, without If-None-Match
        413  a POST has a body of more than 1 MiB
        503  refused: with Retry-After, and the reason in the header ``refused``: full, group, source, or closed, which
             closes the connection

    It opens with ``async with polling:`` or start(), or by itself with the first poll in an event loop: an app needs no
    lifespan. From then on, SIGINT and SIGTERM call close(). That answers every poll at once, so the server need not
    wait for them. (Threads other than the main one get no signals: call close() yourself.) A poll does not restart a
    purgatory that was closed in its loop.

    Args:
        purgatory: where polls wait. Use it for nothing else.
        source: the polled state: a Source, in memory or awaited.
        policy: waits and limits; None (default): ``Policy()``.
        media_type: Content-Type of the bodies.
        max_body_bytes: bytes of bodies to cache for other polls that want the same; default 4 MiB. Awaited
            bodies serve only the polls and streams that the same notification wakes.
        max_reads: how many awaited calls of the source may run at a time; default 10.
        name: labels the statistics and metrics, 1 to 255 bytes of UTF-8; None (default): the purgatory's.
        observers: are told when this opens and closes, as are the purgatory's observers; default: none.
        stop_signals: whether SIGINT and SIGTERM call close(); default True. False leaves their handlers alone.

    Attributes:
        purgatory: where the polls wait.
        policy: the waits and limits.
        name: the name shown in statistics and metrics.

    Raises:
        TypeError: an argument has the wrong type; *source* is a class, lacks a method, or has one method that is an
            ``async def`` and one that is not.
        ValueError: *max_body_bytes* is not >= 0, *max_reads* not >= 1, or *name* empty or too long.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        source: Source[K],
        *,
        policy: Policy | None = None,
        media_type: str = "application/json",
        max_body_bytes: int = 4 << 20,
        max_reads: int = 10,
        name: str | None = None,
        observers: Iterable[Observer] = (),
        stop_signals: bool = True,
    ) -> None:
        if isinstance(source, Purgatory):
            raise TypeError(f"purgatory must come before source: LongPolling(purgatory, source), got source={source!r}")
        require_purgatory(purgatory)
        reader = Reader[K](source, max_body_bytes, max_reads)
        require_text("media_type", media_type)
        if name is not None:
            require_name("name", name)
        self._desk: Final = Desk(purgatory, policy, polling=self, observers=observers, stop_signals=stop_signals)
        super().__init__(States(self._desk, reader, media_type.encode("latin-1")))
        self._kept: Final = reader.kept
        self.purgatory: Final = purgatory
        self.policy: Final = self._desk.policy
        self.name: Final = purgatory.name if name is None else name

    def __repr__(self) -> str:
        return f"<LongPolling in {self.purgatory!r}>"

    async def start(self) -> None:
        """Start the purgatory in the running loop, and tell the observers.

        While it is open in this loop, a call does nothing: code that is handed this may call it first.

        Raises: RuntimeError: the purgatory runs in another loop, or was started before a fork.
        """
        await self._desk.start()

    def close(self) -> None:
        """Close the purgatory, which answers every poll, and tell the observers. A second call does nothing.

        Raises: RuntimeError: called from another thread.
        """
        self._desk.close()

    async def aclose(self) -> None:
        """Call close(), and wait until the purgatory's clock task has ended."""
        await self._desk.aclose()

    def statistics(self) -> LongPollStatistics:
        """Return a snapshot: parked clients, cached bodies, and counts of answers."""
        return LongPollStatistics(
            name=self.name,
            clients=len(self._desk.places.newest),
            groups=len(self._desk.places.groups),
            streams=self._desk.streams,
            bodies=len(self._kept),
            body_bytes=self._kept.bytes,
            answered=dict(self._desk.answered),
            refused=dict(self._desk.refusals.by_reason),
        )

    def notify(self, key: Hashable, *, limit: SupportsIndex | None = None) -> None:
        """Call this when the state behind *key* changes: answers the polls that watch it, after ``Policy.linger``.

        They are checked from the next loop iteration on, in slices of at most ``turn_budget``. Repeated calls for a key
        are merged into one check. Before the first poll has started the purgatory, it does nothing. Without a linger,
        ``Purgatory.notify()`` does the same.

        Args:
            key: the key of the state that has changed.
            limit: stop when this many polls have been answered, oldest first; the limits of merged calls add up. None
                (default): no limit. Event streams are not answered, and do not count. If the source is awaited, so many
                polls read it. One that finds nothing passes its call on to the next.

        Raises:
            TypeError, ValueError: *key* is not hashable, or *limit* is no int >= 1.
            RuntimeError: called from a thread other than the event loop's, whether or not a poll waits.
        """
        purgatory, linger = self.purgatory, self.policy.linger
        if linger and purgatory.is_open:
            core_of(purgatory).loop.check_thread()
            lingering: list[Any] = purgatory.waiting((Linger, key))
            if lingering:
                lingering[0].limit += checked_limit(limit)
                return
            if purgatory.waiting(key):
                with suppress(PurgatoryFullError):  # it is full: at once
                    purgatory.watch(Linger(purgatory, key, checked_limit(limit), linger), [(Linger, key)])
                    announce_check(purgatory, key, True)
                    return
        purgatory.notify(key, limit=limit)

    def notify_all(self) -> None:
        """Call this when notifications may have been lost: checks every poll, as notify() does, without a linger.

        Raises: RuntimeError: called from another thread.
        """
        self.purgatory.notify_all()

    def notify_threadsafe(self, key: Hashable) -> None:
        """Same as notify(key), from any thread, such as a ``def`` endpoint's of FastAPI or Starlette.

        Call it once ``Source.version()`` shows the change. Before the purgatory is started, and after it is closed, it
        does nothing.

        Raises: TypeError: *key* is not hashable.
        """
        if self.policy.linger and self.purgatory.is_open:
            require_hashable("key", key)
            self._desk.handover.put(key, core_of(self.purgatory).loop.running, self.notify)
        else:
            self.purgatory.notify_threadsafe(key)


@final
class LogPolling(Answering[str]):
    """Answers polls and streams of an event log in your own handlers, as LongPollRoute and EventRoute do.

        runs = LogPolling(log)

        @app.get("/runs/{run}/events")
        async def follow(run: str, user: User, request: Request) -> StreamingResponse:
            events = await runs.events(run, request.headers, request.query_params, until=user.until)
            return StreamingResponse(events, events.status, events.headers)

    So a login may be a dependency of FastAPI. Routes that get this in place of the log have its policy, and share its
    limits.

    Args:
        log: the log. Its topics are the resources.
        policy: waits and limits; None (default): ``Policy()``.

    Raises: TypeError: an argument has the wrong type.
    """

    def __init__(self, log: EventLog, policy: Policy | None = None) -> None:
        super().__init__(events_of("log must be an EventLog", log, policy))


def events_of(rule: str, log: object, policy: Policy | None = None) -> Content[Any]:
    """Return the events of *log*, as content. Raises: TypeError: it breaks the *rule*."""
    from ..streams import EventLog  # here: most apps have no log, and load no streams
    from .event_log import LogEvents

    if not isinstance(log, EventLog):
        raise TypeError(f"{rule}, got {log!r}")
    return LogEvents(log, policy)


@final
class Linger(DelayedOperation[None]):
    """Notifies *key* at its deadline. A poll with an earlier deadline expires on time."""

    __slots__ = ("_key", "_purgatory", "limit")

    def __init__(self, purgatory: Purgatory, key: Hashable, limit: int, seconds: float) -> None:
        super().__init__(seconds)
        self._purgatory, self._key, self.limit = purgatory, key, limit

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        announce_check(self._purgatory, self._key, False)
        self._purgatory.notify(self._key, limit=self.limit)
