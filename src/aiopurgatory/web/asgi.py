"""ASGI's types, and a listener that notices when a client disconnects during its request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ..clock import cancellations

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]  # of a Message, which some frameworks describe in more detail
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("aiopurgatory")

#: The most parts of an unread body to receive while waiting for a disconnect, which comes after them.
MAX_PARTS: Final = 64
#: The most messages to receive once the body is whole. A server sends only the disconnect. A test's stand-in for a
#: server may send the same message at every call: then it never sends a disconnect.
_MAX_AFTER: Final = 3
DISCONNECT: Final[Message] = {"type": "http.disconnect"}


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


def listen(
    receive: Receive, ended: Callable[[bool], object], keep: Callable[[Message], Awaitable[bool]] | None = None
) -> asyncio.Task[None]:
    """Call *receive* repeatedly, until the client disconnects. Cancel the task to stop.

    Args:
        ended: called with True when the client has disconnected, or if *receive* raises; with False if the body has
            more than MAX_PARTS parts, or *keep* has no room, since a disconnect would not be noticed.
        keep: gets each message of the body. Returns: whether it has room. None (default): they are dropped.
    """
    # Not by the loop's task factory: an eager task might call *ended* before this returns.
    return asyncio.Task(_listen(receive, ended, keep), loop=asyncio.get_running_loop())


async def _listen(
    receive: Receive, ended: Callable[[bool], object], keep: Callable[[Message], Awaitable[bool]] | None
) -> None:
    parts = after = 0
    while parts < MAX_PARTS and after < _MAX_AFTER:
        try:
            message: Message = await receive()
        except asyncio.CancelledError:
            if cancellations():
                raise
            message = DISCONNECT  # it was cancelled within the server
        except Exception as exc:  # nothing more is heard of this client
            if not isinstance(exc, OSError):
                logger.warning("receive() raised %r; the request ends as if its client had disconnected", exc)
            message = DISCONNECT
        if message["type"] == "http.disconnect":
            ended(True)
            return
        if keep is not None and not await keep(message):
            parts = MAX_PARTS
        elif not message.get("more_body"):
            after += 1
        elif keep is None:
            parts += 1
        del message  # the next one may come in hours
    if parts == MAX_PARTS:
        ended(False)
