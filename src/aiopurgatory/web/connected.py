"""A block of code that ends with its client, in any handler."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partial
from types import TracebackType
from typing import Any, Final, final

from ..arguments import require_function
from ..errors import PurgatoryError
from .answer import UnreadBodyError
from .asgi import MAX_PARTS, Ended, Listen, Receive, listen

logger = logging.getLogger("aiopurgatory")


class Client:
    """The client of a request, as a middleware knows it, and what listens for its disconnect."""

    #: Whether the answer has begun.
    has_begun = False
    #: What to tell; None: nothing has listened yet.
    blocks: list[Ended] | None = None
    #: Why those are ended, once they are; see Ended.
    reason: tuple[Exception | None] | None = None

    def listener(self) -> Listen:
        """Return what listens for the disconnect. From now on, the handler counts as one that does."""
        if self.blocks is None:
            self.blocks = []
        return self.listen

    def listen(self, ended: Ended) -> Callable[[], object]:
        """Call *ended* when the client disconnects. Returns: stops that."""
        if self.reason is not None:
            return asyncio.get_running_loop().call_soon(ended, *self.reason).cancel
        assert self.blocks is not None
        self.blocks.append(ended)
        return partial(self.blocks.remove, ended)

    def tell(self, reason: Exception | None) -> None:
        """The client has disconnected (None), or that would not be noticed for this *reason*."""
        self.reason = (reason,)
        for ended in self.blocks or ():
            ended(reason)


#: The client of the running handler, in an app with a middleware of this library.
client: Final[ContextVar[Client]] = ContextVar("client")


class DisconnectedError(PurgatoryError):
    """The client has disconnected during a while_connected() block.

    In Starlette and FastAPI, it is also one of their ``HTTPException``, so they answer it with status 499, and log
    nothing. In Litestar, its status is enough for that. In plain ASGI, catch it and return: nobody reads an answer.

    If the client sends a body that nobody reads, in more than 64 messages, its disconnect would not be noticed. Then
    this is raised at once, with status 413.
    """

    headers: None = None  # which Starlette reads

    def __init__(self, status_code: int = 499, detail: str = "the client has disconnected") -> None:
        Exception.__init__(self, detail)
        self.status_code = status_code
        self.detail = detail


def while_connected(receive: Receive | None = None) -> Connected:
    """Return a block that is cancelled when its client disconnects, and then raises DisconnectedError.

        @app.get("/next")
        async def next_job() -> str:
            async with while_connected():
                return await purgatory.wait_for(take, ["jobs"], timeout=25.0, on_undelivered=put)

    Servers do not cancel a handler when its client disconnects. In this block, whatever is awaited then is cancelled: a
    wait, an iteration, a query of a database. It works like ``asyncio.timeout()``: other cancellations, timeouts and
    task groups, inside or outside, keep their meaning. A value that arrives together with the disconnect goes to
    *on_undelivered*, or the block ends as usual and your handler has it. An answer that is under way when the client
    disconnects is lost with it.

    Keep the answer outside of the block: once it is sent, servers report a disconnect. So give a FastAPI dependency
    ``scope="function"``.

    In an app with a PurgatoryMiddleware, or prepared by ``aiopurgatory.web.aiohttp.setup()``, it needs no argument, and
    the body can be read inside the block. In other ASGI apps, pass the request's *receive*, and read the body before
    the block: what arrives during the block is dropped, and the first time a warning is logged.

    Args: receive: ASGI's. If it raises, the client counts as disconnected. None (default): the middleware's.

    Raises:
        DisconnectedError: the client has disconnected during the block.
        TypeError: *receive* is not a function, or belongs to a WebSocket, which tells its handler itself.
        RuntimeError: there is no middleware and no *receive*; or no task is running, or the block was entered before.

    Cost: a task, 10 to 15 us. Half of that is asyncio's for any task that is cancelled, a quarter the server's for its
    receive(). It adds 6 % of the instructions of a long poll and the POST that ends it, in Starlette under uvicorn with
    h11, and 14 % with httptools.
    """
    if receive is not None:
        require_function("receive", receive)
        owner = getattr(receive, "__self__", None)
        if getattr(owner, "scope", {}).get("type") == "websocket":
            raise TypeError(f"receive must be that of an HTTP request, got a WebSocket's, of {type(owner).__name__}")
    found = listener(receive)
    if found is None:
        raise RuntimeError(
            "while_connected() found no client: add a PurgatoryMiddleware to the app, or pass the receive of an HTTP "
            "request; aiohttp needs setup(app, purgatory), and handler_cancellation=True for run_app() or AppRunner()"
        )
    return Connected(found)


@cache
def _warn_of_body() -> None:
    """Log once that a body was dropped: a handler that reads it then waits for ever."""
    logger.warning(
        "a while_connected() block or a poll has dropped a body that was not read before; to read it now waits "
        "for ever. Read it before, or add a PurgatoryMiddleware to the app, which keeps it"
    )


def listener(receive: Receive | None, dropped: Callable[[], object] = _warn_of_body) -> Listen | None:
    """Return what listens for a client's disconnect: by *receive*, or by a middleware; None: there is neither.

    Args: dropped: called when a part of the body is dropped. A middleware keeps it.
    """
    owner = client.get(None) if receive is None else getattr(receive, "__self__", None)
    if isinstance(owner, Client):
        return owner.listener()
    return None if receive is None else partial(listen, receive, dropped)


@final
class Connected:
    """A block that ends with its client, in the manner of ``asyncio.timeout()``. Use it once.

    Args: listen: listens for the disconnect, and calls what it is given then. Returns a function that stops it.
    """

    __slots__ = ("_cancelling", "_listen", "_reason", "_stop", "_task")

    def __init__(self, listen: Listen) -> None:
        self._listen: Final = listen
        self._task: asyncio.Task[Any] | None = None
        #: Why the block is to end, once its task was cancelled for that; see Ended.
        self._reason: tuple[Exception | None] | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise RuntimeError("a while_connected() block must be entered in a task, and once")
        self._task, self._cancelling = task, task.cancelling()
        self._stop: Callable[[], object] | None = self._listen(self._end)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        stop, self._stop = self._stop, None  # it refers to this: cut the cycle
        assert stop is not None
        assert self._task is not None
        stop()
        if self._reason is not None:
            is_alone = self._task.uncancel() <= self._cancelling  # nothing else has cancelled the task
            if is_alone and isinstance(exc, asyncio.CancelledError):
                raise _error_for(*self._reason) from exc

    def _end(self, reason: Exception | None) -> None:
        """Cancel the task within the block. A second call does nothing."""
        assert self._task is not None
        if self._reason is None:
            self._reason = (reason,)
            self._task.cancel()


def _error_for(reason: Exception | None) -> Exception:
    """Return the error that a block raises for *reason*."""
    if reason is not None and not isinstance(reason, UnreadBodyError):
        return type(reason)(*reason.args)
    starlette = sys.modules.get("starlette.exceptions")
    kind = DisconnectedError if starlette is None else _answered_by(starlette.HTTPException)
    if reason is None:
        return kind()
    return kind(413, f"the request has a body in more than {MAX_PARTS} parts; read it before the block, or send none")


@cache
def _answered_by(starlette_error: type[Exception]) -> type[DisconnectedError]:
    """Return the subclass that Starlette's middleware answers."""
    return type("DisconnectedError", (DisconnectedError, starlette_error), {"__module__": __name__})
