"""The route of server-sent events: an ASGI endpoint that streams the states of a source."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final, final

from .answer import Answer
from .asgi import Message, Receive, RequestScope, Scope, Send, deliver, send_answer, start_of
from .route import Endpoint, joined
from .stream import EventStream

_BODY: Final = "http.response.body"


@final
class EventRoute(Endpoint):
    """An ASGI endpoint that answers GET with a stream of server-sent events: the states of a source, or an event log.

        Starlette(routes=[Route("/events/{topic}", EventRoute(polling), methods=["GET"])])

        new EventSource("/events/orders").onmessage = event => show(event.data)

    Each event has the version as its id. Its data is the body that a long poll would get. The first event is the
    current state; another follows whenever ``polling.notify()`` is called and the version has changed. EventSource
    reconnects by itself, sends the last id as Last-Event-ID, and resumes from there.

    A stream is one operation in the purgatory, from its start to its end. It counts against ``max_pending`` and
    ``max_per_group``, but not in the result of notify(). Each stream is bounded:

    - Events: one is being sent, and the next is read when the server has taken it. Versions in between are merged.
    - Time to send an event: ``Policy.stall``. A client that does not read for that long loses its place, and its stream
      ends EXPIRED. The server keeps the connection: uvicorn logs that the answer is incomplete and, when it stops,
      waits for that client for ``timeout_graceful_shutdown`` seconds, by default for ever.
    - Age: ``Policy.max_age``. Servers do not report every disconnect. (An example is a client that has sent a second
      request behind its stream, on uvicorn with httptools and asyncio's own loop.) The places of such clients are free
      again after that time.

    How a stream ends, or fails to start:

    - The client disconnects: the stream ends at once. Middleware and handlers of other requests are not affected.
    - The purgatory closes, or the server cancels the stream: it ends at once, and the client reconnects after a random
      time within ``Policy.retry_after``, as it does when the connection breaks. (Stop signals close the purgatory.
      Hypercorn's workers get none and, on asyncio's own loop from Python 3.12 on, cancel nothing, so they stop only
      when the last client has disconnected. Use uvloop there.)
    - It reaches its age, or *until*: it ends COMPLETED. EventSource reconnects, and resumes from the last id.
    - It is cancelled by one of its keys: it ends at once, and the client reconnects as when the purgatory closes.
    - The request has a body in more than 64 parts: it ends as when the purgatory closes, since servers report a
      disconnect only after the body.
    - The same client opens a newer stream or poll of the same resource: the older stream gets an event ``replaced``
      with the reason. Close the EventSource on that event; otherwise it reconnects after a day.
    - GoneError: the stream sends an event ``gone`` with the message, then the state from scratch. It ends if there is
      no such state, or if the source raises NotFoundError.
    - An awaited source fails, or does not answer within ``stall``: clients reconnect as when the purgatory closes.
      Before the first event, the answer is 503.
    - A source in memory raises another exception: it propagates, and the server breaks the connection.
    - No place or a closed purgatory: 503, as for a long poll. A resource that is gone altogether: 410, or 404.
      EventSource gives up at any status but 200, also at the 502 of a proxy while a server restarts. The client
      ``js/events.js`` of this package goes on where that is of use, and resumes.

    The stream of an EventLog has the log's own events, each once, in order, with its id, and its name if it has one.
    The last is ``end``, with the reason. A client that reconnects after it is answered 204: EventSource stops for good.
    A topic that does not exist yet is waited for, then the answer is 404. If events that the client has not seen are
    not kept any more, it gets an event ``gone`` with an empty id, then those kept.

    Starlette's GZipMiddleware passes events unchanged. BaseHTTPMiddleware passes them one by one but buffers one more
    event. After ``stall``, its own task keeps waiting for a client that does not read.

    *resource*, *since*, *keys*, *client*, *group* and *until* are functions of the ASGI scope, plain or ``async def``,
    as for LongPollRoute.

    Args:
        served: a LongPolling, which has the source, the purgatory and the policy; or an EventLog or its LogPolling.
        policy: for an EventLog, the times and limits of its streams; None (default): ``Policy()``.
        resource: the streamed resource; default: the path's only parameter.
        since: the client's version if it sent no Last-Event-ID; default: None. For an EventLog, the default is the
            ``after`` of the query.
        keys: the keys to watch, as for LongPollRoute; default: *resource* alone.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that its place counts against, as for ``LongPolling.answer()``; default: none.
        until: when the client's login ends, in seconds since the epoch, as in the ``exp`` of a JWT. Nothing is
            delivered after it: the client reconnects, and your login refuses it. If it is past already, the answer is
            401. A time of another century is refused with ValueError: it would be in milliseconds. None (default): only
            ``Policy.max_age``.
        methods: the methods to answer; default: GET. HEAD comes with GET: it is told the status and the headers. The
            body of others is read before, as by LongPollRoute.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"EventRoute answers HTTP, got a scope of type {scope['type']!r}")
        request = await self._request(scope, receive)
        if isinstance(request, Answer):
            await send_answer(request, send)
            return
        stream = await self._content.new_stream(request)
        # A task that is cancelled ends here as it would anyway. Otherwise the server would answer 500.
        try:
            try:
                answer = await stream.open(request)
            except asyncio.CancelledError:
                answer = stream.stopped()
            if not stream.is_open:
                await send_answer(answer, send)
                return
            if scope["method"] == "HEAD":
                await deliver(send, start_of(answer), {"type": _BODY, "body": b""})
                return
            unsent = [start_of(answer)]
            sending = _send_events(stream, unsent, answer.body, send)
            del request, answer  # they may wait for hours
            try:
                last = await stream.go_on(sending)
            except asyncio.CancelledError:
                last = stream.last_words()
        finally:
            stream.close()
        if last is not None:
            # The stream's operation has ended, so the loop keeps the time. A server that stops may also cancel this.
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._content.desk.policy.stall):
                    await deliver(send, *unsent, {"type": _BODY, "body": last})

    def _in_headers(self, scope: RequestScope) -> dict[str, Any]:
        last = joined([value for name, value in scope["headers"] if name == b"last-event-id"][-1:])
        return {"since": last} if last else {}


async def _send_events(stream: EventStream[Any], unsent: list[Message], chunk: bytes | None, send: Send) -> None:
    """Send the start, and events until there are no more, or the client has disconnected.

    Args: unsent: the start. It stays there if this is cancelled before it is sent.
    """
    try:
        await send(unsent[0])
    except (OSError, RuntimeError) as exc:
        stream.leave_by(exc)
        return
    unsent.clear()
    while chunk is not None:
        try:  # not deliver(): this is the hot path
            await send({"type": _BODY, "body": chunk, "more_body": True})
        except (OSError, RuntimeError) as exc:
            stream.leave_by(exc)
            return
        chunk = await stream.next()
