"""Long polling over HTTP, for any web framework."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, SupportsIndex

from ..arguments import Items, require_text
from ..core.kit import Observer
from ..lifecycle import Starting
from ..purgatory import Purgatory
from .answer import Answer
from .asgi import Receive
from .delivery import Delivery, EventAnswer
from .desk import Desk
from .policy import Policy
from .prefer import MAX_FIELD, Fields, K, PollRequest, Respond
from .reader import Reader
from .responder import answer_poll
from .source import Source
from .states import States

_NO_FIELDS: Mapping[str, str] = MappingProxyType({})


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


class LongPolling(Starting, Generic[K]):
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
        413  the request has a body in more than 64 parts, or a POST one of more than 1 MiB
        503  refused: with Retry-After, and the reason in the header ``refused``: full, group, closed or source

    It opens with ``async with polling:`` or start(), or by itself with the first poll in an event loop: an app needs no
    lifespan. From then on, SIGINT and SIGTERM call close(). That answers every poll at once, so the server need not
    wait for them. (Threads other than the main one get no signals: call close() yourself.) A poll does not restart a
    purgatory that was closed in its loop.

    Args:
        purgatory: where polls wait. Use it for nothing else.
        source: the polled state: a Source, in memory or awaited.
        policy: waits and limits; None (default): ``Policy()``.
        media_type: Content-Type of the bodies.
        max_body_bytes: bytes of bodies to cache for other polls that want the same; default 4 MiB. Those that
            were awaited serve only the polls and streams that the same notification wakes.
        max_reads: how many awaited calls of the source may run at a time; default 10.
        name: labels the statistics and metrics, 1 to 255 bytes of UTF-8; None (default): the purgatory's.
        observers: are told when this opens and closes, as are the purgatory's observers; default: none.
        stop_signals: whether SIGINT and SIGTERM call close(); default True. False leaves their handlers alone.

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
        _require_purgatory(purgatory, source)
        reader = Reader(source, max_body_bytes, max_reads)
        if policy is not None and not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy or None, got {policy!r}")
        require_text("media_type", media_type)
        policy = Policy() if policy is None else policy
        self._desk: Final = Desk(
            purgatory, policy, polling=self, name=name, observers=observers, stop_signals=stop_signals
        )
        self._states: Final = States(self._desk, reader, media_type.encode("latin-1"))

    @property
    def purgatory(self) -> Purgatory:
        """Where the polls wait."""
        return self._desk.purgatory

    @property
    def policy(self) -> Policy:
        """The waits and limits."""
        return self._desk.policy

    @property
    def name(self) -> str:
        """The name shown in statistics and metrics."""
        return self._desk.name

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
        kept = self._states.reader.kept
        return LongPollStatistics(
            name=self.name,
            clients=self._desk.places.clients,
            groups=self._desk.places.groups,
            streams=self._desk.streams,
            bodies=len(kept),
            body_bytes=kept.bytes,
            answered=dict(self._desk.answered),
            refused=dict(self._desk.refusals.by_reason),
        )

    async def answer(
        self,
        resource: K,
        headers: Fields = _NO_FIELDS,
        query: Fields = _NO_FIELDS,
        *,
        since: str | None = None,
        wait: float | str | None = None,
        keys: Items[Hashable] | None = None,
        client: Hashable = None,
        group: Hashable = None,
        receive: Receive | None = None,
        respond: Respond | None = None,
    ) -> Answer:
        """Answer a poll in your own handler: wait until something is newer than the client's version, or time is up.

            async def poll(request: Request) -> Response:
                answer = await polling.answer(
                    request.path_params["topic"], request.headers, request.query_params, receive=request.receive)
                return Response(answer.body, answer.status, answer.headers)

        Args:
            resource: the polled resource; passed to the source.
            headers: the request's. Prefer is read and, if *since* is None, If-None-Match. Only the first line of a
                repeated header counts.
            query: the request's. ``wait``, in seconds, takes precedence over Prefer.
            since: the client's version if it does not come in If-None-Match, as in a POST.
            wait: the client's wait if it comes neither in the query nor in Prefer: seconds, or text like ``10s``.
            keys: the keys to watch; None (default): *resource* alone.
            client: the client's id. Its newer poll of the same resource ends its older one, with status 409. So the id
                must be one per tab or process, and nobody else must be able to guess or send it: 128 random bits, or
                with a login, a tuple of the user and those. None (default): unknown.
            group: the group (an address, a user, a tenant) that the poll counts against; see ``Policy.max_per_group``.
                None (default): none. Behind a proxy, the address is the proxy's unless the server trusts its
                X-Forwarded-For.
            receive: ASGI's. When the client disconnects, the poll ends with status 499, and your handler goes on. Read
                the request's body first: messages that arrive while the poll waits are dropped, and after 64 of them
                the answer is 413. If it raises, the client counts as disconnected. None (default): the poll of a
                disconnected client goes on waiting unless the handler is cancelled.
            respond: makes the answer, as for LongPollRoute: whether or not there is something new, it gets the body.

        Raises: TypeError: *keys* is one str. Errors of a Source, except GoneError, are raised here.
        """
        return await answer_poll(
            self._states,
            PollRequest(
                resource,
                headers.get("prefer"),
                headers.get("if-none-match"),
                query.get("wait") if wait is None else wait,
                since,
                keys,
                client,
                group,
                receive,
                respond,
            ),
        )

    async def events(
        self,
        resource: K,
        headers: Fields,
        *,
        since: str | None = None,
        keys: Items[Hashable] | None = None,
        client: Hashable = None,
        group: Hashable = None,
        receive: Receive | None = None,
    ) -> EventAnswer:
        """Answer a request for server-sent events in your own handler, as EventRoute does.

            async def events(request: Request) -> Response:
                events = await polling.events(
                    request.path_params["topic"], request.headers, receive=request.receive)
                return StreamingResponse(events, events.status, events.headers)

        It returns when the first event has been read, or with a refusal. Iterate it for the events, as text in bytes.
        EventRoute says how a stream ends; after that, the iteration ends.

        Args:
            resource: the streamed resource; passed to the source.
            headers: the request's. Last-Event-ID is read.
            since: the client's version if it sent no Last-Event-ID; None (default): none.
            keys: as for answer().
            client: as for answer().
            group: as for answer().
            receive: ASGI's. When the client disconnects, the iteration ends, and your handler goes on. Read the
                request's body first. None (default): your framework ends the iteration, as Starlette does.

        Raises: TypeError: *keys* is one str. Other errors of a Source are raised here or by the iteration.
        """
        last = headers.get("last-event-id") or ""
        since = last if 0 < len(last) <= MAX_FIELD else since
        request = PollRequest(resource, since=since, keys=keys, client=client, group=group, receive=receive)
        delivery = await Delivery.enter(self._states, request)
        return EventAnswer(delivery, await delivery.begin(request))

    def notify(self, key: Hashable, limit: SupportsIndex | None = None) -> None:
        """Call this when the state behind *key* changes: answers the polls that watch it, after ``Policy.linger``.

        They are checked from the next loop iteration on, in slices of at most ``turn_budget``. Repeated calls for a key
        are merged into one check. Without a linger, ``Purgatory.notify()`` does the same.

        Args:
            key: the key of the state that has changed.
            limit: stop when this many polls have been answered, oldest first; the limits of merged calls add up. None
                (default): no limit. Event streams are not answered, and do not count. If the source is awaited, so many
                polls read it. One that finds nothing passes its call on to the next.

        Raises:
            TypeError, ValueError: *key* is not hashable, or *limit* is no int >= 1.
            RuntimeError: called from a thread other than the event loop's, whether or not a poll waits.
        """
        self._desk.notifications.notify(key, limit)

    def notify_all(self) -> None:
        """Call this when notifications may have been lost: checks every poll, as notify() does.

        Raises: RuntimeError: called from another thread.
        """
        self._desk.notifications.notify_all()

    def notify_threadsafe(self, key: Hashable) -> None:
        """Same as notify(key), from any thread, such as that of a ``def`` endpoint of FastAPI or Starlette.

        Call it once ``Source.version()`` shows the change. Before the purgatory is started, and after it is closed, it
        does nothing.

        Raises: TypeError: *key* is not hashable.
        """
        self._desk.notifications.notify_threadsafe(key)


def _require_purgatory(purgatory: object, source: object) -> None:
    if isinstance(source, Purgatory):
        raise TypeError(f"purgatory must come before source: LongPolling(purgatory, source), got source={source!r}")
    if not isinstance(purgatory, Purgatory):
        raise TypeError(f"purgatory must be a Purgatory, got {purgatory!r}")
