"""The answer to a request for server-sent events, for handlers that hand it to their framework."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self, final

from .answer import Answer, RawHeader
from .delivery import Delivery


@final
class EventAnswer:
    """An HTTP answer with a body to iterate. It has a place in the purgatory until its iteration ends.

    A refusal has its status and a short body, so a handler treats it like any other. The place is also free again when
    the iterator is closed, or nothing refers to it. The same holds if its client takes no event for ``Policy.stall``
    seconds.

    Attributes:
        status: 200; 404, 410, 413 or 503 for a refusal; 499: the client has left.
        raw_headers: pairs of bytes, names in lower case.
    """

    __slots__ = ("_chunk", "_delivery", "_is_over", "_loop", "raw_headers", "status")

    def __init__(self, delivery: Delivery[Any], answer: Answer) -> None:
        self.status: int = answer.status
        self.raw_headers: list[RawHeader] = answer.raw_headers
        self._delivery = delivery
        #: The next chunk to return; empty: none is there yet.
        self._chunk = answer.body
        self._is_over = not delivery.is_open
        self._loop = asyncio.get_running_loop()
        if delivery.is_open:
            delivery.close_when_ended()

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.raw_headers}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next events, or a heartbeat. To be called when the last ones have been sent."""
        chunk, self._chunk = self._chunk, b""
        if not chunk and not self._is_over:
            chunk = await self._next()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _next(self) -> bytes:
        delivery, found = self._delivery, b""

        async def read() -> None:
            nonlocal found
            found = await delivery.next() or b""

        try:
            last = await delivery.go_on(read())
        except BaseException:
            self._end()
            raise
        if found:
            return found
        self._end()
        return last or b""

    async def aclose(self) -> None:
        """End the iteration, and release the place. A second call does nothing."""
        self._end()

    def _end(self) -> None:
        self._chunk, self._is_over = b"", True
        self._delivery.close()

    def __del__(self) -> None:
        if self._delivery.is_open:  # in any thread
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._delivery.close)
