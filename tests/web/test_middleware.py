"""The middleware: what it opens, closes and answers, and what its blocks keep of a body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette

from aiopurgatory import Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import DisconnectedError, LongPolling, PurgatoryMiddleware, while_connected
from aiopurgatory.web.connected import Message, Receive, Scope, Send

from .apps import behind
from .browser import serving
from .conftest import Kept
from .exchange import DISCONNECT, EMPTY, Exchange, Messages, part
from .polls import KNOWN, Counters, settle, until
from .test_connected import forever

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@pytest.fixture
async def purgatory() -> AsyncIterator[Purgatory]:
    purgatory = Purgatory("waits", max_pending=1)
    yield purgatory
    await purgatory.aclose()


def exchange_of(purgatory: Purgatory, handler: Handler, *messages: Message) -> Exchange:
    """A POST to a plain ASGI *handler* behind the middleware."""
    return Exchange(PurgatoryMiddleware(handler, purgatory), given=messages or (EMPTY,), method="POST")


def raising(exc: Exception) -> Handler:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        raise exc

    return handler


async def idle(scope: Scope, receive: Receive, send: Send) -> None:
    pass


async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
    async with while_connected():
        await forever()


async def read(receive: Receive) -> bytes:
    body, has_more = b"", True
    while has_more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        has_more = message["more_body"]
    return body


# open and close


async def test_app_started_twice_opens_and_closes_its_purgatory(purgatory: Purgatory) -> None:
    app = Starlette()
    app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
    for _ in range(2):
        async with serving(app):
            assert purgatory.is_open
        assert not purgatory.is_open


async def test_first_request_opens_it_if_no_server_runs_a_lifespan(purgatory: Purgatory) -> None:
    await exchange_of(purgatory, idle).run()
    assert purgatory.is_open


async def test_request_does_not_open_what_was_closed(purgatory: Purgatory) -> None:
    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await purgatory.wait_for(lambda: False, ["key"], timeout=9.0)

    exchange, after = exchange_of(purgatory, wait), exchange_of(purgatory, wait)
    task = exchange.start()
    await settle()
    purgatory.close()
    await task
    await after.run()
    assert (exchange.status, after.status, purgatory.is_open) == (503, 503, False)


@pytest.mark.parametrize("answered", [None, "startup.complete", "startup.failed"])
async def test_lifespan_that_ends_unanswered_closes_nothing(purgatory: Purgatory, answered: str | None) -> None:
    """An app that takes each scope for a request: servers go on without a lifespan then, unless it is answered."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["type"] == "lifespan" and answered is not None:
            await send({"type": f"lifespan.{answered}"})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    lifespan = Exchange(PurgatoryMiddleware(app, purgatory), given=[{"type": "lifespan.startup"}], type="lifespan")
    await lifespan.run()
    assert purgatory.is_open == (answered is None)


# refusals


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (PurgatoryClosedError("closed"), b"closed"),
        (PurgatoryFullError("full"), b"full"),
        (ExceptionGroup("", [PurgatoryFullError(), ExceptionGroup("", [PurgatoryClosedError()])]), b"full"),
    ],
)
async def test_refusal_that_leaves_a_handler_is_answered_503(
    purgatory: Purgatory, exc: Exception, reason: bytes
) -> None:
    exchange = exchange_of(purgatory, raising(exc))
    await exchange.run()
    headers = dict(exchange.sent[0]["headers"])
    assert (exchange.status, headers[b"refused"], headers[b"cache-control"]) == (503, reason, b"no-store")
    assert 1 <= int(headers[b"retry-after"]) <= 3
    assert int(headers[b"content-length"]) == len(exchange.sent[1]["body"])


async def waiting_for_a_key(purgatory: Purgatory) -> tuple[Exchange, asyncio.Task[None]]:
    """A request whose handler waits for a key, and the task that runs it."""

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await purgatory.wait_for(lambda: None, [("user", 7)], timeout=60.0)

    exchange = exchange_of(purgatory, handler)
    running = asyncio.create_task(exchange.run())
    await until(lambda: purgatory.num_delayed == 1)
    return exchange, running


async def test_handler_whose_wait_was_cancelled_is_answered_503(purgatory: Purgatory) -> None:
    exchange, running = await waiting_for_a_key(purgatory)
    purgatory.cancel_for_key(("user", 7))
    await running
    assert (exchange.status, dict(exchange.sent[0]["headers"])[b"refused"]) == (503, b"closed")


async def test_handler_that_the_server_cancels_is_not_answered(purgatory: Purgatory) -> None:
    exchange, running = await waiting_for_a_key(purgatory)
    running.cancel()
    await asyncio.wait([running])
    assert (running.cancelled(), exchange.sent) == (True, [])


@pytest.mark.parametrize(
    "exc", [LookupError("ours"), ExceptionGroup("", [PurgatoryFullError(), LookupError()]), TimeoutError()]
)
async def test_other_exceptions_pass_unchanged(purgatory: Purgatory, exc: Exception) -> None:
    exchange = exchange_of(purgatory, raising(exc))
    with pytest.raises(type(exc)) as raised:
        await exchange.run()
    assert raised.value is exc
    assert exchange.sent == []


@pytest.mark.parametrize("exc", [PurgatoryFullError(), DisconnectedError()])
async def test_answer_that_has_begun_is_not_changed(purgatory: Purgatory, exc: Exception) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise exc

    exchange = exchange_of(purgatory, handler)
    with pytest.raises(type(exc)):
        await exchange.run()
    assert len(exchange.sent) == 1


async def test_client_that_leaves_ends_its_block_and_nothing_is_logged(
    purgatory: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = exchange_of(purgatory, waiting)
    task = asyncio.create_task(exchange.run())
    await settle()
    exchange.leave()
    await task
    assert exchange.status == 499
    assert caplog.text == ""


async def test_scope_and_websocket_pass_unchanged(purgatory: Purgatory) -> None:
    seen: list[Any] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([scope, receive, send])
        with pytest.raises(RuntimeError, match=r"found no HTTP request: .* A WebSocket tells its handler itself$"):
            while_connected()

    exchange = exchange_of(purgatory, handler)
    exchange.scope["type"] = "websocket"
    before = dict(exchange.scope)
    await exchange.run()
    assert seen == [exchange.scope, exchange.receive, exchange.send]
    assert (exchange.scope, purgatory.is_open) == (before, True)


# bodies


@pytest.mark.parametrize("parts", [1, 3, 1_000])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("is_given", [False, True])
async def test_body_is_read_whole_before_in_and_after_a_block(
    purgatory: Purgatory, parts: int, before: int, is_given: bool
) -> None:
    """Also if the app passes the middleware's own receive()."""
    bodies: list[bytes] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.extend([(await receive())["body"] for _ in range(before)])
        async with while_connected(*[receive] * is_given):
            await settle()
            if parts > before + 1:
                bodies.append((await receive())["body"])
        await settle()
        if parts > before:
            bodies.append(await read(receive))

    sent = [part(b"%4d" % number * 100) for number in range(parts)]
    sent[-1]["more_body"] = False
    await exchange_of(purgatory, handler, *sent).run()
    assert b"".join(bodies) == b"".join(message["body"] for message in sent)


async def test_block_reads_a_bounded_part_of_the_body_ahead(purgatory: Purgatory) -> None:
    left: list[int] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            await settle()
            left.append(exchange.messages.qsize())
            await read(receive)

    exchange = exchange_of(purgatory, handler, *[part(b"x" * 1_000)] * 200, part(b"", more=False))
    await exchange.run()
    assert 201 - left[0] == 44  # 44 x 1,512 bytes are the first to exceed 64 KiB


async def test_long_body_that_nobody_reads_ends_the_block(
    purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiopurgatory.web.connected.UNREAD", 0.01)
    for _ in range(2):
        exchange = exchange_of(purgatory, waiting, part(b"x" * 70_000))
        await exchange.run()
        assert (exchange.status, b"more than 65,536 unread bytes" in exchange.sent[-1]["body"]) == (413, True)


async def test_reader_in_a_block_waits_for_the_rest_or_the_disconnect(purgatory: Purgatory) -> None:
    seen = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            seen.append(await receive())
        seen.append(await receive())
        seen.append(await receive())

    exchange = exchange_of(purgatory, handler, part(b"x"))
    task = asyncio.create_task(exchange.run())
    await settle()
    exchange.leave()
    await task
    assert seen == [part(b"x"), DISCONNECT, DISCONNECT]


async def test_reader_behind_a_block_hears_of_a_receive_that_raises(purgatory: Purgatory) -> None:
    seen = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            pass
        async with asyncio.timeout(10.0):
            seen.append(await receive())

    async def broken() -> Message:
        await settle()
        raise ConnectionResetError

    exchange = exchange_of(purgatory, handler)
    exchange.receive = broken  # type: ignore[method-assign]
    await exchange.run()
    assert seen == [DISCONNECT]


async def test_reader_that_outlives_its_request_hears_its_disconnect(purgatory: Purgatory) -> None:
    readers: list[asyncio.Task[Message]] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            await receive()
            readers.append(asyncio.ensure_future(receive()))
            await settle()

    exchange = exchange_of(purgatory, handler)
    await exchange.run()
    await settle()
    exchange.leave()
    assert await asyncio.wait_for(readers[0], 5.0) == DISCONNECT


async def test_server_that_repeats_its_message_does_not_end_the_block(purgatory: Purgatory) -> None:
    """As the stand-ins of tests do."""

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            await settle()
            assert await read(receive) == b"body"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    exchange = exchange_of(purgatory, handler)
    exchange.receive = repeat  # type: ignore[method-assign]
    await exchange.run()
    assert exchange.status == 200


async def repeat() -> Message:
    return part(b"body", more=False)


# blocks


async def test_blocks_of_a_request_share_one_task(purgatory: Purgatory) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        before = len(asyncio.all_tasks())
        for _ in range(3):
            async with while_connected(), while_connected():
                await settle()
                assert len(asyncio.all_tasks()) == before + 1

    await exchange_of(purgatory, handler).run()


async def test_client_that_left_between_two_blocks_ends_the_second(purgatory: Purgatory) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            pass
        exchange.leave()
        await settle()
        async with while_connected():
            pass  # nothing is awaited
        with pytest.raises(DisconnectedError):
            async with while_connected():
                await forever()

    exchange = exchange_of(purgatory, handler)
    await exchange.run()


async def test_request_leaves_nothing_to_the_garbage_collector(purgatory: Purgatory, kept: Kept) -> None:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected():
            await settle()

    await exchange_of(purgatory, handler).run()
    await settle()
    assert kept(Exchange) == 0


# polls


@pytest.mark.parametrize("what", ["poll", "stream"])
async def test_polls_and_streams_need_no_receive_and_lose_no_body(purgatory: Purgatory, what: str) -> None:
    polling: LongPolling[str] = LongPolling(purgatory, Counters(), stop_signals=False)
    seen: list[object] = []

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        if what == "poll":
            seen.append((await polling.answer("n", KNOWN)).status)
        else:
            async for chunk in await polling.events("n", {}):
                seen.append(chunk)
        seen.append(await read(receive))

    exchange = exchange_of(purgatory, handler, part(b"body", more=False))
    task = asyncio.create_task(exchange.run())
    await until(lambda: exchange.messages.empty() and purgatory.num_delayed)
    exchange.leave()
    await task
    assert seen[-1] == b"body"
    assert len(seen) == 2
    assert purgatory.num_delayed == 0


# an app on a real server


@pytest.mark.parametrize("others", ["none", "inside", "outside"])
async def test_fastapi_reads_bodies_in_blocks_behind_any_middleware(purgatory: Purgatory, others: str) -> None:
    app = FastAPI()

    if others == "inside":
        behind(app)
    app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
    if others == "outside":
        behind(app)

    @app.post("/bytes")
    async def count(request: Request) -> int:
        async with while_connected():
            await asyncio.sleep(0.01)
            return len(await request.body())

    @app.post("/model")
    async def model(item: dict[str, int]) -> dict[str, int]:
        async with while_connected():
            return await purgatory.wait_for(lambda: item, ["key"], timeout=1.0)

    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        for size in (0, 10, 70_000, 3_000_000):
            assert (await client.post("/bytes", content=b"x" * size)).json() == size
        assert (await client.post("/model", json={"a": 1})).json() == {"a": 1}


async def test_purgatory_is_closed_when_the_server_hears_of_it(purgatory: Purgatory) -> None:
    """As hypercorn does: it cancels the lifespan once that is complete."""
    heard: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for kind in ("startup", "shutdown"):
            assert await receive() == {"type": f"lifespan.{kind}"}
            await send({"type": f"lifespan.{kind}.complete"})

    async def send(message: Message) -> None:
        heard.append((message["type"], purgatory.is_open))

    server = Messages({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    await PurgatoryMiddleware(app, purgatory)({"type": "lifespan"}, server.receive, send)
    assert heard == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


def test_lifespan_of_a_vanished_loop_closes_nothing_of_the_next() -> None:
    purgatory = Purgatory("both")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})
        while scope["type"] == "lifespan":
            await receive()

    middleware = PurgatoryMiddleware(app, purgatory)

    async def live() -> Any:
        """Begin a lifespan that nobody ends."""
        running: Any = Exchange(middleware, given=[{"type": "lifespan.startup"}], type="lifespan").run()
        running.send(None)
        await asyncio.sleep(0)
        assert purgatory.is_open
        return running

    first = asyncio.new_event_loop()
    left = first.run_until_complete(live())
    first.close()

    async def second() -> None:
        running = await live()
        with suppress(RuntimeError):  # it awaits while it is thrown away
            left.close()
        assert purgatory.is_open
        with suppress(RuntimeError):
            running.close()
        assert not purgatory.is_open

    asyncio.run(second())
