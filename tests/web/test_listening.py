"""How receive() is called while a poll waits: in which context, and in how many threads at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from aiopurgatory import Observer, Purgatory
from aiopurgatory.web import LongPolling
from aiopurgatory.web.connected import Message

from .exchange import DISCONNECT, Messages, part
from .polls import KNOWN, Counters, Polls, settle

user: ContextVar[str] = ContextVar("user")
pytestmark = pytest.mark.usefixtures("at_once")


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
    heard = {name: asyncio.Event() for name in ("early", "late")}

    async def poll(name: str) -> int:
        async def receive() -> Message:
            heard[name].set()
            return await Messages().receive()

        return (await polls.start(receive=receive)).status

    tasks = [asyncio.create_task(poll("early"))]
    await asyncio.sleep(0.3)
    tasks.append(asyncio.create_task(poll("late")))
    async with asyncio.timeout(5):
        await heard["early"].wait()
        assert not heard["late"].is_set()
        await heard["late"].wait()
    polls.publish()
    assert await asyncio.gather(*tasks) == [200, 200]


def test_clients_that_leave_in_two_threads_at_a_time_are_heard() -> None:
    both = threading.Barrier(2, timeout=5)

    class Meet(Observer):
        """While one thread handles the end of its poll, so does the other."""

        def ended(self, *_: Any) -> None:
            both.wait()

    async def leave() -> int:
        messages = Messages()
        polling = LongPolling(Purgatory(observers=[Meet()]), Counters())
        poll = asyncio.create_task(polling.answer("n", KNOWN, {"wait": "2"}, receive=messages.receive))
        await settle()
        messages.leave()
        return (await poll).status

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(asyncio.run, leave()) for _ in range(2)]
    assert [end.result() for end in ends] == [499, 499]
