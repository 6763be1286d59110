"""The ASGI wrapper against servers and apps made by hand: each order in which things can happen."""

from __future__ import annotations

import asyncio
import functools
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import anyio
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.asgi import READ_AHEAD, ASGIApp, LongPollApp, Scope, Send, _Exchange
from aiopurgatory.web.listening import Message, Receive
from aiopurgatory.web.stopping import on_stop_signal

DISCONNECT: Message = {"type": "http.disconnect"}


class Server:
    """One request, as a server has it."""

    #: Is receive() one that need not be listened to in a task?
    plain = False

    def __init__(self, app: ASGIApp, purgatory: Purgatory) -> None:
        self.app = LongPollApp(app, purgatory)
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.receiving = 0

    async def receive(self) -> Message:
        assert self.receiving == 0, "two at once"
        self.receiving += 1
        try:
            return await self.messages.get()
        finally:
            self.receiving -= 1

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def body(self, *parts: bytes, more: bool = False) -> None:
        for i, part in enumerate(parts):
            self.messages.put_nowait({"type": "http.request", "body": part, "more_body": more or i + 1 < len(parts)})

    def start(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.run())

    async def run(self) -> None:
        receive = functools.partial(self.receive)
        if self.plain:
            receive.__module__ = "uvicorn.protocols.http"
        await self.app({"type": "http"}, receive, self.send)

    @property
    def statuses(self) -> list[int]:
        return [message["status"] for message in self.sent if "status" in message]


class App:
    """Notes what happens to it."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps
        self.seen: list[str] = []
        self.gate = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            for step in self.steps:
                if step == "wait":
                    await self.gate.wait()
                elif step == "pause":
                    await settle()
                elif step == "receive":
                    message = await receive()
                    self.seen.append(message["type"].removeprefix("http.") + message.get("body", b"").decode()[:9])
                else:
                    await self.respond(step, send)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def respond(self, step: str, send: Send) -> None:
        if step in ("answer", "begin"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if step == "answer":
            await send({"type": "http.response.body", "body": b""})


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True, params=["task", "plain"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "plain", request.param == "plain")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_app_that_answers_at_once_is_not_listened_to(purgatory: Purgatory) -> None:
    app = App("receive", "answer")
    server = Server(app, purgatory)
    server.body(b"x")
    await server.run()
    assert (server.statuses, app.seen) == ([200], ["requestx"])
    await settle()
    assert server.receiving == 0


@pytest.mark.parametrize("steps", [("wait",), ("receive", "wait"), ("wait", "answer")])
async def test_client_that_leaves_cancels_the_app(purgatory: Purgatory, steps: tuple[str, ...]) -> None:
    app = App(*steps)
    server = Server(app, purgatory)
    server.body(b"")
    task = server.start()
    await settle()
    server.messages.put_nowait(DISCONNECT)
    await task
    assert task.cancelling() == 0
    assert (app.seen[-1], server.sent, server.receiving) == ("cancelled", [], 0)


async def test_client_that_left_before_the_app_waits_cancels_it(purgatory: Purgatory) -> None:
    app = App("wait")
    server = Server(app, purgatory)
    server.messages.put_nowait(DISCONNECT)
    await server.run()
    assert app.seen == ["cancelled"]


async def test_client_that_leaves_during_the_upload_cancels_the_app(purgatory: Purgatory) -> None:
    app = App("receive", "receive", "answer")
    server = Server(app, purgatory)
    server.body(b"half", more=True)
    task = server.start()
    await settle()
    server.messages.put_nowait(DISCONNECT)
    await task
    assert (app.seen, server.sent) == (["requesthalf", "cancelled"], [])


async def test_client_that_leaves_after_the_answer_began_is_let_be(purgatory: Purgatory) -> None:
    app = App("wait", "begin", "pause", "receive", "receive")
    server = Server(app, purgatory)
    server.body(b"")
    task = server.start()
    await settle()
    app.gate.set()
    await asyncio.sleep(0)
    server.messages.put_nowait(DISCONNECT)
    await task
    assert app.seen == ["request", "disconnect"]


async def test_background_work_after_the_answer_is_not_cancelled(purgatory: Purgatory) -> None:
    app = App("answer", "wait", "receive", "receive")
    server = Server(app, purgatory)
    server.body(b"")
    server.messages.put_nowait(DISCONNECT)
    task = server.start()
    await settle()
    app.gate.set()
    await task
    assert app.seen == ["request", "disconnect"]


async def test_app_that_listens_in_a_task_of_its_own_is_told_instead(purgatory: Purgatory) -> None:
    """As Quart does, whose handler would be orphaned if its parent were cancelled."""
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await asyncio.wait([asyncio.create_task(listen())])
        await settle()
        seen.append("told")

    server = Server(app, purgatory)
    server.body(b"")
    task = server.start()
    await settle()
    for _ in range(3):  # servers say it each time they are asked
        server.messages.put_nowait(DISCONNECT)
    await task
    assert seen == ["told"]


async def test_app_that_asks_while_it_is_listened_to_is_told_everything(purgatory: Purgatory) -> None:
    app = App("wait", "receive", "receive", "answer")
    server = Server(app, purgatory)
    task = server.start()
    await settle()
    app.gate.set()
    await settle()
    server.body(b"1", b"2")
    await task
    assert (app.seen, server.statuses) == (["request1", "request2"], [200])


async def test_body_is_read_ahead_only_so_far(purgatory: Purgatory) -> None:
    app = App("wait", *["receive"] * 8, "answer")
    server = Server(app, purgatory)
    server.body(*[b"%d" % i + b"x" * (READ_AHEAD // 2) for i in range(8)])
    task = server.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.messages.qsize() == 6
    app.gate.set()
    await task
    assert [seen[7] for seen in app.seen] == list("01234567")


async def test_stand_in_that_always_has_a_message_does_not_hold_up_the_loop(purgatory: Purgatory) -> None:
    app = App("wait", "answer")
    server = Server(app, purgatory)
    server.body(*[b""] * 1_000)
    running = server.start()
    await settle()
    assert server.messages.qsize() > 900
    app.gate.set()
    await running
    assert server.statuses == [200]


async def test_question_whether_the_client_left_loses_nothing(purgatory: Purgatory) -> None:
    """As Starlette's is_disconnected() asks: by a receive() that is cancelled where it has to wait."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            question = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            question.cancel()
            await asyncio.wait([question])
        seen.append((await receive())["body"])
        await asyncio.Event().wait()

    server = Server(app, purgatory)
    task = server.start()
    await settle()
    server.body(b"whole")
    await settle()
    assert seen == [b"whole"]
    server.messages.put_nowait(DISCONNECT)
    await task


async def test_question_in_the_turn_of_the_body_leaves_the_client_listened_to(purgatory: Purgatory) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with anyio.CancelScope() as question:  # as Starlette's is_disconnected() does
            question.cancel()
            await receive()
        await asyncio.Event().wait()

    server = Server(app, purgatory)
    server.body(b"whole")
    task = server.start()
    await settle()
    server.messages.put_nowait(DISCONNECT)
    await settle()
    assert task.done()


async def test_question_beside_a_task_that_listens_takes_nothing_from_it(purgatory: Purgatory) -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await settle()
        await receive()
        listening = asyncio.ensure_future(receive())
        await settle()
        question = asyncio.ensure_future(receive())
        await settle()
        question.cancel()
        seen.append((await listening)["type"])

    server = Server(app, purgatory)
    server.body(b"whole")
    task = server.start()
    await asyncio.sleep(0)
    for _ in range(5):
        await settle()
    server.messages.put_nowait(DISCONNECT)
    await settle()
    assert (task.done(), seen) == (True, ["http.disconnect"])


async def test_cancellation_by_the_server_is_answered_and_goes_on(purgatory: Purgatory) -> None:
    app = App("wait")
    server = Server(app, purgatory)
    server.body(b"")
    task = server.start()
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.statuses == [503]
    assert {name for name, _ in server.sent[0]["headers"]} >= {b"retry-after"}


async def test_cancellation_by_the_server_after_the_answer_began_adds_nothing(purgatory: Purgatory) -> None:
    server = Server(App("begin", "wait"), purgatory)
    task = server.start()
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.statuses == [200]


async def test_client_and_server_in_one_turn_cancel_both(purgatory: Purgatory) -> None:
    server = Server(App("wait"), purgatory)
    server.body(b"")
    task = server.start()
    await settle()
    server.messages.put_nowait(DISCONNECT)
    while not task.cancelling():  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.statuses == []


@pytest.mark.parametrize("turns", range(7))
async def test_client_leaves_at_any_turn_and_no_task_stays(purgatory: Purgatory, turns: int) -> None:
    app = App("receive", "wait", "answer")
    server = Server(app, purgatory)
    server.body(b"")
    before = asyncio.all_tasks()
    task = server.start()
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn == 3:
            app.gate.set()
    server.messages.put_nowait(DISCONNECT)
    await task
    await settle()
    assert asyncio.all_tasks() == before
    assert app.seen[-1] == "cancelled" or server.statuses == [200]


@pytest.mark.parametrize("ending", ["answer", "leave", "at once"])
async def test_request_that_ended_needs_no_garbage_collector(purgatory: Purgatory, ending: str) -> None:
    gc.collect()
    gc.disable()
    try:
        app = App("answer") if ending == "at once" else App("receive", "wait", "answer")
        server = Server(app, purgatory)
        server.body(b"")
        task = server.start()
        await settle()
        if ending == "leave":
            server.messages.put_nowait(DISCONNECT)
        app.gate.set()
        await task
        await settle()
        assert [left for left in gc.get_objects() if isinstance(left, _Exchange)] == []
    finally:
        gc.enable()


async def test_app_that_raises_is_heard(purgatory: Purgatory) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise LookupError("a bug")

    server = Server(app, purgatory)
    with pytest.raises(LookupError, match="a bug"):
        await server.run()


async def test_receive_that_raises_is_heard_by_the_app_alone(purgatory: Purgatory) -> None:
    app = App("wait", "receive")
    wrapped = LongPollApp(app, purgatory)

    async def receive() -> Message:
        raise OSError("broken pipe")

    task = asyncio.ensure_future(wrapped({"type": "http"}, receive, Server(app, purgatory).send))
    await settle()
    assert not task.done()
    app.gate.set()
    with pytest.raises(OSError, match="broken pipe"):
        await task


async def test_other_scopes_pass(purgatory: Purgatory) -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, send))

    server = Server(app, purgatory)
    scope = {"type": "websocket"}
    await server.app(scope, server.receive, server.send)
    assert seen == [(scope, server.receive, server.send)]


# life


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


# signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stop_signal_closes_before_the_server_sees_the_next_turn(number: int) -> None:
    order: list[str] = []
    signal.signal(number, lambda *_: order.append("server"))
    undo = on_stop_signal(lambda: order.append("closed"))
    signal.raise_signal(number)
    assert order == ["server"]
    await asyncio.sleep(0.01)
    assert order == ["server", "closed"]
    undo()
    signal.raise_signal(number)
    await asyncio.sleep(0.01)
    assert order == ["server", "closed", "server"]


async def test_stop_signal_handled_by_the_loop_reaches_both() -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, order.append, "loop")
    try:
        undo = on_stop_signal(lambda: order.append("closed"))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.02)
        assert sorted(order) == ["closed", "loop"]
        undo()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.02)
        assert sorted(order) == ["closed", "loop", "loop"]
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_stop_signal_that_nobody_handles_is_left_alone() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    on_stop_signal(lambda: None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


async def test_stop_signal_handler_put_on_top_stays() -> None:
    def below(number: int, frame: FrameType | None) -> None: ...
    def on_top(number: int, frame: FrameType | None) -> None: ...

    signal.signal(signal.SIGTERM, below)
    undo = on_stop_signal(lambda: None)
    signal.signal(signal.SIGTERM, on_top)
    undo()
    assert signal.getsignal(signal.SIGTERM) is on_top


def test_stop_signal_after_the_loop_is_gone_reaches_the_server() -> None:
    order: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: order.append("server"))

    async def main() -> None:
        on_stop_signal(lambda: order.append("closed"))

    asyncio.run(main())
    signal.raise_signal(signal.SIGTERM)
    assert order == ["server"]


def test_stop_signal_in_another_thread_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> Callable[[], None]:
        return on_stop_signal(lambda: None)

    thread = threading.Thread(target=lambda: asyncio.run(main())())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
