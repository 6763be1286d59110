"""The ASGI wrapper against servers and apps made by hand: each order in which things can happen."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.web.asgi import READ_AHEAD, LongPollApp, Scope, Send, _Exchange
from aiopurgatory.web.disconnect import Message, Receive

from .by_hand import DISCONNECT, App, Server, settle

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.fixture(autouse=True, params=["task", "plain"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "plain", request.param == "plain")


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
