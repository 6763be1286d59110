"""The client of a request: what it is sent, how its disconnect is noticed, and a block of code that ends with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Final, final

from ..arguments import require_function
from ..clock import cancellations
from .answer import NO_BODY, Answer, DisconnectedError, UnreadBodyError, logger

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]  # of a Message, which some frameworks describe in more detail
Send = Callable[[Message], Awaitable[None]]
#: Called with None when a client has disconnected; else with the reason why that would not be noticed.
Ended = Callable[[Exception | None], object]
#: Calls what it is given when the client disconnects. Returns: stops that.
Listen = Callable[[Ended], Callable[[], object]]

#: The most messages to receive once the body is whole. A server sends only the disconnect. A test's stand-in for a
#: server may send the same message at every call: then it never sends a disconnect.
MAX_AFTER: Final = 3
#: Bytes of a body to read ahead for the app while a block listens. Each message counts MESSAGE bytes more.
READ_AHEAD: Final = 64 << 10
MESSAGE: Final = 512
#: Seconds that a body may fill READ_AHEAD without being read: no disconnect is noticed behind it.
UNREAD: Final = 10.0
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
        return message
    except asyncio.CancelledError:
        if cancellations():
            raise  # else it was cancelled within the server
    except Exception as exc:
        if not isinstance(exc, OSError):
            logger.warning("receive() raised %r; the request ends as if its client had disconnected", exc)
    return DISCONNECT


def ignore() -> None:
    """What is dropped is not missed."""


def listen(receive: Receive, dropped: Callable[[], object], ended: Ended) -> Callable[[], object]:
    """Call *receive* repeatedly, until the client disconnects, and drop what it returns. Returns: stops that.

    Args:
        dropped: called when a part of the body is dropped.
        ended: called with None when the client has disconnected, or if *receive* raises; else with a TypeError: it is
            not an HTTP request's.
    """
    # Not by the loop's task factory: an eager task might call *ended* before this returns.
    return asyncio.Task(_listen(receive, dropped, ended), loop=asyncio.get_running_loop()).cancel


async def _listen(receive: Receive, dropped: Callable[[], object], ended: Ended) -> None:
    after = 0
    while after < MAX_AFTER:
        message = await next_message(receive)
        kind = message["type"]
        if kind == "http.disconnect":
            ended(None)
            return
        if not kind.startswith("http."):
            ended(TypeError(f"receive must belong to an HTTP request, got a {kind!r} from it"))
            return
        if message.get("body"):
            dropped()
        after += not message.get("more_body")
        del message  # the next one may come in hours


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
        self.blocks = self.blocks or []
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


@final
class Inbox(Client):
    """The messages of one request, for its app and for the blocks of its handlers.

    Until a block listens, the app calls the server's receive(). From then on, a task does: it keeps the messages for
    the app, and tells the blocks of the disconnect.
    """

    #: ASGI's receive() and send() of the request.
    from_server: Receive
    to_server: Send
    #: The task that calls receive(), since a block has listened.
    listening: asyncio.Task[None] | None = None
    #: Wakes the task and the app, once they have waited for room or a message.
    _change: asyncio.Event | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """The app's send()."""
        self.has_begun = True
        return self.to_server(message)

    def receive(self) -> Awaitable[Message]:
        """The app's receive()."""
        return self.from_server() if self.listening is None else self._next(self.listening)

    async def _next(self, listening: asyncio.Task[None]) -> Message:
        while not self._kept:
            if listening.done():
                message: Message = await self.from_server()
                return message
            await self._changed()
        message = self._kept[0]
        if message["type"] != "http.disconnect":  # that is the last one, at every call
            del self._kept[0]
            self._note_change()
        return message

    def listen(self, ended: Ended) -> Callable[[], object]:
        if self.listening is None:
            self._kept: list[Message] = []
            hear = _listen(self._receive_ahead, ignore, self.tell)
            self.listening = asyncio.Task(hear, loop=asyncio.get_running_loop())  # as above
        return super().listen(ended)

    async def _receive_ahead(self) -> Message:
        """Receive and keep the next message, once the app has read what is too much of the body."""
        while self._is_full():
            try:
                async with asyncio.timeout(UNREAD):
                    await self._changed()
            except TimeoutError:
                self.tell(UnreadBodyError(f"the request has more than {READ_AHEAD:,} unread bytes; send none"))
        try:
            message = await next_message(self.from_server)
            self._kept.append(message)
        finally:
            self._note_change()  # also if the request has ended: then the app calls the server's receive() again
        return message

    def _is_full(self) -> bool:
        if not (self._kept and self._kept[-1].get("more_body")):
            return False
        return sum(MESSAGE + len(message.get("body", b"")) for message in self._kept) >= READ_AHEAD

    async def _changed(self) -> None:
        self._change = self._change or asyncio.Event()
        await self._change.wait()

    def _note_change(self) -> None:
        if self._change is not None:
            self._change.set()
            self._change.clear()


#: The client of the running handler, in an app with a middleware of this library.
client: Final[ContextVar[Client]] = ContextVar("client")


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
    owner = getattr(receive, "__self__", None)
    if getattr(owner, "scope", {}).get("type") == "websocket":
        raise TypeError(f"receive must belong to an HTTP request, got a WebSocket's, of {type(owner).__name__}")
    found = listener(receive)
    if found is None:
        raise RuntimeError(
            "while_connected() found no HTTP request: add a PurgatoryMiddleware to the app, or pass its receive; "
            "aiohttp needs setup(app, purgatory), and handler_cancellation=True for run_app() or AppRunner(). "
            "A WebSocket tells its handler itself"
        )
    return Connected(found)


@cache
def _warn_of_body() -> None:
    """Log once that a body was dropped: a handler that reads it then waits for ever."""
    logger.warning(
        "a while_connected() block or a poll has dropped a body that was not read before; to read it now waits "
        "for ever. Read it before, or add a PurgatoryMiddleware to the app, which keeps it"
    )


def listener(receive: Any, dropped: Callable[[], object] = _warn_of_body) -> Listen | None:
    """Return what listens for a client's disconnect: by *receive*, or by a middleware; None: there is neither.

    Args: dropped: called when a part of the body is dropped. A middleware keeps it.

    Raises: TypeError: *receive* is not a function.
    """
    owner = client.get(None) if receive is None else getattr(receive, "__self__", None)
    if isinstance(owner, Client):
        return owner.listener()
    if receive is None:
        return None
    require_function("receive", receive)
    return partial(listen, receive, dropped)


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
        self._stop = self._listen(self._end)

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        assert self._task is not None
        stop = self._stop
        del self._stop  # it refers to this: cut the cycle
        stop()  # raises in a loop that is closed
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
    return kind() if reason is None else kind(413, f"{reason}, or read it before the block")


@cache
def _answered_by(starlette_error: type[Exception]) -> type[DisconnectedError]:
    """Return the subclass that Starlette's middleware answers."""
    return type("DisconnectedError", (DisconnectedError, starlette_error), {"__module__": __name__})
