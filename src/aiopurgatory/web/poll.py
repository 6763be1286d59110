"""A poll, from its request to its answer, whatever is polled; and both polls and streams in handlers of your own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from math import ceil
from typing import Any, Final, Generic, final

from ..arguments import Items
from ..clock import cancellations, running_loop
from ..core.kit import AwaitedWait, Core
from .answer import NO_BODY, REFUSALS, Answer
from .connected import Receive, listener
from .desk import SLOTS, ClientOperation, Desk, Parked, Policy
from .request import MAX_FIELD, Fields, K, PollRequest, Respond, wait_in_query, wait_preference
from .signals import SERVER_STOPS
from .stream import EventAnswer, EventFeed, EventStream

_NO_FIELDS: Final[Mapping[str, str]] = {}


class Content(ABC, Generic[K]):
    """A resource that clients poll, or follow as a stream. Args: desk: has their places, and counts them."""

    #: Whether its versions are ids of events: a client may send the last one as ``after`` in the query.
    has_ids = False
    #: Seconds that the first read of a stream may take, in addition to ``Policy.stall``.
    patience = 0.0

    def __init__(self, desk: Desk) -> None:
        self.desk: Final = desk

    @abstractmethod
    def feed(self, request: PollRequest[K]) -> EventFeed:
        """Return what is new for the client of *request*."""

    @abstractmethod
    async def answer(self, request: PollRequest[K], wait: float, parked: Parked) -> Answer:
        """Answer a poll as soon as there is something new, or after at most *wait* seconds.

        Raises: one of REFUSALS.
        """

    async def new_stream(self, request: PollRequest[K]) -> EventStream[K]:
        """Return a stream for *request*, not parked yet. The purgatory has no clock until it is started."""
        if self.desk.loop is not running_loop():
            await self.desk.enter()
        return EventStream(self.desk, request, self.feed(request), self.patience)


@final
class LongPoll(ClientOperation[K]):
    """Waits until *read* returns something else than *known*.

    It does not read the body, which is read when the answer is written. So a check of many polls is short, and the body
    covers events between the check and the answer.
    """

    __slots__ = (*SLOTS, "_known", "_read")

    def __init__(self, request: PollRequest[K], timeout: float, read: Callable[[K], object], known: object) -> None:
        super().__init__(timeout)
        self.place(request)
        self._read, self._known = read, known

    def try_complete(self) -> bool:
        return self._read(self.resource) != self._known and self.force_complete()


@final
class ReadPoll(AwaitedWait, ClientOperation[K]):
    """Waits until a read finds something new. Args: hurry: called when its time is up."""

    __slots__ = (*SLOTS, "_hurry")

    def __init__(self, core: Core, request: PollRequest[K], timeout: float, hurry: Callable[[], object]) -> None:
        super().__init__(timeout)
        self.place(request)
        self._hurry = hurry
        self.begin_reads(core, False)

    def try_complete(self) -> bool:
        if self.is_due:
            self._hurry()
        return super().try_complete()


async def answer_poll(content: Content[K], request: PollRequest[K]) -> Answer:
    """Answer a poll of *content*, and count the answer."""
    desk = content.desk
    if desk.loop is not running_loop():
        await desk.enter()
    parked: Parked = []
    before = cancellations()
    try:
        wait, told = _wait(request, desk.policy)
        own = request.respond
        answering = content.answer(request, wait, parked)
        del request  # a parked poll keeps no more of it than it needs
        answer = await answering
    except asyncio.CancelledError as exc:
        if exc.args == SERVER_STOPS:
            return desk.unanswered(is_deserted=False)
        if not (parked and parked[-1].cancelled()) or cancellations() > before:
            raise
        return desk.unanswered(parked[-1].left)
    except REFUSALS as exc:
        return desk.refuse(exc)
    finally:
        while parked:  # an exception keeps the frames that have this
            desk.leave(parked.pop())
    if told is not None:
        answer.raw_headers.append((b"preference-applied", b"wait=%d" % told))
    if own is not None and answer.status < 400:
        answer = _own_answer(own, answer)
    desk.answered[answer.status] += 1
    return answer


def _wait(request: PollRequest[Any], policy: Policy) -> tuple[float, int | None]:
    """Returns: the seconds that the poll may wait, and the seconds of Preference-Applied, or None."""
    if request.wait is not None:
        asked = wait_in_query(request.wait) if isinstance(request.wait, str) else max(0.0, request.wait)
        return policy.applied(asked), None
    preferred = wait_preference(request.prefer) if request.prefer else None
    wait = policy.applied(preferred)
    return wait, None if preferred is None else ceil(wait)


def _own_answer(respond: Respond, polled: Answer) -> Answer:
    """Return the answer that *respond* makes of *polled*, whose headers it keeps or replaces."""
    made = respond(polled)
    match made if isinstance(made, tuple) else (made, 200, {}):
        case bytes(body), int(status), Mapping() as headers if all(
            isinstance(value, str) for value in headers.values()
        ):
            own = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
            raw_headers = [*[each for each in polled.raw_headers if each[0] not in own], *own.items()]
            return Answer(status, b"" if status in NO_BODY else body, raw_headers, polled.version)
    rule = "a body of bytes, or (body, status, headers) with an int and a dict of str"
    raise TypeError(f"respond must return {rule}, got {made!r:.100}")


class Answering(Generic[K]):
    """The base of LongPolling and LogPolling. Args: content: what is polled."""

    def __init__(self, content: Content[K]) -> None:
        self._content: Final = content

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
                    request.path_params["topic"], request.headers, request.query_params)
                return Response(answer.body, answer.status, answer.headers)

        Args:
            resource: the polled resource; passed to the source. Of a log, the topic.
            headers: the request's. Prefer is read and, if *since* is None, If-None-Match. Only the first line of a
                repeated header counts.
            query: the request's. ``wait``, in seconds, takes precedence over Prefer. Of a log, ``after`` is the
                client's id if it sent no If-None-Match.
            since: the client's version if it does not come in If-None-Match, as in a POST.
            wait: the client's wait if it comes neither in the query nor in Prefer: seconds, or text like ``10s``.
            keys: the keys to watch in addition to *resource*; None (default): none.
            client: the client's id. Its newer poll of the same resource ends its older one, with status 409. So the id
                must be one per tab or process, and nobody else must be able to guess or send it: 128 random bits, or
                with a login, a tuple of the user and those. None (default): unknown.
            group: the group (an address, a user, a tenant) that the poll counts against; see ``Policy.max_per_group``.
                None (default): none. Behind a proxy, the address is the proxy's unless the server trusts its
                X-Forwarded-For.
            receive: ASGI's. When the client disconnects, the poll ends with status 499, and your handler goes on. Read
                the request's body first: what arrives while the poll waits is dropped. If it raises, the client counts
                as disconnected. None (default): by the app's PurgatoryMiddleware, which keeps the body. In an app
                without one, the poll of a disconnected client goes on waiting unless the handler is cancelled.
            respond: makes the answer, as for LongPollRoute: whether or not there is something new, it gets the body.

        Raises: TypeError: an argument has the wrong type. Errors of a Source, except GoneError, are raised here.
        """
        request = PollRequest(
            resource,
            since=self._since(since, query),
            keys=keys,
            client=client,
            group=group,
            respond=respond,
            listen=listener(receive),
            prefer=headers.get("prefer"),
            if_none_match=headers.get("if-none-match"),
            wait=query.get("wait") if wait is None else wait,
        )
        return await answer_poll(self._content, request)

    async def events(
        self,
        resource: K,
        headers: Fields,
        query: Fields = _NO_FIELDS,
        *,
        since: str | None = None,
        keys: Items[Hashable] | None = None,
        client: Hashable = None,
        group: Hashable = None,
        until: float | None = None,
        receive: Receive | None = None,
    ) -> EventAnswer:
        """Answer a request for server-sent events in your own handler, as EventRoute does.

            async def events(request: Request) -> Response:
                events = await polling.events(
                    request.path_params["topic"], request.headers, request.query_params)
                return StreamingResponse(events, events.status, events.headers)

        It returns when the first event has been read, or with a refusal. Iterate it for the events, as text in bytes.
        EventRoute says how a stream ends; after that, the iteration ends.

        Args:
            resource: as for answer().
            headers: the request's. Last-Event-ID is read.
            query: the request's. Of a log, ``after`` is the client's id if it sent no Last-Event-ID.
            since: the client's version if it sent no Last-Event-ID; None (default): none.
            keys: as for answer().
            client: as for answer().
            group: as for answer().
            until: when the client's login ends, in seconds since the epoch, as in the ``exp`` of a JWT. Nothing is
                delivered after it: the client reconnects, and is refused. None (default): only ``Policy.max_age``.
            receive: as for answer(). When the client disconnects, the iteration ends, and your handler goes on. None
                (default), in an app without a PurgatoryMiddleware: your framework ends the iteration, as Starlette
                does.

        Raises: TypeError: an argument has the wrong type. Other errors of a Source are raised here or by the iteration.
        """
        last = headers.get("last-event-id") or ""
        since = last if 0 < len(last) <= MAX_FIELD else self._since(since, query)
        request = PollRequest(
            resource, since=since, keys=keys, client=client, group=group, listen=listener(receive), until=until
        )
        stream = await self._content.new_stream(request)
        return EventAnswer(stream, await stream.open(request))

    def _since(self, since: str | None, query: Fields) -> str | None:
        if since is not None and not isinstance(since, str):
            raise TypeError(f"since must be a str or None, got {since!r}")  # it would never equal a version
        after = query.get("after") if since is None and self._content.has_ids else None
        return after[:MAX_FIELD] if after else since
