"""Long polling over HTTP, for any web framework: how long a poll may wait, and what it is answered."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar, final

from ..errors import PurgatoryClosedError, PurgatoryError, PurgatoryFullError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .fields import ANY, entity_tags, is_entity_tag, wait_preference

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

#: Bodies that are kept for the other polls that want the same one.
SHARED_BODIES = 128

_NO_QUERY: Mapping[str, str] = MappingProxyType({})


class GoneError(PurgatoryError):
    """What the client has is too old, or of another life, to go on from: it must start anew. 410 (Kubernetes)."""


class Fields(Protocol):
    """What is asked of a request's headers and query: the ``get()`` of a mapping, which for headers ignores case."""

    def get(self, name: str, /) -> str | None: ...


class Source(Protocol[K_contra]):
    """What is polled, in memory: both are called from the event loop, and must not block it."""

    def version(self, resource: K_contra) -> str:
        """Which state *resource* is in: printable ASCII without spaces and quotes.

        It becomes the ETag, and is what a client resumes from. The same one must never come back with another body:
        if your counters start anew with the process, put a random part in front. Cheap: asked at every check.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str) -> bytes:
        """The body for a client that has *since*, when the state is *version*. Called once for all who want the same.

        Args: since: what the client says it has, so anything at all; None: nothing, or more than one.
        Raises: GoneError: *since* is no version to go on from.
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

    A poll that may wait *wait* ends, if nothing happens, between *wait* - margin and *wait* - margin + jitter x *wait*,
    evenly spread.

    Args:
        max_wait: the longest wait, and that of a client that asks for none. Proxies and browsers tend to give up on a
            silent connection after 30 to 60 s.
        min_wait: the shortest. A wait of 0 is answered now all the same.
        jitter: share of the wait that is added at random, against herds that come back together (Consul).
        margin: subtracted from the wait, for clients whose own timeout is the wait they ask for (Nacos: 0.5); half of
            the wait at most.
        linger: how long notify() waits for more to happen, so that polls are answered once with all of it.
        max_per_client: refuse more parked polls of one client than this; None: no limit. (In all: the purgatory's
            ``max_pending``.)
        retry_after: whole seconds, lowest and highest: those who are refused are told to come back after a random one.

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
        _require(0 < self.max_wait < math.inf, "max_wait", "a finite number > 0", self.max_wait)
        _require(0 <= self.min_wait <= self.max_wait, "min_wait", "a number from 0 to max_wait", self.min_wait)
        _require(0 <= self.jitter <= 1, "jitter", "a number from 0 to 1", self.jitter)
        _require(0 <= self.margin < math.inf, "margin", "a finite number >= 0", self.margin)
        _require(0 <= self.linger < math.inf, "linger", "a finite number >= 0", self.linger)
        limit = self.max_per_client
        _require(limit is None or limit >= 1, "max_per_client", "an int >= 1, or None", limit)
        low, high = self.retry_after
        _require(0 <= low <= high, "retry_after", "two ints >= 0, the lower one first", self.retry_after)

    def applied(self, asked: float | None) -> float:
        """The wait for a client that asked for *asked* seconds. 0 or less is 0: answer now."""
        if asked is None:
            return self.max_wait
        return min(max(asked, self.min_wait), self.max_wait) if asked > 0 else 0.0

    def timeout(self, wait: float) -> float:
        """How long to park a poll whose applied wait is *wait*."""
        return wait - min(self.margin, wait / 2) + random.uniform(0, self.jitter * wait)


class LongPolling(Generic[K]):
    """Answers polls of *source*, each as soon as there is something new or its wait is over.

        polling = LongPolling(purgatory, source)

        async def poll(request: Request) -> Response:
            answer = await polling.answer(request.path_params["topic"], request.headers, request.query_params)
            return Response(answer.body, answer.status, answer.headers)

    The ETag of each answer is the version that the client resumes from: it sends it back as If-None-Match.

        200  there is something new: the body, and the new ETag
        304  the wait is over, and there is nothing new (204, if the client did not resume by If-None-Match)
        400  the wait asked for is not a number
        409  the same client polls anew: this is its older poll (Telegram)
        410  GoneError: start anew, without If-None-Match
        503  the purgatory is full or closed, or the client has too many polls; with Retry-After

    Args:
        purgatory: where polls wait; one of their own, because it is closed to answer them all when the server stops
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
        self._policy = policy or Policy()
        self._media_type = media_type
        self._version = source.version
        self._read = lru_cache(SHARED_BODIES)(source.read)
        #: The parked polls of each client that was named.
        self._clients: dict[Hashable, dict[K, _Poll[K]]] = {}
        #: How many parked polls watch each key; with a linger alone.
        self._polled: Counter[Hashable] = Counter()
        #: Keys that something has happened to, but not long enough ago.
        self._lingering: set[Hashable] = set()

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
        """Wait until there is something new for the client, and not for long. Cancel it when the client has left.

        Args:
            resource: what is polled; the source is asked for it.
            headers: of the request. Read are Prefer and, if *since* is None, If-None-Match: what ``get()`` has of
                them, which of several lines is the first.
            query: of the request. Read is ``wait``: seconds, before what Prefer says.
            since: the version that the client has, if it tells by other means than If-None-Match.
            keys: to watch; None: *resource* alone.
            client: who polls. A newer poll of the same client for the same resource ends its older one; and see
                ``Policy.max_per_client``. None: nobody in particular.

        Raises: what the source raises, but for GoneError. RuntimeError: the purgatory is not started.
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
        """Something has happened to *key*: answer the polls that it concerns, after ``Policy.linger``.

        Returns: how many were answered at once. From other threads, ``loop.call_soon_threadsafe()`` this. Without a
        linger, the purgatory's own checks (``..._soon``, ``..._threadsafe``) serve as well.
        """
        if key in self._lingering:
            return 0
        if key in self._polled:
            with suppress(PurgatoryFullError):
                self._purgatory.watch(_Linger(self._purgatory, key, self._lingering, self._policy.linger), [self])
                self._lingering.add(key)
                return 0
        return self._purgatory.check_and_complete(key)

    async def _park(self, poll: _Poll[K], keys: set[Hashable], client: Hashable) -> None:
        """Park *poll*, and keep the books of clients and of what may linger."""
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
            raise PurgatoryFullError(f"{limit} polls of this client wait already")
        if older is not None:
            older.fail(_ReplacedError("the same client polls anew"))

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
    """The same client polls anew (a newer poll on the same connection must end the old one: tuwunel #386)."""


class _Poll(DelayedOperation[None], Generic[K]):
    """Waits until *resource* is in another state than *known*. The body is read when the answer is written: a walk over
    all who wait is short then, and what happens next is in it already.
    """

    __slots__ = ("known", "resource", "version")

    def __init__(self, version: Callable[[K], str], resource: K, known: str, timeout: float) -> None:
        super().__init__(timeout)
        self.version, self.resource, self.known = version, resource, known

    def try_complete(self) -> bool:
        return self.version(self.resource) != self.known and self.force_complete()


class _Linger(DelayedOperation[None]):
    """Checks *key* when its time is up. One for all who wait: a poll whose own time is up first takes what there is."""

    __slots__ = ("key", "lingering", "purgatory")

    def __init__(self, purgatory: Purgatory, key: Hashable, lingering: set[Hashable], timeout: float) -> None:
        super().__init__(timeout)
        self.purgatory, self.key, self.lingering = purgatory, key, lingering

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.lingering.discard(self.key)
        self.purgatory.check_and_complete_soon(self.key)

    def on_cancel(self) -> None:
        self.lingering.discard(self.key)


def _asked_wait(headers: Fields, query: Fields) -> float | None:
    """Raises: ValueError: the query asks for what is no number. (A preference that is none is ignored.)"""
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


def _require(holds: bool, parameter: str, rule: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{parameter} must be {rule}, got {value!r}")
