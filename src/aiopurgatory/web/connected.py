"""A block of code that ends with its client, in any handler."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Any, Final, final

from ..arguments import require_function
from ..errors import PurgatoryError
from .asgi import DISCONNECT, MAX_PARTS, Message, Receive, listen

#: The most bytes of a body to keep while nobody reads them: about what a server itself keeps of a request.
MAX_UNREAD: Final = 65_536


class DisconnectedError(PurgatoryError):
    """The client has disconnected during a while_connected() block.

    In Starlette and FastAPI, it is also one of their ``HTTPException``, so they answer it with status 499, and log
    nothing. In Litestar, its status is enough for that. In plain ASGI, catch it and return: nobody reads an answer.

    If the client sends a body that nobody reads, in more than 64 messages or 64 KiB, its disconnect would not be
    noticed. Then this is raised at once, with status 413.
    """

    status_code = 499
    detail = "the client has disconnected"


class _UnreadBodyError(DisconnectedError):
    status_code = 413
    detail = f"the request has a body of more than {MAX_PARTS} parts or {MAX_UNREAD} bytes; read it, or send none"


def while_connected(receive: Receive) -> Connected:
    """Return a block that is cancelled when its client disconnects, and then raises DisconnectedError.

        async def next_job(request: Request) -> Response:
            async with while_connected(request.receive):
                job = await purgatory.wait_for(take, ["jobs"], timeout=25.0, on_undelivered=put)
            return JSONResponse(job)

    Servers do not cancel a handler when its client disconnects. In this block, whatever is awaited then is cancelled: a
    wait, an iteration, a query of a database. It works like ``asyncio.timeout()``: other cancellations, timeouts and
    task groups, inside or outside, keep their meaning. A value that arrives together with the disconnect goes to
    *on_undelivered*, or the block ends as usual and your handler has it. An answer that is under way when the client
    disconnects is lost with it.

    Keep the answer outside of the block: once it is sent, servers report a disconnect. So give a FastAPI dependency
    ``scope="function"``.

    Read the body of the request before the block. Inside and after it, read it by the receive that the block returns:

        async with while_connected(request.receive) as receive:
            async for chunk in Request(request.scope, receive).stream():

    If nobody reads it, up to 64 messages and 64 KiB of it are kept for that receive.

    Args: receive: ASGI's. If it raises, the client counts as disconnected.

    Raises:
        DisconnectedError: the client has disconnected during the block.
        TypeError: *receive* is not a function, or that of a WebSocket, which tells its handler itself.
        RuntimeError: no task is running, or the block was entered before.
    """
    require_function("receive", receive)
    return Connected(receive)


@final
class _Body:
    """The messages of a body that came while the block's receive() was not called."""

    __slots__ = ("_bytes", "is_read", "messages")

    def __init__(self) -> None:
        self.messages = asyncio.Queue[Message](MAX_PARTS)
        self._bytes = 0
        #: Whether receive() has been called: from then on, the listener waits for its next call.
        self.is_read = False

    async def keep(self, message: Message) -> bool:
        """Returns: whether there was room."""
        if self.is_read:
            await self.messages.put(message)
            return True
        self._bytes += len(message.get("body", b""))
        if self.messages.full() or self._bytes > MAX_UNREAD:
            return False
        self.messages.put_nowait(message)
        return True


class EndedBlock:
    """A block that something else can end with an error, in the manner of ``asyncio.timeout()``."""

    __slots__ = ("_cancelling", "_error", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        #: The task was cancelled to raise this.
        self._error: Exception | None = None

    def enter(self) -> None:
        """The running task enters."""
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise RuntimeError("a while_connected() block must be entered in a task, and once")
        self._task, self._cancelling = task, task.cancelling()

    def leave(self, exc: BaseException | None) -> None:
        """The task leaves, with *exc*. Raises: the error, if nothing else has cancelled the task."""
        if self._error is not None:
            assert self._task is not None
            if self._task.uncancel() <= self._cancelling and isinstance(exc, asyncio.CancelledError):
                raise self._take_error() from exc

    def end(self, error: Exception) -> None:
        """Cancel the task within the block, to raise *error*. A second call does nothing."""
        if self._error is None and self._task is not None:
            self._error = error
            self._task.cancel()

    def _take_error(self) -> Exception:
        """A local variable, or the attribute, would make a cycle with the exception's frame."""
        error, self._error = self._error, None
        assert error is not None
        return error


@final
class Connected(EndedBlock):
    """What while_connected() returns. Use it once."""

    __slots__ = ("_body", "_has_left", "_is_empty", "_listener", "_receive")

    def __init__(self, receive: Receive) -> None:
        super().__init__()
        self._receive: Final = receive
        self._listener: asyncio.Task[None] | None = None
        self._has_left = False
        #: None until it is needed: most requests have an empty body, which is noted in *_is_empty*.
        self._body: _Body | None = None
        self._is_empty = False

    async def __aenter__(self) -> Receive:
        self.enter()
        self._listener = listen(self._receive, self._ended, self._keep)
        return self.receive

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        listener, self._listener = self._listener, None
        assert listener is not None
        listener.cancel()
        self.leave(exc)

    async def receive(self) -> Message:
        """ASGI's receive for the body of this request, during the block and after it."""
        if self._is_empty:
            self._is_empty = False
            return {"type": "http.request", "body": b"", "more_body": False}
        body = self._body = self._body or _Body()
        body.is_read = True
        if self._listener is not None or not body.messages.empty():
            return await body.messages.get()
        return dict(DISCONNECT) if self._has_left else await self._receive()

    # for the listener

    async def _keep(self, message: Message) -> bool:
        if not message["type"].startswith("http."):
            self.end(TypeError(f"receive must be that of an HTTP request, got a {message['type']!r} from it"))
            return True
        if self._body is None:
            if not message.get("body") and not message.get("more_body"):
                self._is_empty = True
                return True
            self._body = _Body()
        return await self._body.keep(message)

    def _ended(self, has_left: bool) -> None:
        self._has_left = has_left
        self.end(as_answered(DisconnectedError if has_left else _UnreadBodyError))


#: Of DisconnectedError and _UnreadBodyError, the subclass that Starlette answers.
_answered: dict[type[DisconnectedError], type[DisconnectedError]] = {}


def as_answered(kind: type[DisconnectedError]) -> DisconnectedError:
    """Return an error of *kind* that Starlette's middleware answers, if the process uses Starlette."""
    starlette = sys.modules.get("starlette.exceptions")
    if starlette is None:
        return kind(kind.detail)
    if kind not in _answered:
        _answered[kind] = type(kind.__name__, (kind, starlette.HTTPException), {"__module__": kind.__module__})
    return _answered[kind](kind.status_code, kind.detail)
