"""Long polling over HTTP, for any web framework: how long a poll may wait, and how it is answered."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, final

from ..arguments import require
from ..core.purgatory import parts_of
from ..errors import PurgatoryClosedError, PurgatoryError, PurgatoryFullError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .headers import ANY, entity_tags, is_entity_tag, wait_preference

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

#: Bodies that are kept for other polls that want the same one.
SHARED_BODIES: Final = 128

_NO_QUERY: Mapping[str, str] = MappingProxyType({})


class GoneError(PurgatoryError):
    """The client's version is too old, or from an earlier process, to resume from. Answered 410, as in Kubernetes."""


class Fields(Protocol):
    """A request's headers or query: the ``get()`` of a mapping, which for headers ignores case."""

    def get(self, name: str, /) -> str | None: ...


class Source(Protocol[K_contra]):
    """The polled state, in memory. Both methods are called from the event loop, and must not block it."""

    def version(self, resource: K_contra) -> str:
        """The version of *resource*: printable ASCII without spaces and quotes.

        It becomes the ETag, and the client resumes from it. The same version must never stand for two bodies: if your
        counters restart with the process, put a random prefix in front. Keep it cheap: it is called at every check.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str) -> bytes:
        """The body for a client that has version *since*, when the state is at *version*.

        Called once for all clients that want the same.

        Args: since: as the client sent it, so it may be anything. None: the client has sent no version, or several.
        Raises: GoneError: a client cannot resume from *since*.
        """
        ...


class Answer(NamedTuple):
    """An HTTP answer, to be handed to the framework."""

    status: int
    body: bytes
    headers: dict[str, str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long polls wait. Times are seconds.

    A poll with the wait *wait*, if nothing happens, ends between *wait* - margin and *wait* - margin + jitter x *wait*,
    evenly spread.

    Args:
        max_wait: the longest wait, and the wait of a client that asks for none. Proxies and browsers tend to give up on
            a silent connection after 30 to 60 s.
        min_wait: the shortest. A client that asks for 0 is answered at once all the same.
        jitter: share of the wait that is added at random, so that clients don't return in a herd (Consul).
        margin: subtracted from the wait, at most half of it. Raise it for clients that give up after exactly the wait
            they ask for (Nacos: 0.5).
        linger: how long notify() waits before it answers, so that one answer covers several events.
        max_per_client: refuse more parked polls of one client than this; None (default): no limit. The limit for all
            clients together is the purgatory's ``max_pending``.
        retry_after: lowest and highest, whole seconds. A refused client is told to return after a random number between
            them.

    Raises: ValueError: an argument out of its range.
    """

    max_wait: float = 30.0
    min_wait: float = 0.0
    jitter: float = 1 / 16
    margin: float = 0.0
    linger: float = 0.0
    max_per_client: int | None = None
    retry_after: tuple[int, int] = (1, 3)

    def __post_init__(self) -> None:
        require(0 < self.max_wait < math.inf, "max_wait", "a finite number > 0", self.max_wait)
        require(0 <= self.min_wait <= self.max_wait, "min_wait", "a number from 0 to max_wait", self.min_wait)
        require(0 <= self.jitter <= 1, "jitter", "a number from 0 to 1", self.jitter)
        require(0 <= self.margin < math.inf, "margin", "a finite number >= 0", self.margin)
        require(0 <= self.linger < math.inf, "linger", "a finite number >= 0", self.linger)
        limit = self.max_per_client
        require(limit is None or limit >= 1, "max_per_client", "an int >= 1, or None", limit)
        low, high = self.retry_after
        require(0 <= low <= high, "retry_after", "two ints >= 0, the lower one first", self.retry_after)

    def applied(self, asked: float | None) -> float:
        """The wait of a client that asked for *asked* seconds. 0 means: answer at once."""
        if asked is None:
            return self.max_wait
        return min(max(asked, self.min_wait), self.max_wait) if asked > 0 else 0.0

    def timeout(self, wait: float) -> float:
        """How long to park a poll with the wait *wait*."""
        return wait - min(self.margin, wait / 2) + random.uniform(0, self.jitter * wait)


class LongPolling(Generic[K]):
    """Answers polls of *source*, each as soon as there is something new or its wait is over.

        polling = LongPolling(purgatory, source)

        async def poll(request: Request) -> Response:
            answer = await polling.answer(request.path_params["topic"], request.headers, request.query_params)
            return Response(answer.body, answer.status, answer.headers)

        async def publish(request: Request) -> Response:
            ...  # change the state behind the topic
            polling.notify(request.path_params["topic"])  # in a thread: notify_threadsafe()

    The ETag of each answer is the version to resume from: the client sends it back as If-None-Match.

        200  there is something new: the body, and the new ETag
        304  the wait is over without anything new (204, if the client did not resume by If-None-Match)
        400  the client's wait is not a number
        409  the same client has sent a newer poll: this is the older one (Telegram)
        410  GoneError: start over, without If-None-Match
        503  the purgatory is full or closed, or the client has too many polls; with Retry-After

    Args:
        purgatory: where polls wait. Give them one of their own: it is closed to answer them all when the server stops
            (see ``asgi`` and ``aiohttp``).
        media_type: of the bodies.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        source: Source[K],
        *,
        policy: Policy | None = None,
        media_type: str = "application/json",
    ) -> None:
        self._purgatory = purgatory
        self._loop = parts_of(purgatory).loop
        self._policy = policy or Policy()
        self._media_type = media_type
        self._version = source.version
        self._read = lru_cache(SHARED_BODIES)(source.read)
        #: The parked polls of each client that was named.
        self._clients: dict[Hashable, dict[K, _Poll[K]]] = {}
        #: How many parked polls watch each key. Counted only with a linger.
        self._polled: Counter[Hashable] = Counter()

    def __repr__(self) -> str:
        return f"<LongPolling in {self._purgatory!r}>"

    async def answer(
        self,
        resource: K,
        headers: Fields,
        query: Fields = _NO_QUERY,
        *,
        since: str | None = None,
        keys: Iterable[Hashable] | None = None,
        client: Hashable = None,
    ) -> Answer:
        """Wait until something is newer than the client's version, or its wait is over.

        Cancel it when the client disconnects.

        Args:
            resource: passed to the source.
            headers: of the request. Prefer is read and, if *since* is None, If-None-Match. Where a header has several
                lines, ``get()`` must return the first.
            query: of the request. ``wait``, in seconds, takes precedence over Prefer.
            since: the client's version, if it comes by other means than If-None-Match.
            keys: the keys to watch; None (default): *resource* alone.
            client: identifies the client, for ``Policy.max_per_client``; None (default): unknown. A newer poll of a
                client for the same resource ends its older one.

        Raises: whatever the source raises, except GoneError. RuntimeError: the purgatory is not started.
        """
        try:
            asked = _asked_wait(headers, query)
        except ValueError as exc:
            return self._refusal(400, str(exc))
        wait = self._policy.applied(asked)
        known = entity_tags(headers.get("if-none-match") or "") if since is None else (since,)
        try:
            version = self._version(resource)
            if known == (ANY,) or version in known:
                known = (version,)
                if wait > 0:
                    poll = _Poll(self._version, resource, version, self._policy.timeout(wait))
                    if keys is None:
                        keys = (resource,)
                    if client is None and not self._policy.linger:
                        await self._purgatory.watch(poll, keys)
                    else:
                        await self._park(poll, set(keys), client)
            return self._answer(resource, known, 304 if since is None else 204, None if asked is None else wait)
        except GoneError as exc:
            return self._refusal(410, str(exc))
        except _ReplacedError as exc:
            return self._refusal(409, str(exc))
        except PurgatoryFullError as exc:
            return self._refusal(503, str(exc))
        except PurgatoryClosedError:
            return self._refusal(503, "")  # all polls at once, and a body would be another write for each of them

    def notify(self, key: Hashable) -> int:
        """Call this when the state behind *key* changes: answers the polls that watch it, after ``Policy.linger``.

        Without a linger, the purgatory's own checks (``check_and_complete_soon()`` and the others) do as well.

        Returns: how many polls were answered at once; 0 with a linger, unless the purgatory is full.
        Raises: RuntimeError: called from a thread other than the event loop's, whether or not a poll waits.
        """
        if self._loop.is_foreign_thread():
            raise RuntimeError("notify() must be called in the loop's thread; from here, use notify_threadsafe(key)")
        if key in self._polled:
            lingering = (self, key)
            if self._purgatory.waiting(lingering):
                return 0
            with suppress(PurgatoryClosedError, PurgatoryFullError):
                self._purgatory.watch(_Linger(self._purgatory, key, self._policy.linger), [lingering])
                return 0
        return self._purgatory.check_and_complete(key)

    def notify_threadsafe(self, key: Hashable) -> None:
        """notify() for any thread, such as that of a ``def`` endpoint of FastAPI or Starlette.

        Polls are answered from the next loop iteration on, after ``Policy.linger``. Call it when the change is visible
        to ``Source.version()``. Before the purgatory is started, and after it is closed, it does nothing.

        Raises: TypeError: *key* is not hashable.
        """
        if not self._policy.linger:
            self._purgatory.check_and_complete_threadsafe(key)
            return
        hash(key)  # an unhashable one fails here, not in the loop
        if self._purgatory.is_open:
            loop = self._loop.running
            try:
                loop.call_soon_threadsafe(self.notify, key)
            except RuntimeError:
                if not loop.is_closed():
                    raise

    async def _park(self, poll: _Poll[K], keys: set[Hashable], client: Hashable) -> None:
        """Park *poll*, and keep count of the client's polls and of the polls of each key."""
        if client is not None:
            self._make_room(poll.resource, client)
        self._purgatory.watch(poll, keys)
        if client is not None:
            self._clients.setdefault(client, {})[poll.resource] = poll
        if self._policy.linger > 0:
            self._polled.update(keys)
        try:
            await poll
        finally:
            if self._policy.linger > 0:
                self._forget_keys(keys)
            if client is not None:
                self._forget_client(poll, client)

    def _make_room(self, resource: K, client: Hashable) -> None:
        """Raises: PurgatoryFullError: *client* has too many polls, and none for *resource* to replace."""
        mine = self._clients.get(client, {})
        older = mine.get(resource)
        limit = self._policy.max_per_client
        if older is None and limit is not None and len(mine) >= limit:
            raise PurgatoryFullError(f"{limit} polls of this client are waiting already")
        if older is not None:
            older.fail(_ReplacedError("the same client has sent a newer poll"))

    def _forget_client(self, poll: _Poll[K], client: Hashable) -> None:
        mine = self._clients.get(client, {})
        if mine.get(poll.resource) is poll:  # and not a newer one
            del mine[poll.resource]
            if not mine:
                del self._clients[client]

    def _forget_keys(self, keys: set[Hashable]) -> None:
        self._polled.subtract(keys)
        for key in keys:
            if not self._polled[key]:
                del self._polled[key]

    def _answer(self, resource: K, known: tuple[str, ...], nothing_new: int, told: float | None) -> Answer:
        version = self._version(resource)
        if not is_entity_tag(version):
            raise ValueError(f"version must be printable ASCII without spaces and quotes, got {version!r}")
        headers = {"etag": f'"{version}"', "cache-control": "no-store", "vary": "Prefer"}
        if told is not None:
            headers["preference-applied"] = f"wait={told:.3f}".rstrip("0").rstrip(".")
        if version in known:
            return Answer(nothing_new, b"", headers)
        body = self._read(resource, known[0] if len(known) == 1 else None, version)
        headers["content-type"] = self._media_type
        return Answer(200, body, headers)

    def _refusal(self, status: int, why: str) -> Answer:
        headers = {"cache-control": "no-store"}
        if status == 503:
            headers["retry-after"] = str(random.randint(*self._policy.retry_after))
        if why:
            headers["content-type"] = "text/plain; charset=utf-8"
        return Answer(status, why.encode(errors="replace"), headers)


class _ReplacedError(Exception):
    """The same client has sent a newer poll: on the same connection, it waits for the older one (tuwunel #386)."""


class _Poll(DelayedOperation[None], Generic[K]):
    """Waits until *resource* has another version than *known*.

    It does not read the body: that happens when the answer is written. So a check of many polls is short, and a body
    covers the events between the check and the answer.
    """

    __slots__ = ("known", "resource", "version")

    def __init__(self, version: Callable[[K], str], resource: K, known: str, timeout: float) -> None:
        super().__init__(timeout)
        self.version, self.resource, self.known = version, resource, known

    def try_complete(self) -> bool:
        return self.version(self.resource) != self.known and self.force_complete()


class _Linger(DelayedOperation[None]):
    """Checks *key* when its time is up, once for all its polls. A poll whose own time is up before is not held back."""

    __slots__ = ("key", "purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable, timeout: float) -> None:
        super().__init__(timeout)
        self.purgatory, self.key = purgatory, key

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.purgatory.check_and_complete_soon(self.key)


def _asked_wait(headers: Fields, query: Fields) -> float | None:
    """The wait that the client asks for, in seconds; None for none.

    Raises: ValueError: the query's wait is not a number. (In Prefer, such a wait is ignored.)
    """
    text = query.get("wait")
    if text is None:
        return wait_preference(headers.get("prefer") or "")
    try:
        wait = float(text)
    except ValueError:
        wait = math.nan
    if math.isnan(wait):
        raise ValueError(f"wait must be a number of seconds, got {text[:50]!r}")
    return wait
