"""ASGI's types, a request as the functions of a route see it, and a listener that notices when a client leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any, Final, final
from urllib.parse import parse_qsl

from ..clock import cancellations
from .answer import NO_BODY, Answer, RequestError, UnreadBodyError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]  # of a Message, which some frameworks describe in more detail
Send = Callable[[Message], Awaitable[None]]
#: Called with None when a client has disconnected; else with the reason why that would not be noticed.
Ended = Callable[[Exception | None], object]
#: Calls what it is given when the client disconnects. Returns: stops that.
Listen = Callable[[Ended], Callable[[], object]]

logger = logging.getLogger("aiopurgatory")

#: The most parts of an unread body to receive while waiting for a disconnect, which comes after them.
MAX_PARTS: Final = 64
#: The most messages to receive once the body is whole. A server sends only the disconnect. A test's stand-in for a
#: server may send the same message at every call: then it never sends a disconnect.
MAX_AFTER: Final = 3
DISCONNECT: Final[Message] = {"type": "http.disconnect"}


def start_of(answer: Answer) -> Message:
    return {"type": "http.response.start", "status": answer.status, "headers": answer.raw_headers}


def send_answer(answer: Answer, send: Send) -> Awaitable[bool]:
    """Send *answer*, unless the client has disconnected."""
    headers = answer.raw_headers
    if answer.status not in NO_BODY:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    return deliver(send, start_of(answer), {"type": "http.response.body", "body": answer.body})


async def deliver(send: Send, *messages: Message) -> bool:
    """Send *messages*. Returns: False if the client has disconnected."""
    try:
        for message in messages:
            await send(message)
    except (OSError, RuntimeError) as exc:
        if is_disconnect(exc):
            return False
        raise
    return True


def is_disconnect(exc: OSError | RuntimeError) -> bool:
    """Whether *exc*, which send() has raised, says that the client has disconnected."""
    # uvloop's closed transport, which uvicorn does not always notice.
    return isinstance(exc, OSError) or str(exc).endswith("the handler is closed")


async def next_message(receive: Receive) -> Message:
    """Return the next message of a request; a disconnect if *receive* raises: nothing more is heard of its client."""
    try:
        message: Message = await receive()
    except asyncio.CancelledError:
        if cancellations():
            raise
        return DISCONNECT  # it was cancelled within the server
    except Exception as exc:
        if not isinstance(exc, OSError):
            logger.warning("receive() raised %r; the request ends as if its client had disconnected", exc)
        return DISCONNECT
    return message


def listen(receive: Receive, dropped: Callable[[], object], ended: Ended) -> Callable[[], object]:
    """Call *receive* repeatedly, until the client disconnects, and drop what it returns. Returns: stops that.

    Args:
        dropped: called when a part of the body is dropped.
        ended: called with None when the client has disconnected, or if *receive* raises. Else with the reason why a
            disconnect would not be noticed: the body has more than MAX_PARTS parts, or it is no HTTP request.
    """
    # Not by the loop's task factory: an eager task might call *ended* before this returns.
    return asyncio.Task(_listen(receive, dropped, ended), loop=asyncio.get_running_loop()).cancel


async def _listen(receive: Receive, dropped: Callable[[], object], ended: Ended) -> None:
    parts = after = 0
    while parts < MAX_PARTS and after < MAX_AFTER:
        message = await next_message(receive)
        kind = message["type"]
        if kind == "http.disconnect":
            ended(None)
            return
        if not kind.startswith("http."):
            ended(TypeError(f"receive must be that of an HTTP request, got a {kind!r} from it"))
            return
        if message.get("body"):
            dropped()
        if message.get("more_body"):
            parts += 1
        else:
            after += 1
        del message  # the next one may come in hours
    if parts == MAX_PARTS:
        ended(UnreadBodyError(f"the request has a body in more than {MAX_PARTS} parts; send none"))


#: The most bytes of a query, of which some servers have no limit, and of a body; and the most fields of either. To
#: parse escapes takes up to 0.4 s per MiB.
MAX_QUERY: Final = 1 << 16
MAX_BODY: Final = 1 << 20
MAX_FIELDS: Final = 1_000
#: Seconds that a body may take to arrive.
BODY_TIMEOUT: Final = 30.0


class Parameters(dict[str, str]):
    """Texts by name. The first of a repeated name counts. ``[...]`` answers 400 if the name is missing."""

    def __missing__(self, name: str) -> str:
        raise RequestError(f"the request must have {name!r}")


@final
class RequestScope(dict[str, Any]):
    """A copy of the ASGI scope of a request, with these attributes. Starlette's ``Request(scope)`` also takes it.

    A missing ``query["index"]`` answers 400, while ``query.get("index")`` is None; the same for form and headers.

    Attributes:
        body: of a POST or another method, at most 1 MiB. The body of a GET is not read.
    """

    body: bytes = b""  # without an __init__(), it is made five times as fast: there is one for each poll

    @cached_property
    def query(self) -> Parameters:
        """The parameters of the query, which has at most 64 KiB."""
        query: bytes = self["query_string"]
        if len(query) > MAX_QUERY:
            raise RequestError(f"the query must have at most {MAX_QUERY:,} bytes, got {len(query):,}")
        return _parsed(query)

    @cached_property
    def form(self) -> Parameters:
        """The fields of the body, as an HTML form sends them (``application/x-www-form-urlencoded``)."""
        return _parsed(self.body)

    @cached_property
    def headers(self) -> Parameters:
        """The headers, with names in lower case."""
        return Parameters((name.decode("latin-1"), value.decode("latin-1")) for name, value in self["headers"][::-1])


def _parsed(text: bytes) -> Parameters:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    return Parameters(reversed(pairs))


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request; None: its client has disconnected.

    Raises: UnreadBodyError: it is longer than MAX_BODY. RequestError: it did not arrive in BODY_TIMEOUT.
    """
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise UnreadBodyError(f"the body must have at most {MAX_BODY:,} bytes")
                has_more = message.get("more_body", False)
    except TimeoutError:
        raise RequestError(f"the body did not arrive in {BODY_TIMEOUT:g} s") from None
    return bytes(body)
