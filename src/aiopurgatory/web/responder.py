"""The responder: how a poll is answered, from its request on, whatever is polled."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from math import ceil
from typing import Any, Final, Generic

from ..clock import cancellations, running_loop
from .answer import NO_BODY, REFUSALS, Answer
from .desk import Desk
from .policy import Policy
from .poll import Parked
from .prefer import K, PollRequest, Respond, wait_in_query, wait_preference
from .signals import SERVER_STOPS
from .stream import EventStream


class Content(ABC, Generic[K]):
    """A resource that clients poll, or follow as a stream. Args: desk: has their places, and counts them."""

    #: Whether its versions are ids of events: a client may send the last one as ``after`` in the query.
    has_ids = False

    def __init__(self, desk: Desk) -> None:
        self.desk: Final = desk

    @abstractmethod
    async def answer(self, request: PollRequest[K], wait: float, parked: Parked) -> Answer:
        """Answer a poll as soon as there is something new, or after at most *wait* seconds.

        Raises: one of REFUSALS.
        """

    async def new_stream(self, request: PollRequest[K]) -> EventStream[K]:
        """Return a stream for *request*, not parked yet. The purgatory has no clock until it is started."""
        if self.desk.loop is not running_loop():
            await self.desk.enter()
        return self.stream_of(request)

    @abstractmethod
    def stream_of(self, request: PollRequest[K]) -> EventStream[K]:
        """Return a stream for *request*, not parked yet."""


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
    desk.count(answer.status)
    return answer


def _wait(request: PollRequest[Any], policy: Policy) -> tuple[float, int | None]:
    """Returns: the seconds that the poll may wait, and those of Preference-Applied, or None."""
    if request.wait is not None:
        asked = wait_in_query(request.wait) if isinstance(request.wait, str) else max(0.0, request.wait)
        return policy.applied(asked), None
    preferred = wait_preference(request.prefer) if request.prefer else None
    wait = policy.applied(preferred)
    return wait, None if preferred is None else ceil(wait)


def _own_answer(respond: Respond, polled: Answer) -> Answer:
    """Return the answer that *respond* makes of *polled*, whose headers it keeps or replaces."""
    made = respond(polled)
    body, status, headers = made if isinstance(made, tuple) else (made, 200, {})
    if not isinstance(body, bytes):
        raise TypeError(
            f"respond must return a body of bytes, or with it a status and headers, got a body {body!r:.100}"
        )
    own = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
    raw_headers = [*[each for each in polled.raw_headers if each[0] not in own], *own.items()]
    return Answer(status, b"" if status in NO_BODY else body, raw_headers, polled.version)
