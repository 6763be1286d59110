"""The responder: how a poll is answered, from its request on."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import Final, Generic, final

from ..cancellations import cancellations
from ..clock import running_loop
from ..errors import GoneError, NotFoundError, PurgatoryClosedError
from ..waits import Rereads, read_until
from .answer import NO_STORE, REFUSALS, VARY, Answer, RawHeader
from .desk import Desk
from .poll import LongPoll
from .prefer import ANY, K, PollRequest, wait_in_query, wait_preference
from .reader import Reader, Reading
from .signals import SERVER_STOPS
from .source import SourceBusyError


@final
class Responder(Generic[K]):
    """Answers polls of the source of *reader*, which wait at *desk*."""

    def __init__(self, desk: Desk, reader: Reader[K], media_type: bytes) -> None:
        self.desk: Final = desk
        self.reader: Final = reader
        self._media_type: Final = (b"content-type", media_type)

    async def respond(self, request: PollRequest[K]) -> Answer:
        """Serve LongPolling.answer()."""
        desk, reader = self.desk, self.reader
        if desk.loop is not running_loop():
            await desk.enter()
        poll: LongPoll[K] | None = None
        before = cancellations()
        resource = request.resource
        nothing_new = 304 if request.since is None else 204
        try:
            wait, told = self._wait(request)
            timeout = desk.policy.timeout(wait) if wait > 0 else None
            if reader.is_async:
                reading = Reading(reader.reads, resource, request.known(""), wait <= 0)
                rereads = Rereads(reading.hurry)
                if wait > 0 or desk.purgatory.is_open:
                    poll = LongPoll(resource, None, "", timeout, request.client, request.group, rereads)
                    desk.park_poll(poll, request.keys, request.receive)
                    found = await read_until(poll, rereads, lambda: self._read_news(reading, rereads), once=wait <= 0)
                else:
                    found = await self._read_news(reading, rereads)
                answer = found or Answer(nothing_new, b"", _headers(reading.version))
            else:
                version = reader.version_now(resource)
                known = request.known(version)
                if known is ANY or version in known:
                    known = (version,)
                    if wait > 0:
                        poll = LongPoll(resource, reader.peek, version, timeout, request.client, request.group)
                        desk.park_poll(poll, request.keys, request.receive)
                        del request  # a parked poll keeps no more of it than it needs
                        await poll
                answer = self._news(resource, known, nothing_new)
            if told is not None:
                answer.raw_headers.append((b"preference-applied", b"wait=%d" % told))
        except asyncio.CancelledError as exc:
            if exc.args == SERVER_STOPS:
                answer = desk.refusals.answer(PurgatoryClosedError("the server stops"))
            elif poll is None or not poll.left or cancellations() > before:
                raise
            else:
                answer = Answer(499, b"", [])  # nobody reads it
        except REFUSALS as exc:
            answer = desk.refusals.answer(exc)
        finally:
            if poll is not None:
                desk.leave(poll)
            poll = None  # an exception keeps this frame
        desk.count(answer.status)
        return answer

    def _wait(self, request: PollRequest[K]) -> tuple[float, int | None]:
        """Returns: the seconds that the poll may wait, and those of Preference-Applied, or None."""
        preferred = wait_preference(request.prefer) if request.prefer else None
        if request.wait is not None:
            return self.desk.policy.applied(wait_in_query(request.wait)), None
        wait = self.desk.policy.applied(preferred)
        return wait, None if preferred is None else ceil(wait)

    def _news(self, resource: K, known: tuple[str, ...], nothing_new: int) -> Answer:
        """Answer a client that has the versions *known*: 200 with the body, or the status *nothing_new*."""
        version = self.reader.version_now(resource)
        if version not in known:
            version, body = self.reader.body_now(resource, known[0] if len(known) == 1 else None, version)
            if version not in known:
                return Answer(200, body, [*_headers(version), self._media_type])
        return Answer(nothing_new, b"", _headers(version))

    async def _read_news(self, reading: Reading[K], rereads: Rereads) -> Answer | None:
        """Returns: the answer if there is something new; None: there is not, as far as anybody knows."""
        try:
            if not await reading.is_news(rereads.check):
                return None
        except SourceBusyError:
            # The last read could not begin. It was only to find a change without a check.
            if reading.version and not (rereads.is_called or rereads.is_unread):
                return None
            raise
        try:
            body = await reading.body()
            return None if body is None else Answer(200, body, [*_headers(reading.version), self._media_type])
        except (GoneError, NotFoundError) as exc:
            return self.desk.refusals.answer(exc)


def _headers(version: str) -> list[RawHeader]:
    return [(b"etag", b'"%b"' % version.encode()), NO_STORE, VARY]
