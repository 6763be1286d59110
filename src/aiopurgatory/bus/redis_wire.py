"""A connection to Redis once redis-py has opened it: commands out, answers in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, final

from redis import exceptions

hiredis: Any
try:
    import hiredis
except ImportError:
    hiredis = None

Command = tuple[str | int, ...]

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
        self._reader = new_reader()
        self._is_over = False
        self._transport: asyncio.WriteTransport = connection.transport()
        self._transport.set_protocol(self)

    def send(self, commands: Iterable[Command]) -> None:
        self._transport.write(b"".join(map(pack, commands)))

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


def new_reader() -> Any:
    """Return a reader with feed() and gets(): hiredis' or a plain one."""
    if hiredis is None:
        return PlainReader()
    return hiredis.Reader(exceptions.InvalidResponse, exceptions.ResponseError, notEnoughData=MORE)


@final
class PlainReader:
    """Stands in for hiredis' Reader if that is not installed. It has the methods used here."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._reading: Generator[None, None, Any] | None = None

    def feed(self, data: bytes) -> None:
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def gets(self) -> Any:
        """Return the next answer, or MORE. Raises: InvalidResponse of redis-py."""
        if self._reading is None:
            self._reading = self._answer()
        try:
            next(self._reading)
        except StopIteration as found:
            self._reading = None
            return found.value
        return MORE

    def _answer(self) -> Generator[None, None, Any]:
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            yield
        line = self._taken(end - self._at)
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return exceptions.ResponseError(rest.decode(errors="replace"))
        if kind not in (b":", b"$", b"*") or not rest.lstrip(b"-").isdigit():
            raise exceptions.InvalidResponse(f"not an answer of Redis: {line[:50]!r}")
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"*":
            found = []
            for _ in range(number):
                found.append((yield from self._answer()))
            return found
        while len(self._buffer) - self._at < number + 2:
            yield
        return self._taken(number)

    def _taken(self, length: int) -> bytes:
        """Take so many bytes, and a line end."""
        start = self._at
        self._at += length + 2
        return bytes(self._buffer[start : start + length])


def pack(command: Command) -> bytes:
    """Return *command* as Redis reads it."""
    if hiredis is not None:
        packed: bytes = hiredis.pack_command(command)
        return packed
    parts = [b"*%d\r\n" % len(command)]
    for each in command:
        part = each.encode() if isinstance(each, str) else b"%d" % each
        parts.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(parts)
