"""A bus in memory, for tests: the rules of the real buses, an object as the server, and gaps on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Unpack

from ..arguments import require_methods
from ..bus.engine import Hear, Link, Lost
from ..bus.server import BusOptions, ServerBus
from ..bus.targets import Target


class MemoryServer:
    """The server that the MemoryBuses of a test share. Set ``is_down`` to break their links and refuse new ones."""

    def __init__(self) -> None:
        self._links: list[_MemoryLink] = []
        self._is_down = False

    @property
    def is_down(self) -> bool:
        """Whether the server is down. False (default): it accepts links."""
        return self._is_down

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self._is_down = is_down
        for link in self._links[:] if is_down else ():
            link.break_off()

    def deliver(self, messages: list[str]) -> None:
        """Deliver *messages* to every link, as if another process had published them."""
        for link in self._links[:]:
            for message in messages:
                link.deliver(message)


class MemoryBus(ServerBus):
    """A Bus that reaches the other MemoryBuses of the same *server*, in the same event loop.

        server = MemoryServer()
        async with MemoryBus(server, [polls_a]) as bus_a, MemoryBus(server, [polls_b]) as bus_b:
            bus_b.lose()
            bus_a.publish("key")  # does not reach polls_b
            await bus_b.gap()  # polls_b checks everything

    Args:
        server: the MemoryServer. Buses on the same one reach each other.
        targets: purgatories and long polls to check, as for Bus.
        options: name, heartbeat, timeout, spread and observers, as for PostgresBus.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(self, server: MemoryServer, targets: Iterable[Target], **options: Unpack[BusOptions]) -> None:
        require_methods("server", server, ("deliver",), "MemoryServer")
        self._memory = MemoryEngine(server)
        super().__init__(self._memory, targets, **options)

    def lose(self) -> None:
        """Lose every message to this bus until gap() is called, or until the bus notices a missing echo.

        Raises: BusClosedError: the bus is not open.
        """
        self._check_here()
        if self._memory.link is not None:
            self._memory.link.is_deaf = True

    async def gap(self) -> None:
        """Break the link, then wait until the bus is connected again and has checked everything.

        Raises: BusClosedError: the bus is not open, or closes meanwhile.
        """
        link = self._memory.link
        if link is not None:
            link.break_off()
        while self._memory.link is link or not self.statistics().connected:
            self._check_here()
            await asyncio.sleep(0.001)


class MemoryEngine:
    """The engine of a MemoryBus."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self.link: _MemoryLink | None = None

    async def open(self, channels: Sequence[str], hear: Hear, lost: Lost) -> _MemoryLink:
        await asyncio.sleep(0)
        if self._server.is_down:
            raise ConnectionRefusedError("the MemoryServer is down")
        self.link = _MemoryLink(self._server, hear, lost)
        return self.link

    def explain(self, exc: Exception) -> str:
        return f"cannot connect to the MemoryServer: {exc}"


class _MemoryLink(Link):
    def __init__(self, server: MemoryServer, hear: Hear, lost: Lost) -> None:
        self._server, self._hear, self._lost = server, hear, lost
        self.is_deaf = False
        server._links.append(self)

    async def send(self, messages: list[str]) -> None:
        await asyncio.sleep(0)
        if self._server.is_down:
            raise ConnectionResetError("the MemoryServer is down")
        self._server.deliver(messages)

    def abort(self) -> None:
        self._server._links.remove(self)

    def deliver(self, message: str) -> None:
        if not self.is_deaf:
            asyncio.get_running_loop().call_soon(self._hear, message)

    def break_off(self) -> None:
        self._lost(ConnectionResetError("the link was broken by the test"))
