"""What a log begins in a request, and shares, outlives that, and has none of its context variables."""

from __future__ import annotations

from typing import Any

import pytest

from aiopurgatory.streams import EventLog

from .conftest import log_at, until
from .faulty import FaultyStore


# asyncpg keeps the context of each request that was first to send a statement, for five minutes.
@pytest.mark.parametrize("kind", ["memory", "redis"], indirect=True, scope="session")
async def test_log_first_used_in_a_request_does_not_keep_its_session(url: str, topic: str, requests: Any) -> None:
    log = log_at(url)

    async def use() -> None:
        await log.append(topic, "first")
        follow = log.follow(topic)
        await anext(follow)
        await follow.aclose()

    session = await requests.handle(use)
    try:
        assert requests.are_over(session)
        await log.append(topic, "second")
    finally:
        await log.aclose()


async def test_tail_does_not_keep_the_session_of_its_first_listener(url: str, topic: str, requests: Any) -> None:
    async with log_at(url) as log:
        await log.append(topic, "first")
        first, other = log.follow(topic), log.follow(topic)
        session = await requests.handle(lambda: anext(first))
        await anext(other)
        await first.aclose()
        assert requests.are_over(session)
        await log.append(topic, "second")
        assert (await anext(other)).data == "second"
        await other.aclose()


@pytest.fixture
def store(requests: Any) -> FaultyStore:
    """It notes the session in which it is called."""
    return FaultyStore(lambda: requests.session.get())


@pytest.mark.parametrize("window_bytes", [0, 1 << 20])
async def test_shared_reads_see_no_session_of_the_first_listener(
    requests: Any, store: FaultyStore, window_bytes: int
) -> None:
    store.is_mute = True
    async with EventLog(store, window_bytes=window_bytes) as log:
        await log.append("topic", "first")
        store.read_in.clear()
        first, other = log.follow("topic"), log.follow("topic")
        await requests.handle(lambda: anext(first))
        await anext(other)
        await log.append("topic", "second")
        store.notify_all()
        await anext(other)
        assert len(store.read_in) >= 2
        assert set(store.read_in) == {None}
        await first.aclose()
        await other.aclose()


async def test_lease_renewed_after_its_request_sees_no_session(requests: Any, store: FaultyStore) -> None:
    async with EventLog(store) as log:
        run = log.run("topic", lease=0.1)
        session = await requests.handle(run.__aenter__)
        store.read_in.clear()
        store.renewed_in.clear()
        await until(lambda: store.renewed_in)
        assert set(store.renewed_in) == {None}
        assert requests.are_over(session)
        await run.__aexit__(None, None, None)


async def test_end_of_a_run_sees_the_session_of_its_request(requests: Any, store: FaultyStore) -> None:
    """It is for that request alone."""

    async def run() -> None:
        async with EventLog(store) as log, log.run("topic") as run:
            await run.append("first")

    await requests.handle(run)
    assert len(store.written_in) == 2
    assert None not in store.written_in
