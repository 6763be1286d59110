"""A connection to Redis once redis-py has opened it: commands out, answers in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, cast, final

try:
    import hiredis
    from redis import exceptions
except ImportError as exc:
    raise ImportError('aiopurgatory.bus.redis needs hiredis: pip install "aiopurgatory[redis]"') from exc

Command = tuple[str | int, ...]

#: Its stub knows tuples of one part only.
_pack: Final = cast(Callable[[Command], bytes], hiredis.pack_command)

#: A reader returns this if it has no whole answer.
MORE: Final = object()


@final
class Wire(asyncio.Protocol):
    """Takes *connection* over from redis-py. There, every answer passes a stream and five coroutines.

    Args:
        connection: it is open, and no answer is missing on it.
        heard: called with each answer. An error of the server is a ResponseError. Its text begins with its code.
        lost: called with the reason when the connection ends, unless abort() was called before.
    """

    def __init__(self, connection: Any, heard: Callable[[Any], object], lost: Callable[[Exception], object]) -> None:
        self._connection, self._heard, self._lost = connection, heard, lost
        self._reader = hiredis.Reader(exceptions.InvalidResponse, exceptions.ResponseError, notEnoughData=MORE)
        self._is_over = False
        self._transport: asyncio.WriteTransport = connection.transport()
        self._transport.set_protocol(self)

    def send(self, commands: Iterable[Command]) -> None:
        self._transport.write(b"".join(map(_pack, commands)))

    def abort(self) -> None:
        """Close it at once: the server may not answer. Idempotent."""
        self._is_over = True
        self._connection.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while not self._is_over and (answer := self._reader.gets()) is not MORE:
                self._heard(answer)
        except Exception as exc:
            self._end(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server has closed the connection"))

    def _end(self, why: Exception) -> None:
        if not self._is_over:
            self.abort()
            self._lost(why)
