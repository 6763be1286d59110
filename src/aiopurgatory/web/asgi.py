"""ASGI's types, and a listener that notices when a client disconnects during its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..cancellations import cancellations

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]  # of a Message, which some frameworks describe in more detail
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


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


def listen(receive: Receive, heard: Callable[[Message | Exception], bool]) -> asyncio.Task[None]:
    """Call *receive* repeatedly, and *heard* with each message, until *heard* returns False. Cancel it to stop.

    Args: heard: gets the exception if *receive* raised one.
    """
    return asyncio.get_running_loop().create_task(_listen(receive, heard))


async def _listen(receive: Receive, heard: Callable[[Message | Exception], bool]) -> None:
    go_on = True
    while go_on:
        try:
            message = await receive()
        except asyncio.CancelledError:
            if cancellations():
                raise
            message = ConnectionError("receive() was cancelled")  # within the server
        except Exception as exc:
            message = exc
        go_on = heard(message)
