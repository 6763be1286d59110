"""Testing streams of events: of an EventRoute, and of a plain Starlette app."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock, RefusedError, SentEvent, events
from aiopurgatory.web import EventRoute, LongPolling


class Orders:
    def __init__(self) -> None:
        self.orders: list[str] = []

    def version(self, topic: str) -> str:
        return str(len(self.orders))

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        return ",".join(self.orders[int(since or 0) :]).encode()


class Shop:
    def __init__(self, purgatory: Purgatory, **settings: Any) -> None:
        self.source = Orders()
        self.polling = LongPolling(purgatory, self.source)
        self.app = Starlette(routes=[Route("/events/{topic}", EventRoute(self.polling, **settings))])

    def order(self, what: str) -> None:
        self.source.orders.append(what)
        self.polling.notify("shop")


@pytest.fixture
def shop(purgatory: Purgatory) -> Shop:
    return Shop(purgatory)


async def test_events_are_parsed_as_they_come(shop: Shop, purgatory: Purgatory) -> None:
    async with events(shop.app, "/events/shop") as stream:
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert purgatory.num_delayed == 1  # entering has waited for the answer
        assert await anext(stream) == ("0", "message", "")
        shop.order("apples")
        assert await anext(stream) == SentEvent("1", "message", "apples")
    assert purgatory.num_delayed == 0


async def test_last_event_id_and_headers_are_sent(purgatory: Purgatory) -> None:
    shop = Shop(
        purgatory,
        client=lambda scope: dict(scope["headers"])[b"x-client"],
        group=lambda scope: scope["query_string"],
    )
    shop.order("apples")
    shop.order("pears")
    stream = events(shop.app, "/events/shop?tab=1", headers={"X-Client": "ann"}, last_event_id="1")
    async with stream:
        assert await anext(stream) == ("2", "message", "pears")
        found = shop.polling.statistics()
        assert (found.clients, found.groups) == (1, 1)
        async with events(shop.app, "/events/shop", headers={"X-Client": "ann"}) as newer:
            await anext(newer)
            assert [event.event async for event in stream] == ["replaced"]


async def test_heartbeat_is_skipped(shop: Shop, manual_clock: ManualClock) -> None:
    async with events(shop.app, "/events/shop") as stream:
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        await manual_clock.advance(100.0)
        assert not following.done()
        shop.order("apples")
        assert (await following).id == "1"


async def test_stream_that_ends_ends_the_iteration(shop: Shop, purgatory: Purgatory) -> None:
    stream = events(shop.app, "/events/shop")
    await anext(stream)
    purgatory.close()
    assert [event async for event in stream] == []
    with pytest.raises(RefusedError, match=r"^GET /events/shop was answered 503 \(no content-type\)") as raised:
        await anext(events(shop.app, "/events/shop"))
    assert raised.value.headers["refused"] == "closed"


# disconnects


async def leave_by_break(app: Any) -> None:
    async for _ in events(app, "/events/shop"):
        break


async def leave_by_aclose(app: Any) -> None:
    async with aclosing(events(app, "/events/shop")) as stream:
        await anext(stream)


async def leave_by_exception(app: Any) -> None:
    with pytest.raises(LookupError):
        async with events(app, "/events/shop"):
            raise LookupError


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_aclose, leave_by_exception])
async def test_leaving_disconnects(shop: Shop, purgatory: Purgatory, leave: Callable[[Any], Any]) -> None:
    gc.disable()
    try:
        await leave(shop.app)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (purgatory.num_delayed, shop.polling.statistics().answered) == (0, {200: 1})
        assert purgatory.statistics().cancelled == 1
    finally:
        gc.enable()


async def test_closed_before_it_began_asks_for_nothing(shop: Shop) -> None:
    stream = events(shop.app, "/events/shop")
    await stream.aclose()
    assert [event async for event in stream] == []
    assert shop.polling.statistics().answered == {}


async def test_cancelled_anext_may_be_repeated(shop: Shop) -> None:
    async with events(shop.app, "/events/shop") as stream:
        await anext(stream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        shop.order("apples")
        assert (await anext(stream)).id == "1"


# a plain app


def plain(*chunks: bytes, ending: Any = None, media_type: str = "text/event-stream") -> Starlette:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if ending is not None:
            await ending()

    async def stream(request: Request) -> Response:
        return StreamingResponse(body(), media_type=media_type)

    async def refuse(request: Request) -> Response:
        return JSONResponse({"detail": "no such run"}, 404)

    async def fail(request: Request) -> Response:
        raise LookupError("broken")

    return Starlette(routes=[Route("/", stream), Route("/refused", refuse), Route("/broken", fail)])


async def received(app: Any, path: str = "/") -> list[SentEvent]:
    return [event async for event in events(app, path)]


async def test_fields_are_read_as_by_a_browser() -> None:
    text = (
        "\ufeff: comment\n\ndata: one\n\n"
        "id: 1\nevent: token\ndata: two\ndata:  lines\nunknown: x\nretry: 5\n\n"
        "data\r\rid: 2\r\ndata: ü\r\n\r\n"
        "event: gone\nid:\ndata: x\n\nid: 3\n\ndata: y\n\ndata: unfinished\n"
    ).encode()
    expected = [
        ("", "message", "one"),
        ("1", "token", "two\n lines"),
        ("1", "message", ""),
        ("2", "message", "ü"),
        ("", "gone", "x"),
        ("3", "message", "y"),
    ]
    assert await received(plain(text)) == expected
    assert await received(plain(*[bytes([byte]) for byte in text])) == expected


async def test_other_answers_are_shown() -> None:
    with pytest.raises(
        RefusedError, match=r"answered 404 \(application/json\), not with events: .*no such run"
    ) as raised:
        await received(plain(), "/refused")
    assert (raised.value.status, raised.value.body) == (404, b'{"detail":"no such run"}')
    with pytest.raises(RefusedError, match=r"answered 200 \(text/plain"):
        async with events(plain(b"data: x\n\n", media_type="text/plain"), "/"):
            pass


async def test_error_of_the_app_is_raised_once() -> None:
    async def fail() -> None:
        raise LookupError("broken")

    stream = events(plain(b"data: x\n\n", ending=fail), "/")
    assert (await anext(stream)).data == "x"
    with pytest.raises(LookupError):
        await anext(stream)
    await stream.aclose()
    with pytest.raises(LookupError):
        async with events(plain(b"data: x\n\n", ending=fail), "/"):
            await asyncio.sleep(0.01)


async def test_app_that_ends_without_an_answer_is_an_error() -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        pass

    with pytest.raises(RuntimeError, match="without an answer"):
        await received(nothing)


async def test_app_that_ignores_the_disconnect_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.testing.sent_events.GRACE", 0.01)
    cancelled = False

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cancelled
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
        try:
            await asyncio.Event().wait()
        finally:
            cancelled = True

    async with events(deaf, "/") as stream:
        assert (await anext(stream)).data == "x"
    assert cancelled


async def test_app_waits_for_a_client_that_does_not_read() -> None:
    sent = 0

    async def floods(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": b"data: %b\n\n" % bytes(1_000), "more_body": True})
            sent += 1

    async with events(floods, "/") as stream:
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert 60 < sent < 70
        assert len([event async for event in stream]) == 1_000


async def test_stream_behind_middleware_is_disconnected(shop: Shop, purgatory: Purgatory) -> None:
    async def dispatch(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        return response

    shop.app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with events(shop.app, "/events/shop") as stream:
        await anext(stream)
        assert purgatory.num_delayed == 1
    assert purgatory.num_delayed == 0
