"""A block of code that ends with its client, in any handler."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, final

from ..arguments import require_function
from ..errors import PurgatoryError
from .answer import UnreadBodyError
from .asgi import MAX_PARTS, Receive, listen


class DisconnectedError(PurgatoryError):
    """The client has disconnected during a while_connected() block.

    In Starlette and FastAPI, it is also one of their ``HTTPException``, so they answer it with status 499, and log
    nothing. In Litestar, its status is enough for that. In plain ASGI, catch it and return: nobody reads an answer.

    If the client sends a body that nobody reads, in more than 64 messages, its disconnect would not be noticed. Then
    this is raised at once, with status 413.
    """

    status_code = 499
    detail = "the client has disconnected"


class _UnreadBodyError(DisconnectedError):
    status_code = 413
    detail = f"the request has a body in more than {MAX_PARTS} parts; read it before the block, or send none"


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

    Read the body of the request before the block: what arrives during the block is dropped.

    Args: receive: ASGI's. If it raises, the client counts as disconnected.

    Raises:
        DisconnectedError: the client has disconnected during the block.
        TypeError: *receive* is not a function, or that of a WebSocket, which tells its handler itself.
        RuntimeError: no task is running, or the block was entered before.

    Cost: a task, 10 to 15 us. That is a tenth of the CPU time of a long poll in Starlette, under uvicorn with asyncio
    and h11, and a sixth with uvloop and httptools.
    """
    require_function("receive", receive)
    return Connected(receive)


class EndedBlock(ABC):
    """A block that something else can end with an error, in the manner of ``asyncio.timeout()``."""

    __slots__ = ("_cancelling", "_error", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        #: Makes the error that the block is to raise: its task was cancelled for that.
        self._error: Callable[[], Exception] | None = None

    def enter(self) -> None:
        """The running task enters."""
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise RuntimeError("a while_connected() block must be entered in a task, and once")
        self._task, self._cancelling = task, task.cancelling()

    @abstractmethod
    def stop(self) -> None:
        """The task leaves: do not call end() any more."""

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        if self._error is not None:
            assert self._task is not None
            is_alone = self._task.uncancel() <= self._cancelling  # nothing else has cancelled the task
            if is_alone and isinstance(exc, asyncio.CancelledError):
                raise self._error() from exc

    def end(self, error: Callable[[], Exception]) -> None:
        """Cancel the task within the block, to raise what *error* returns. A second call does nothing."""
        if self._error is None and self._task is not None:
            self._error = error
            self._task.cancel()


@final
class Connected(EndedBlock):
    """What while_connected() returns. Use it once."""

    __slots__ = ("_listener", "_receive")

    def __init__(self, receive: Receive) -> None:
        super().__init__()
        self._receive: Final = receive
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self.enter()
        self._listener = listen(self._receive, self._ended)

    def stop(self) -> None:
        listener, self._listener = self._listener, None
        assert listener is not None
        listener.cancel()

    def _ended(self, error: Exception | None) -> None:
        if error is None:
            self.end(partial(as_answered, DisconnectedError))
        elif isinstance(error, UnreadBodyError):
            self.end(partial(as_answered, _UnreadBodyError))
        else:
            self.end(partial(type(error), *error.args))


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
