"""The ASGI wrapper through lifespans, first requests, stop signals, and one event loop after the other."""

from __future__ import annotations

import asyncio
import signal

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.asgi import LongPollApp, Scope, Send
from aiopurgatory.web.disconnect import Receive

from .by_hand import App, Server, settle

pytestmark = pytest.mark.usefixtures("handlers")


async def test_lifespan_opens_and_closes_the_purgatory() -> None:
    purgatory = Purgatory()
    states = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        states.append(repr(purgatory))

    server = Server(app, purgatory)
    await server.app({"type": "lifespan"}, server.receive, server.send)
    states.append(repr(purgatory))
    assert [state.split()[2] for state in states] == ["open", "closed"]
    await server.run()  # too late, but the app's affair


async def test_app_without_lifespan_is_served_all_the_same() -> None:
    purgatory = Purgatory()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise ValueError("no lifespan")
        await purgatory.wait_for(lambda: True, ["key"], 1.0)

    server = Server(app, purgatory)
    with pytest.raises(ValueError, match="no lifespan"):
        await server.app({"type": "lifespan"}, server.receive, server.send)
    await server.run()
    await purgatory.aclose()


async def test_first_request_opens_the_purgatory() -> None:
    purgatory = Purgatory()
    await Server(App("answer"), purgatory).run()
    assert "open" in repr(purgatory)
    await purgatory.aclose()


# again


class Life:
    """A lifespan of *app* that lasts until it is told to end."""

    def __init__(self, app: LongPollApp, server: Server) -> None:
        self.app, self.server = app, server

    async def start(self) -> None:
        self.task = asyncio.create_task(self.app({"type": "lifespan"}, self.server.receive, self.server.send))
        await settle()

    async def end(self) -> None:
        self.server.body(b"")  # any message: the app made by hand takes one
        await self.task


def lasting(purgatory: Purgatory) -> tuple[Server, Life]:
    """A server whose app lives on until it gets a message, and its life."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()

    server = Server(app, purgatory)
    return server, Life(server.app, server)


async def test_lifespan_end_puts_the_handlers_of_the_server_back(purgatory: Purgatory) -> None:
    def handle(number: int, frame: object) -> None: ...

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    server, life = lasting(purgatory)
    for _ in range(2):
        await life.start()
        assert signal.getsignal(signal.SIGTERM) is handle
        await server.run()
        assert signal.getsignal(signal.SIGTERM) is not handle
        await life.end()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [handle, handle]


def test_lifespan_end_puts_them_back_after_a_loop_without_lifespan() -> None:
    def handle(number: int, frame: object) -> None: ...

    async def live() -> None:
        await life.start()
        await server.run()
        await life.end()

    signal.signal(signal.SIGTERM, handle)
    purgatory = Purgatory()
    server, life = lasting(purgatory)
    asyncio.run(server.run())
    asyncio.run(live())
    assert signal.getsignal(signal.SIGTERM) is handle


async def stop_signal() -> None:
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0.01)


async def test_stop_signal_closes_the_purgatory_of_every_life(purgatory: Purgatory) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    server, life = lasting(purgatory)
    opened = []
    for _ in range(2):
        await life.start()
        for step in (server.run, stop_signal):
            await step()
            opened.append(purgatory.is_open)
        await life.end()
    assert opened == [True, False, True, False]


def test_first_request_in_the_next_loop_opens_the_purgatory_again() -> None:
    async def serve() -> None:
        for step in (server.run, stop_signal, server.run):
            await step()
            opened.append(purgatory.is_open)

    signal.signal(signal.SIGTERM, lambda *_: None)
    purgatory = Purgatory()
    server = Server(App("answer"), purgatory)
    opened: list[bool] = []
    for _ in range(2):
        asyncio.run(serve())
    # Once closed, no request in the same loop opens it: the server stops.
    assert opened == [True, False, False] * 2


async def test_request_leaves_a_purgatory_that_was_closed_before(purgatory: Purgatory) -> None:
    purgatory.close()
    server = Server(App("answer"), purgatory)
    await server.run()
    assert (server.statuses, purgatory.is_open) == ([200], False)
