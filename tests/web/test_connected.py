"""A block that ends with its client: what it cancels, what it leaves alone, and what becomes of values and bodies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from aiopurgatory import DelayedOperation, Purgatory, PurgatoryError
from aiopurgatory.web import DisconnectedError, while_connected
from aiopurgatory.web.connected import Message, _warn_of_body

from .conftest import Kept
from .exchange import DISCONNECT, EMPTY, Messages, part
from .polls import settle


class Never(DelayedOperation[None]):
    def try_complete(self) -> bool:
        return False


@pytest.fixture
def client() -> Messages:
    return Messages(EMPTY)


async def forever() -> None:
    await asyncio.Event().wait()


async def block(client: Messages, awaitable: Callable[[], Awaitable[Any]] = forever) -> Any:
    async with while_connected(client.receive):
        return await awaitable()


async def start(work: Awaitable[Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(work)
    await settle()
    return task


async def leaving(client: Messages, within: Callable[[], Awaitable[Any]] = forever) -> Any:
    """What a block returns or raises whose client leaves while it awaits *within*."""
    task = await start(block(client, within))
    client.leave()
    return await end(task)


async def end(task: asyncio.Task[Any]) -> Any:
    """The result of *task*, or its exception. It has ended, and no listener of it is left."""
    await asyncio.wait([task], timeout=5)
    await settle()
    assert task.cancelling() == 0 or task.cancelled()
    assert not [one for one in asyncio.all_tasks() if "_listen" in str(one.get_coro())]
    return asyncio.CancelledError if task.cancelled() else task.exception() or task.result()


# what it cancels


@pytest.mark.parametrize("wait", ["wait_for", "own operation", "timeout", "anyio"])
async def test_client_leaves_and_what_is_awaited_is_cancelled(
    purgatory: Purgatory, client: Messages, wait: str
) -> None:
    async def wait_there() -> None:
        match wait:
            case "wait_for":
                await purgatory.wait_for(lambda: None, ["k"], timeout=60)
            case "own operation":
                await purgatory.watch(Never(60.0), ["k"])
            case "timeout":
                async with purgatory.timeout(60):
                    await forever()
            case _:
                async with anyio.create_task_group() as group:
                    group.start_soon(forever)
                    with anyio.move_on_after(60):
                        await forever()

    assert isinstance(await leaving(client, wait_there), DisconnectedError)
    assert purgatory.num_delayed == 0


async def test_block_that_ends_by_itself_returns_its_value(client: Messages) -> None:
    async def soon() -> str:
        await settle()
        return "value"

    assert await end(await start(block(client, soon))) == "value"
    client.leave()
    assert await client.receive() == DISCONNECT  # the listener has ended with the block


async def test_client_that_left_before_is_noticed_at_the_first_await() -> None:
    assert isinstance(await end(await start(block(Messages(EMPTY, DISCONNECT)))), DisconnectedError)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no eager tasks")
async def test_client_that_left_before_does_no_harm_after_a_block_that_awaits_nothing() -> None:
    eager: Any = asyncio.eager_task_factory  # type: ignore[attr-defined, unused-ignore]

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        options.pop("eager_start", None)  # uvloop passes it, and Python 3.13.0 does not know it
        return eager(loop, coro, **options)

    asyncio.get_running_loop().set_task_factory(factory)

    async def work() -> str:
        async with while_connected(Messages(EMPTY, DISCONNECT).receive):
            pass
        await settle()
        return "went on"

    assert await end(asyncio.create_task(work())) == "went on"


async def test_nested_blocks_end_together(client: Messages) -> None:
    assert isinstance(await leaving(client, lambda: block(client)), DisconnectedError)


async def test_nested_block_of_another_request_ends_alone(client: Messages) -> None:
    other = Messages(EMPTY)

    async def within() -> str:
        with suppress(DisconnectedError):
            await block(other)
        await settle()
        return "went on"

    task = await start(block(client, within))
    other.leave()
    assert await end(task) == "went on"


async def test_receive_that_raises_counts_as_a_disconnect(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Message:
        raise LookupError("broken")

    with pytest.raises(DisconnectedError):
        async with while_connected(receive):
            await forever()
    assert "receive() raised LookupError('broken')" in caplog.text


# what it leaves alone


@pytest.mark.parametrize("leave_first", [True, False])
async def test_cancellation_together_with_a_disconnect_stays_one(client: Messages, leave_first: bool) -> None:
    for turns in range(6):
        client = Messages(EMPTY)
        task = await start(block(client))
        client.leave() if leave_first else task.cancel()
        for _ in range(turns if leave_first else 0):
            await asyncio.sleep(0)
        if task.done():
            assert isinstance(await end(task), DisconnectedError)
            continue
        task.cancel() if leave_first else client.leave()
        assert await end(task) is asyncio.CancelledError


@pytest.mark.parametrize("scope", ["asyncio", "purgatory"])
@pytest.mark.parametrize("is_outside", [True, False])
async def test_timeout_together_with_a_disconnect_keeps_the_count(
    purgatory: Purgatory, scope: str, is_outside: bool
) -> None:
    ends = set()
    for turns in range(8):
        client = Messages(EMPTY)
        timeout = asyncio.timeout(None) if scope == "asyncio" else purgatory.timeout(None)

        async def work(client: Messages = client, timeout: Any = timeout) -> None:
            async with AsyncExitStack() as stack:
                blocks = [timeout, while_connected(client.receive)]
                for one in blocks if is_outside else reversed(blocks):
                    await stack.enter_async_context(one)
                await forever()

        task = await start(work())
        client.leave()
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.done():
            timeout.reschedule(0.0)
        error = await end(task)
        assert isinstance(error, TimeoutError | DisconnectedError)
        ends.add(isinstance(error, DisconnectedError))
    assert ends == ({True, False} if is_outside else {True})


@pytest.mark.parametrize("leaves", [False, True])
async def test_anyio_scope_outside_and_a_disconnect(client: Messages, leaves: bool) -> None:
    async def work() -> str:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            with suppress(DisconnectedError):
                await block(client)
            await settle()
        return "cancelled" if scope.cancelled_caught else "went on"

    scopes: list[anyio.CancelScope] = []
    task = await start(work())
    scopes[0].cancel()
    if leaves:
        client.leave()
    assert await end(task) == "cancelled"


async def test_exception_of_the_block_goes_before_the_disconnect(client: Messages) -> None:
    async def within() -> None:
        try:
            await forever()
        finally:
            raise LookupError

    assert isinstance(await leaving(client, within), LookupError)


async def test_block_that_survives_its_cancellation_goes_on(client: Messages) -> None:
    async def within() -> str:
        with suppress(asyncio.CancelledError):
            await forever()
        await settle()
        return "cleaned up"

    assert await leaving(client, within) == "cleaned up"


# values


@pytest.mark.parametrize("leave_first", [True, False])
@pytest.mark.parametrize("is_awaited", [True, False])
@pytest.mark.parametrize("turns", range(8))
async def test_value_that_comes_with_the_disconnect_is_not_lost(
    purgatory: Purgatory, client: Messages, leave_first: bool, is_awaited: bool, turns: int
) -> None:
    jobs, back = list[int](), list[int]()

    def take() -> int | None:
        return jobs.pop() if jobs else None

    async def take_awaited() -> int | None:
        return take()

    def put() -> None:
        jobs.append(0)
        purgatory.check_and_complete("jobs")

    condition: Any = take_awaited if is_awaited else take
    wait = lambda: purgatory.wait_for(condition, ["jobs"], timeout=60, on_undelivered=back.append)  # noqa: E731
    task = await start(block(client, wait))
    first, then = (client.leave, put) if leave_first else (put, client.leave)
    first()
    for _ in range(turns):
        await asyncio.sleep(0)
    then()
    ended = await end(task)
    received = [] if isinstance(ended, DisconnectedError) else [ended]
    assert received + back + jobs == [0]
    if turns == 7:
        assert bool(received) != leave_first


# bodies


async def test_body_that_a_block_drops_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_body.cache_clear()
    for message in (EMPTY, part(b"x", more=False), part(b"x")):
        client = Messages(message)
        async with while_connected(client.receive):
            await settle()
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "a while_connected() block or a poll has dropped a body that was not read before"
    ]


async def test_long_body_that_nobody_reads_hides_no_disconnect() -> None:
    error = await end(await start(block(Messages(*[part(b"x")] * 100, DISCONNECT))))
    assert (type(error).__name__, error.status_code) == ("DisconnectedError", 499)


# the error, and mistakes


@pytest.mark.parametrize("has_starlette", [True, False])
async def test_error_is_ours_and_starlettes_if_it_is_there(
    client: Messages, monkeypatch: pytest.MonkeyPatch, has_starlette: bool
) -> None:
    if not has_starlette:
        monkeypatch.delitem(sys.modules, "starlette.exceptions")
    error = await leaving(client)
    assert (type(error).__name__, error.status_code) == ("DisconnectedError", 499)
    assert isinstance(error, PurgatoryError)
    assert isinstance(error, HTTPException) == has_starlette
    assert str(error) == ("499: " if has_starlette else "") + "the client has disconnected"


async def test_error_leaves_nothing_to_the_garbage_collector(kept: Kept) -> None:
    with suppress(DisconnectedError):
        await block(Messages(EMPTY, DISCONNECT))
    await settle()
    assert kept(Messages) == 0


@pytest.mark.parametrize("kind", ["websocket.connect", "websocket.receive"])
async def test_receive_of_a_websocket_is_refused(kind: str) -> None:
    with pytest.raises(TypeError, match=f"receive must belong to an HTTP request, got a '{kind}' from it"):
        await block(Messages({"type": kind}))


async def test_receive_of_starlettes_websocket_is_refused_untouched() -> None:
    client = Messages({"type": "websocket.connect"})
    socket = WebSocket({"type": "websocket"}, client.receive, lambda _: forever())
    with pytest.raises(TypeError, match="receive must belong to an HTTP request, got a WebSocket's"):
        while_connected(socket.receive)
    await settle()
    assert not client.messages.empty()


async def test_block_entered_twice_is_refused(client: Messages) -> None:
    connected = while_connected(client.receive)
    async with connected:
        pass
    with pytest.raises(RuntimeError, match="must be entered in a task, and once"):
        async with connected:
            pass
