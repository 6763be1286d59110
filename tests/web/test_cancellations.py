"""Polls whose tasks are or were cancelled, that an exception interrupts, and how receive() is called meanwhile."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from aiopurgatory import Observer, Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import LogPolling, LongPolling
from aiopurgatory.web.connected import Message

from .exchange import DISCONNECT, Messages, part
from .polls import KNOWN, Counters, Database, Polls, settle, until

Respond = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]
pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture(params=["memory", "database", "log"])
async def respond(request: pytest.FixtureRequest, purgatory: Purgatory) -> AsyncIterator[Respond]:
    """Answers a poll that waits, and returns the status."""
    async with MemoryLog() as log:
        headers = KNOWN
        match request.param:
            case "log":
                polling: Any = LogPolling(log)
                headers = {"if-none-match": '"{}"'.format(await log.append("n", "first"))}
            case "memory":
                polling = LongPolling(purgatory, Counters(), stop_signals=False)
            case _:
                polling = LongPolling(purgatory, Database(), stop_signals=False)

        async def respond(receive: Callable[[], Awaitable[Any]]) -> int:
            return int((await polling.answer("n", headers, receive=receive)).status)

        yield respond


async def swallowed(respond: Callable[[], Awaitable[int]]) -> int:
    """The task has swallowed a cancellation, as asyncio does not forbid."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        return await respond()
    raise AssertionError


async def shielded(respond: Callable[[], Awaitable[int]]) -> int:
    """The task cleans up, since its time is over."""
    status = 0
    with anyio.move_on_after(0) as scope:
        try:
            await anyio.sleep(1)
        finally:
            with anyio.CancelScope(shield=True):
                status = await respond()
    assert scope.cancelled_caught
    return status


Place = Callable[[Callable[[], Awaitable[int]]], Coroutine[Any, Any, int]]


@pytest.mark.parametrize("place", [swallowed, shielded])
async def test_poll_of_a_cancelled_task_ends_499_as_its_client_leaves(respond: Respond, place: Place) -> None:
    client = Messages()
    task = asyncio.create_task(place(lambda: respond(client.receive)))
    await asyncio.sleep(0.05)
    await settle()
    client.leave()
    async with asyncio.timeout(5):
        assert await task == 499


async def test_poll_cancelled_as_its_client_leaves_is_cancelled(respond: Respond) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, str]:
        await left.wait()
        task.cancel()  # the client's disconnect ends the poll in the same iteration
        return {"type": "http.disconnect"}

    task = asyncio.create_task(swallowed(lambda: respond(receive)))
    await asyncio.sleep(0.01)
    left.set()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


# interrupted

Interrupt = Callable[[str, str], type[BaseException]]
READS = "aiopurgatory.web.reads"


@pytest.fixture
def polls(purgatory: Purgatory) -> Polls:
    return Polls(purgatory, Database(), max_reads=1)


async def test_poll_interrupted_before_its_read_mutes_no_other(polls: Polls, interrupt: Interrupt) -> None:
    interrupted = interrupt("call_soon", READS)
    with pytest.raises(interrupted):
        await polls.polling.answer("n", {})
    async with asyncio.timeout(10.0):
        assert (await polls.start(known=None)).status == 200
        assert (await polls.start("other", known=None)).status == 200


async def test_read_interrupted_as_it_begins_begins(polls: Polls, interrupt: Interrupt, reported: list[Any]) -> None:
    loop = asyncio.get_running_loop()
    interrupted = []
    # In the iteration of the read, before it: its task comes next in the loop.
    loop.call_soon(lambda: loop.call_soon(lambda: interrupted.append(interrupt("call_soon", READS))))
    both = [polls.start(known=None), polls.start("other", known=None)]
    async with asyncio.timeout(10.0):
        assert [(await poll).status for poll in both] == [200, 200]
        assert (await polls.start(known=None)).status == 200
    gc.collect()
    raised = [type(context["exception"]) for context in reported if "exception" in context]
    assert raised == interrupted  # besides, the task that could not begin


class Handler:
    """A signal handler of a server. The first look at it is interrupted."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, *_: object) -> None:
        pass

    @property
    def keywords(self) -> dict[str, object]:
        self.looks += 1
        if self.looks == 1:
            raise InterruptedError
        return {}


async def test_stop_signal_ends_polls_though_the_first_was_interrupted(purgatory: Purgatory) -> None:
    signal.signal(signal.SIGTERM, Handler())
    polling = LongPolling(purgatory, Counters())
    with pytest.raises(InterruptedError):
        await polling.answer("n", KNOWN)
    poll = asyncio.create_task(polling.answer("n", KNOWN))
    await asyncio.sleep(0.01)
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(10.0):
        assert (await poll).headers["refused"] == "closed"


# how receive() is called, in which context, and in how many threads at a time

user: ContextVar[str] = ContextVar("user")


async def test_receive_of_each_poll_has_the_context_of_its_request(polls: Polls) -> None:
    seen: dict[str, list[str]] = {"ann": [], "bob": []}

    async def poll(name: str, messages: Messages) -> int:
        user.set(name)

        async def receive() -> Message:
            seen[name].append(user.get())
            message = await messages.receive()
            seen[name].append(user.get())
            return message

        return (await polls.start(receive=receive)).status

    queues = {name: Messages() for name in seen}
    tasks = [asyncio.create_task(poll(*one)) for one in queues.items()]
    await settle()
    for message in (part(b""), DISCONNECT):
        for messages in queues.values():
            messages.give(message)
        await settle()
    async with asyncio.timeout(5):
        assert [await task for task in tasks] == [499, 499]
    assert seen == {"ann": ["ann"] * 4, "bob": ["bob"] * 4}


async def test_receive_of_a_middleware_can_do_what_needs_a_task(polls: Polls) -> None:
    messages = Messages()

    async def receive() -> Message:
        async with asyncio.timeout(60):
            return await messages.receive()

    poll = polls.start(receive=receive, wait=5)
    await settle()
    messages.leave()
    assert (await asyncio.wait_for(poll, 5)).status == 499


async def test_poll_that_has_just_come_waits_for_its_listener(polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiopurgatory.web.desk.LISTEN_AFTER", 0.4)
    loop, waited = asyncio.get_running_loop(), list[float]()

    async def poll() -> int:
        began = loop.time()

        async def receive() -> Message:
            waited.append(loop.time() - began)
            return await Messages().receive()

        return (await polls.start(receive=receive)).status

    tasks = [asyncio.create_task(poll())]
    await asyncio.sleep(0.3)
    tasks.append(asyncio.create_task(poll()))
    await until(lambda: len(waited) == 2)
    assert min(waited) > 0.19  # half of LISTEN_AFTER
    polls.publish()
    assert await asyncio.gather(*tasks) == [200, 200]


def test_clients_that_leave_in_two_threads_at_a_time_are_heard() -> None:
    both = threading.Barrier(2, timeout=20)

    class Meet(Observer):
        """While one thread handles the end of its poll, so does the other."""

        def ended(self, *_: Any) -> None:
            both.wait()

    async def leave() -> int:
        messages = Messages()
        polling = LongPolling(Purgatory(observers=[Meet()]), Counters())
        poll = asyncio.create_task(polling.answer("n", KNOWN, receive=messages.receive))
        await settle()
        messages.leave()
        return (await poll).status

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(asyncio.run, leave()) for _ in range(2)]
    assert [end.result() for end in ends] == [499, 499]
